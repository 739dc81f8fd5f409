"""Asks a Prometheus-compatible server which rules have data there, and says it in a table."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from midstream.alerts import Tuning
from midstream.alerts.check import Finding, check
from midstream.cli._errors import CliError

TIMEOUT_S = 30.0


def check_on(url: str, tuning: Tuning) -> int:
    """Print what each rule finds on the server; 1 if a rule about streams finds nothing."""
    findings = check(tuning, asking(url))
    show(findings, url)
    return 1 if any(finding.reasons and finding.engine is None for finding in findings) else 0


def asking(url: str) -> Callable[[str], int]:
    """Make what evaluates an expression there and returns how many series it has."""
    base = (url if "://" in url else f"http://{url}").rstrip("/")

    def ask(expr: str) -> int:
        data = urllib.parse.urlencode({"query": expr}).encode()
        try:
            request = urllib.request.Request(f"{base}/api/v1/query", data=data)  # noqa: S310 - the user's own server
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
                result = json.load(response)["data"]["result"]
        except urllib.error.HTTPError as error:
            # A name with dots is a syntax error before Prometheus 3, and then not there either.
            if error.code in (400, 422) and expr.startswith('count({"'):
                return 0
            raise CliError(
                f"{base} answers {error.code} to a query; is it a Prometheus, and is the path right?"
            ) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise CliError(f"{base} cannot be asked: {reason}; give the address of a Prometheus") from error
        except (KeyError, TypeError) as error:
            raise CliError(f"{base} does not answer as a Prometheus does; give the address of one") from error
        return int(float(result[0]["value"][1])) if result else 0

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
