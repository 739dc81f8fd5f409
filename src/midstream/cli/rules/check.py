"""Asks a Prometheus-compatible server which rules have data there, and says it in a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import typer
from rich.console import Console
from rich.table import Table

from midstream.cli.common.errors import CliError
from midstream.cli.common.http_options import PROMETHEUS_TOKEN, headers_of
from midstream.monitoring.alerts import Tuning
from midstream.monitoring.alerts.check import Finding, check
from midstream.sources.http import Getter
from midstream.sources.prometheus_api import PrometheusApi, PrometheusError, QueryRefusedError

TIMEOUT_S = 30.0
TOTAL_S = 180.0
"""For all queries together: about a hundred."""


def check_on(url: str, tuning: Tuning) -> int:
    """Print what each rule finds on the server; 1 if a rule about streams finds nothing."""
    with Getter(headers_of(None, PROMETHEUS_TOKEN), TIMEOUT_S, total_s=TOTAL_S) as getter:
        try:
            api = PrometheusApi(url, getter)
        except ValueError as error:
            raise typer.BadParameter(f"{error}.", param_hint="--check") from error
        findings = check(tuning, asking(api))
    show(findings, api.url)
    return 1 if any(finding.reasons and finding.engine is None for finding in findings) else 0


def asking(api: PrometheusApi) -> Callable[[str], int]:
    """Make what evaluates an expression there and returns 1 if it has a result above 0."""

    def ask(expr: str) -> int:
        try:
            return int(api.has(expr))
        except QueryRefusedError as error:
            # A name with dots is a syntax error before Prometheus 3, and then not there either.
            if expr.startswith('count({"'):
                return 0
            raise CliError(
                f"{api.url} cannot evaluate a query of the rules{error.reason}; see the settings that are in it"
            ) from error
        except PrometheusError as error:
            raise CliError(str(error)) from error

    return ask


def show(findings: Sequence[Finding], url: str) -> None:
    """Print the findings, those without data with every reason."""
    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 200)
    table = Table(box=None, pad_edge=False)
    table.add_column("rule", no_wrap=True)
    table.add_column("data", no_wrap=True)
    table.add_column("why not", overflow="fold")
    for finding in findings:
        table.add_row(finding.title, "no" if finding.reasons else "yes", "\n".join(finding.reasons))
    console.print(table)
    good = sum(not finding.reasons for finding in findings)
    console.print(f"\n{good} of {len(findings)} rules have data on {url}.", soft_wrap=True)
