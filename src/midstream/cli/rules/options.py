"""The options of `midstream rules`, in groups, and the settings that they make."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from midstream.cli.common.plain_help import choices
from midstream.cli.rules.settings import pairs, read_settings, with_assignments
from midstream.monitoring.alerts import Naming


class RuleFormat(str, Enum):
    """The program that reads the rules."""

    PROMETHEUS = "prometheus"
    OPERATOR = "operator"
    GRAFANA = "grafana"


@dataclass(frozen=True, slots=True)
class SettingOptions:
    """What the rules are tuned with."""

    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings in YAML; --settings prints them all.", show_default=False
        ),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="One setting, or StreamFrozen.for=30s; * is every alert."
        ),
    ] = None
    selector: Annotated[
        str | None,
        typer.Option(
            metavar="MATCHERS",
            help='Only our metrics with these labels, as in job="app".',
            show_default=False,
        ),
    ] = None
    server_selector: Annotated[
        str | None,
        typer.Option(metavar="MATCHERS", help="Only engine metrics with these labels.", show_default=False),
    ] = None
    objective: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            help="Objective: the share of streams without a freeze. [99.5]",
            show_default=False,
        ),
    ] = None
    window: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Time range of most rules. [10m]", show_default=False),
    ] = None
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A label for every alert.", show_default=False),
    ] = None
    naming: Annotated[
        Naming | None,
        typer.Option(
            metavar=choices(Naming),
            help="How the server translates OpenTelemetry names. [prometheus]",
            show_default=False,
        ),
    ] = None
    expect_job: Annotated[
        list[str] | None,
        typer.Option(metavar="JOB", help="A job that always has traffic.", show_default=False),
    ] = None
    runbook_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address of your copy of docs/runbook.md. Without it the alerts have the file's name only.",
            show_default=False,
        ),
    ] = None
    dashboard_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Base URL of Grafana. Without it the alerts link to no dashboard.",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class AlertOptions:
    """Which alerts are rendered."""

    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ALERT", help="Only this alert; may be repeated.", show_default=False),
    ] = None
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="ALERT", help="All but this alert; may be repeated.", show_default=False),
    ] = None


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """What an operator's resource and Grafana's provisioning are called."""

    name: Annotated[str, typer.Option(metavar="NAME", help="operator: name of the resource.")] = "midstream"
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="operator: its namespace.", show_default=False)
    ] = None
    resource_label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="operator: a label by which it is selected.", show_default=False
        ),
    ] = None
    datasource: Annotated[str, typer.Option(metavar="UID", help="grafana: the data source.")] = "prometheus"
    folder: Annotated[str, typer.Option(metavar="NAME", help="grafana: the folder.")] = "midstream"


def settings_of(options: SettingOptions, alerts: AlertOptions) -> dict[str, Any]:
    """Return the settings that the options give, over those of the file. Raises CliError."""
    given = read_settings(options.config)
    single: dict[str, Any] = {
        "selector": options.selector,
        "server_selector": options.server_selector,
        "objective": options.objective,
        "window": options.window,
        "naming": options.naming,
        "runbook_url": options.runbook_url,
        "dashboard_url": options.dashboard_url,
        "expect_jobs": tuple(options.expect_job) if options.expect_job else None,
        "labels": {**given.get("labels", {}), **pairs(options.label, "--label")} if options.label else None,
    }
    given.update({key: value for key, value in single.items() if value is not None})
    given = with_assignments(given, options.set_ or ())
    for alert in alerts.without or ():
        given.setdefault("alerts", {}).setdefault(alert, {})["enabled"] = False
    for alert in alerts.only or ():
        given.setdefault("alerts", {}).setdefault("*", {})["enabled"] = False
        given["alerts"].setdefault(alert, {})["enabled"] = True
    return given
