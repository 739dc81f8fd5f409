"""`midstream rules`: renders the alert rules, and checks which of them have data on a server."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from midstream.cli.common.errors import CliError, spare_databases, unwritten
from midstream.cli.common.option_groups import with_option_groups
from midstream.cli.common.plain_help import choices
from midstream.cli.rules.check import check_on
from midstream.cli.rules.options import (
    AlertOptions,
    ResourceOptions,
    RuleFormat,
    SettingOptions,
    settings_of,
)
from midstream.cli.rules.settings import explained, pairs
from midstream.monitoring.alerts import Alert, Tuning, TuningError, build, tuning_of
from midstream.monitoring.alerts.render import as_yaml, grafana, prometheus, prometheus_rule

HEAD = "Rendered by `midstream rules{format}`: change the settings and render again, do not edit."

_NEXT: Mapping[RuleFormat, str] = MappingProxyType(
    {
        RuleFormat.PROMETHEUS: "name it under rule_files in prometheus.yml, and reload Prometheus",
        RuleFormat.OPERATOR: "apply it: kubectl apply -f {file}",
        RuleFormat.GRAFANA: "put it into provisioning/alerting of Grafana, and restart Grafana",
    }
)
"""What to do with a file of rules."""


@with_option_groups
def rules(
    *,
    format: Annotated[  # noqa: A002 - the option's name
        RuleFormat,
        typer.Option(
            metavar=choices(RuleFormat),
            help="prometheus: a rule file, also for Mimir, Thanos and vmalert; operator: a PrometheusRule.",
        ),
    ] = RuleFormat.PROMETHEUS,
    setting: SettingOptions,
    alert: AlertOptions,
    resource: ResourceOptions,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write.", show_default=False),
    ] = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="Print every setting with its reason, as a file for --config.")
    ] = False,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Check which rules have data on this Prometheus.", show_default=False
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
    midstream rules --check http://localhost:9090       which rules have no data, and why
    """
    try:
        tuning = tuning_of(settings_of(setting, alert))
        groups = build(tuning)
    except TuningError as error:
        raise CliError(str(error)) from error
    if check is not None:
        return check_on(check, tuning)
    if settings:
        _write(explained(tuning), output)
        _report(
            output, "wrote every setting to", f"change any of them, then: midstream rules --config {output}"
        )
        return None
    asked = "" if format is RuleFormat.PROMETHEUS else f" --format {format.value}"
    document = _document(format, groups, tuning, resource)
    _write(as_yaml(document, head=HEAD.format(format=asked)), output)
    _report_rules(groups, tuning, output, format)
    return None


def _document(
    format: RuleFormat,  # noqa: A002 - as the option
    groups: Sequence[Any],
    tuning: Tuning,
    resource: ResourceOptions,
) -> Any:
    """Return the rules in a format."""
    if format is RuleFormat.OPERATOR:
        labels = pairs(resource.resource_label or (), "--resource-label")
        return prometheus_rule(
            groups, tuning, name=resource.name, namespace=resource.namespace, labels=labels
        )
    if format is RuleFormat.GRAFANA:
        return grafana(groups, tuning, datasource=resource.datasource, folder=resource.folder)
    return prometheus(groups, tuning)


def _report_rules(
    groups: Sequence[Any],
    tuning: Tuning,
    output: Path | None,
    format: RuleFormat,  # noqa: A002 - as the option
) -> None:
    """Print what was written, and what is missing for links that work."""
    alerts = sum(isinstance(rule, Alert) for group in groups for rule in group.rules)
    noun = "alert" if alerts == 1 else "alerts"
    _report(output, f"wrote {alerts} {noun} to", _NEXT[format].format(file=output))
    if "://" not in tuning.runbook_url:
        sys.stderr.write(
            f"midstream: the alerts link to {tuning.runbook_url or 'no page'}, which is not a working link; "
            "give the address of your copy of docs/runbook.md with --runbook-url URL\n"
        )


def _report(output: Path | None, what: str, then: str) -> None:
    """Print on standard error what is in the file, and what it is for."""
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
