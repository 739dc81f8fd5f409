"""Asks a Prometheus-compatible server which rules have data there, and says it in a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

import typer
from rich.console import Console
from rich.table import Table

from midstream.cli.common.errors import CliError
from midstream.cli.common.http_options import PROMETHEUS_TOKEN, headers_of
from midstream.monitoring.alerts import Tuning
from midstream.monitoring.alerts.check import Finding, check
from midstream.sources.address import shown, url_of
from midstream.sources.http import Getter, UnreachableError

TIMEOUT_S = 30.0


def check_on(url: str, tuning: Tuning) -> int:
    """Print what each rule finds on the server; 1 if a rule about streams finds nothing."""
    try:
        base = url_of(url)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--check") from error
    findings = check(tuning, asking(base))
    show(findings, shown(base))
    return 1 if any(finding.reasons and finding.engine is None for finding in findings) else 0


def asking(base: str) -> Callable[[str], int]:
    """Make what evaluates an expression there and returns how many series it has."""
    getter, where = Getter(headers_of(None, PROMETHEUS_TOKEN), TIMEOUT_S), shown(base)

    def ask(expr: str) -> int:
        try:
            answer = getter.get(f"{base}/api/v1/query", {"query": expr})
        except UnreachableError as error:
            raise CliError(str(error)) from error
        # A name with dots is a syntax error before Prometheus 3, and then not there either.
        if answer.status in (400, 422) and expr.startswith('count({"'):
            return 0
        if answer.status != 200:
            if answer.status in (400, 422) and answer.because:
                raise CliError(
                    f"{where} cannot evaluate a query of the rules{answer.because}; see the settings that are in it"
                )
            raise CliError(
                f"{where} answers {answer.status} to a query{answer.because}; is it a Prometheus, and is the path "
                "right?"
            )
        try:
            result = json.loads(answer.text)["data"]["result"]
            return int(float(result[0]["value"][1])) if result else 0
        except ValueError as error:
            raise CliError(
                f"{where} cannot be asked: it sends no JSON; give the address of a Prometheus"
            ) from error
        except (KeyError, TypeError, IndexError) as error:
            raise CliError(
                f"{where} does not answer as a Prometheus does; give the address of one"
            ) from error

    return ask


def show(findings: Sequence[Finding], url: str) -> None:
    """Print the findings, those without data with every reason."""
    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 200)
    table = Table(box=None, pad_edge=False)
    table.add_column("rule", no_wrap=True)
    table.add_column("data", no_wrap=True)
    table.add_column("why not", overflow="fold")
    for finding in findings:
        table.add_row(finding.alert, "no" if finding.reasons else "yes", "\n".join(finding.reasons))
    console.print(table)
    good = sum(not finding.reasons for finding in findings)
    console.print(f"\n{good} of {len(findings)} rules have data on {url}.", soft_wrap=True)
