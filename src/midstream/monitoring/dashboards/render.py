"""From panels to Grafana's JSON, in the classic schema that Grafana 10 to 13 load."""

from __future__ import annotations

import json
from typing import Any

from midstream.engines import ENGINES
from midstream.monitoring.dashboards._model import Dashboard, Panel, Row, Target, Variable

SCHEMA_VERSION = 39
"""Grafana 10's; later ones migrate it when they load it."""
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "midstream"


def as_json(dashboard: Dashboard) -> str:
    """Write a dashboard as the file that Grafana imports or provisions."""
    return json.dumps(grafana(dashboard), indent=2) + "\n"


def grafana(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard in Grafana's classic model."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [TAG, "llm"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": [_alerts()]},
        "links": [
            {
                "title": "midstream",
                "type": "dashboards",
                "tags": [TAG],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "icon": "dashboard",
                "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "panels": _laid_out(dashboard.rows),
    }


def _alerts() -> dict[str, Any]:
    observed = [facts.key for facts in ENGINES.values() if facts.series is not None]
    families = ["Stream.*", *(f"{key.capitalize()}.*" for key in observed)]
    return {
        "name": "Alerts",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": f'ALERTS{{alertname=~"{"|".join(families)}", alertstate="firing"}}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{severity}} {{gen_ai_request_model}} {{server_address}}",
        "step": "30s",
    }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data Source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "refresh": 1,
        "regex": "",
        "multi": False,
        "includeAll": False,
    }


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.source}, {variable.of})"
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        # A label that is absent is a choice, too; a job never is.
        "allValue": ".+" if variable.of == "job" else ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "regex": "",
    }


def _laid_out(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        grid = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": grid,
                "panels": [],
            }
        )
        top += 1
        left, height = 0, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, height = top + height, 0, 0
            grid = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            panels.append({"id": len(panels) + 1, **_panel(panel), "gridPos": grid})
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return panels


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "noValue": "No traffic", "min": 0}
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    if panel.steps:
        defaults["thresholds"] = {
            "mode": "absolute",
            "steps": [{"color": "green", "value": None}, *({"color": c, "value": v} for v, c in panel.steps)],
        }
        defaults["color"] = {"mode": "thresholds"} if panel.kind == "stat" else {"mode": "palette-classic"}
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 10,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none"},
        }
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": [_target(panel, target, number) for number, target in enumerate(panel.targets)],
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    if panel.kind == "heatmap":
        return {
            "calculate": False,
            "color": {"mode": "scheme", "scheme": "Oranges", "scale": "exponential", "exponent": 0.5},
            "yAxis": {"unit": panel.unit},
            "cellGap": 1,
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "tooltip": {"mode": "single", "yHistogram": True},
        }
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _target(panel: Panel, target: Target, number: int) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + number),
        "datasource": DATASOURCE,
        "expr": target.expr,
        "legendFormat": target.legend,
        "format": "heatmap" if panel.kind == "heatmap" else "time_series",
        "instant": False,
        "range": True,
        "exemplar": target.exemplars,
    }
