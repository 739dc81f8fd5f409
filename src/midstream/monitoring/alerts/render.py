"""From rules to the documents that servers read. Each is a plain value; `as_yaml` writes it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from midstream.monitoring.alerts._build import flattened
from midstream.monitoring.alerts._duration import seconds
from midstream.monitoring.alerts._model import Alert, Group, Record
from midstream.monitoring.alerts._tuning import Tuning
from midstream.monitoring.alerts.query import label_value, who

_VARIABLES: Mapping[str, str] = {
    "job": "job",
    "gen_ai.request.model": "model",
    "server.address": "server",
    "model_name": "model",
    "instance": "instance",
}
"""Which variable of our dashboards a label sets."""


def prometheus(groups: Iterable[Group], tuning: Tuning) -> dict[str, Any]:
    """Return a Prometheus rule file, as Mimir, Thanos and vmalert read it too."""
    return {"groups": [_group(group, tuning) for group in groups]}


def prometheus_rule(
    groups: Iterable[Group], tuning: Tuning, *, name: str, namespace: str | None, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return a `PrometheusRule` for the Prometheus Operator; `labels` are those that it selects by."""
    metadata: dict[str, Any] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": prometheus(groups, tuning),
    }


def grafana(groups: Iterable[Group], tuning: Tuning, *, datasource: str, folder: str) -> dict[str, Any]:
    """Return file provisioning for Grafana-managed alerts. They need no recorded series."""
    return {
        "apiVersion": 1,
        "groups": [
            {
                "orgId": 1,
                "name": group.name,
                "folder": folder,
                "interval": group.interval or "1m",
                "rules": [
                    _grafana_rule(rule, tuning, datasource) for rule in group.rules if isinstance(rule, Alert)
                ],
            }
            for group in flattened(groups)
        ],
    }


def as_yaml(document: Mapping[str, Any], *, head: str = "") -> str:
    """Write a document as YAML, with expressions as blocks that can be read."""
    import yaml  # noqa: PLC0415 - of an extra, and only who writes files needs it

    class Dumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)  # lists stand inside what they belong to

    def string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, string)
    text: str = yaml.dump(document, Dumper=Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return "".join(f"# {line}\n" for line in head.splitlines()) + text


def _group(group: Group, tuning: Tuning) -> dict[str, Any]:
    rendered: dict[str, Any] = {"name": group.name}
    if group.interval:
        rendered["interval"] = group.interval
    rendered["rules"] = [
        {"record": rule.name, "expr": rule.expr} if isinstance(rule, Record) else _alert(rule, tuning)
        for rule in group.rules
    ]
    return rendered


def _alert(alert: Alert, tuning: Tuning) -> dict[str, Any]:
    rendered: dict[str, Any] = {"alert": alert.name, "expr": alert.expr}
    if seconds(alert.for_):
        rendered["for"] = alert.for_
    if seconds(alert.keep_firing_for):
        rendered["keep_firing_for"] = alert.keep_firing_for
    rendered["labels"] = {"severity": alert.severity, **alert.labels}
    rendered["annotations"] = texts(alert, tuning)
    return rendered


def texts(alert: Alert, tuning: Tuning, value: str = "$value") -> dict[str, str]:
    """Return the annotations of an alert, as templates; `value` is the template's name for the result."""
    by = alert.by or tuning.by
    words = {
        "[who]": f"Affected: {who(by, tuning.naming)}",
        "[value]": f'{{{{ printf "%.0f" {value} }}}}',
        "[percent]": f"{{{{ {value} | humanizePercentage }}}}",
        "[seconds]": f"{{{{ {value} | humanizeDuration }}}}",
    }
    description = alert.description
    for word, template in words.items():
        description = description.replace(word, template)
    return {
        "summary": alert.summary,
        "description": description,
        "runbook_url": f"{tuning.runbook_url}#{alert.name.lower()}",
        **(
            {
                "dashboard_url": f"{tuning.dashboard_url.rstrip('/')}/d/{alert.dashboard}{_variables(by, tuning)}"
            }
            if tuning.dashboard_url
            else {}
        ),
    }


def _variables(by: tuple[str, ...], tuning: Tuning) -> str:
    """Open the dashboard on what the alert is about."""
    set_ = (
        f"var-{_VARIABLES[one]}={{{{ {label_value(tuning.naming.label(one))} | urlquery }}}}"
        for one in by
        if one in _VARIABLES
    )
    query = "&".join(set_)
    return f"?{query}" if query else ""


def _uid(name: str) -> str:
    """Shorten a name to the 40 characters that Grafana allows, and keep it unique."""
    if len(name) <= 40:
        return re.sub(r"[^a-z0-9_-]", "-", name)
    return f"{re.sub(r'[^a-z0-9_-]', '-', name[:31])}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _grafana_rule(alert: Alert, tuning: Tuning, datasource: str) -> dict[str, Any]:
    about = texts(alert, tuning, "$values.A.Value")
    variant = "-".join(
        value.lower() for name, value in alert.labels.items() if name in ("long", "engine", "job")
    )
    rule: dict[str, Any] = {
        # Stable, so that provisioning again updates and does not add.
        "uid": _uid(f"ms-{alert.name.lower()}{f'-{variant}' if variant else ''}"),
        "title": f"{alert.name} {variant}".strip(),
        "condition": "B",
        "data": [
            {
                "refId": "A",
                "relativeTimeRange": {"from": 600, "to": 0},
                "datasourceUid": datasource,
                "model": {"refId": "A", "expr": alert.expr, "instant": True, "range": False},
            },
            {
                # The query gives a result only when it fires. A NaN is not one.
                "refId": "B",
                "relativeTimeRange": {"from": 0, "to": 0},
                "datasourceUid": "__expr__",
                "model": {"refId": "B", "type": "math", "expression": "is_number($A)"},
            },
        ],
        "dashboardUid": alert.dashboard,
        "panelId": 1,
        "noDataState": "OK",
        "execErrState": "Error",
        "for": alert.for_,
        "annotations": about,
        "labels": {"severity": alert.severity, **alert.labels},
    }
    if seconds(alert.keep_firing_for):
        rule["keepFiringFor"] = alert.keep_firing_for
    return rule
