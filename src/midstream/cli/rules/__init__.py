"""`midstream rules`: renders the alert rules, and tells which of them have data on a server."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from midstream.cli.common.errors import CliError, spare_databases, unwritten
from midstream.cli.common.plain_help import choices
from midstream.cli.rules.check import check_on
from midstream.cli.rules.settings import explained, pairs, read_settings, with_assignments
from midstream.monitoring.alerts import Alert, Naming, TuningError, build, tuning_of
from midstream.monitoring.alerts.render import as_yaml, grafana, prometheus, prometheus_rule

HEAD = "Rendered by `midstream rules{format}`: change the settings and render again, do not edit."


class Format(str, Enum):
    """What reads the rules."""

    PROMETHEUS = "prometheus"
    OPERATOR = "operator"
    GRAFANA = "grafana"


_NEXT: Mapping[Format, str] = MappingProxyType(
    {
        Format.PROMETHEUS: "name it under rule_files in prometheus.yml, and reload Prometheus",
        Format.OPERATOR: "apply it: kubectl apply -f {file}",
        Format.GRAFANA: "put it into provisioning/alerting of Grafana, and restart Grafana",
    }
)
"""What to do with a file of rules."""


def rules(
    *,
    format: Annotated[  # noqa: A002 - the option's name
        Format,
        typer.Option(
            metavar=choices(Format),
            help="prometheus: a rule file, also for Mimir, Thanos and vmalert; operator: a PrometheusRule.",
        ),
    ] = Format.PROMETHEUS,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings in YAML; --settings prints one.", show_default=False),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="One setting, or StreamFrozen.for=30s; * is every alert."
        ),
    ] = None,
    selector: Annotated[
        str | None,
        typer.Option(metavar="MATCHERS", help='Restrict our metrics, as in job="app".', show_default=False),
    ] = None,
    server_selector: Annotated[
        str | None,
        typer.Option(metavar="MATCHERS", help="Restrict the engines' metrics.", show_default=False),
    ] = None,
    objective: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", help="Streams without a freeze. [99.5]", show_default=False),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="What most rules look back on. [10m]", show_default=False),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A label for every alert.", show_default=False),
    ] = None,
    naming: Annotated[
        Naming | None,
        typer.Option(
            metavar=choices(Naming),
            help="How the server writes OTel's names. [prometheus]",
            show_default=False,
        ),
    ] = None,
    expect_job: Annotated[
        list[str] | None,
        typer.Option(metavar="JOB", help="A job that always has traffic.", show_default=False),
    ] = None,
    runbook_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where your copy of docs/runbook.md is; without it the alerts link to the file's name only.",
            show_default=False,
        ),
    ] = None,
    dashboard_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where Grafana is.", show_default=False)
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="ALERT", help="Only this alert.", show_default=False)
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="ALERT", help="All but this alert.", show_default=False)
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="operator: the resource's name.")] = "midstream",
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="operator: its namespace.", show_default=False)
    ] = None,
    resource_label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="operator: a label it is selected by.", show_default=False),
    ] = None,
    datasource: Annotated[str, typer.Option(metavar="UID", help="grafana: the data source.")] = "prometheus",
    folder: Annotated[str, typer.Option(metavar="NAME", help="grafana: the folder.")] = "midstream",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there.", show_default=False)
    ] = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="Print every setting with its reason, as a file for --config.")
    ] = False,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Ask this Prometheus which rules have data there.", show_default=False
        ),
    ] = None,
) -> int | None:
    """Render alert rules for streams: frozen now, p99 of the gap, error budgets, limits, engines.

    --check exits with 1 if a rule about streams has no data. Rules about an engine may have none.

    \u0008
    midstream rules -o midstream.rules.yml --runbook-url https://wiki.example/runbook    for Prometheus
    midstream rules --format operator --namespace llm   for the Prometheus Operator
    midstream rules --format grafana                    Grafana-managed alerts
    midstream rules --set gap_p99_s=20 --set StreamFrozen.severity=critical
    midstream rules --check http://localhost:9090       what is missing, and why
    """
    given = read_settings(config)
    single: dict[str, Any] = {
        "selector": selector,
        "server_selector": server_selector,
        "objective": objective,
        "window": window,
        "naming": naming,
        "runbook_url": runbook_url,
        "dashboard_url": dashboard_url,
        "expect_jobs": tuple(expect_job) if expect_job else None,
        "labels": {**given.get("labels", {}), **pairs(label, "--label")} if label else None,
    }
    given.update({key: value for key, value in single.items() if value is not None})
    given = with_assignments(given, set_ or ())
    for alert in without or ():
        given.setdefault("alerts", {}).setdefault(alert, {})["enabled"] = False
    for alert in only or ():
        given.setdefault("alerts", {}).setdefault("*", {})["enabled"] = False
        given["alerts"].setdefault(alert, {})["enabled"] = True
    try:
        tuning = tuning_of(given)
        groups = build(tuning)
    except TuningError as error:
        raise CliError(str(error)) from error
    if check is not None:
        return check_on(check, tuning)
    if settings:
        _write(explained(tuning), output)
        _say(output, "wrote every setting to", f"change what you like: midstream rules --config {output}")
        return None
    if format is Format.OPERATOR:
        labels = pairs(resource_label or (), "--resource-label")
        document = prometheus_rule(groups, tuning, name=name, namespace=namespace, labels=labels)
    elif format is Format.GRAFANA:
        document = grafana(groups, tuning, datasource=datasource, folder=folder)
    else:
        document = prometheus(groups, tuning)
    asked = "" if format is Format.PROMETHEUS else f" --format {format.value}"
    _write(as_yaml(document, head=HEAD.format(format=asked)), output)
    alerts = sum(isinstance(rule, Alert) for group in groups for rule in group.rules)
    _say(
        output, f"wrote {alerts} {'alert' if alerts == 1 else 'alerts'} to", _NEXT[format].format(file=output)
    )
    if "://" not in tuning.runbook_url:
        sys.stderr.write(
            f"midstream: the alerts link to {tuning.runbook_url or 'no page'}, which opens nowhere; "
            "say with --runbook-url URL where your copy of docs/runbook.md is\n"
        )
    return None


def _say(output: Path | None, what: str, then: str) -> None:
    """Say on standard error what is in the file, and what it is for."""
    if output is not None:
        sys.stderr.write(f"midstream: {what} {output}; {then}\n")


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    spare_databases(output)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritten(output, error) from error
