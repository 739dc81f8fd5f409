"""Prometheus' own tool for rules, and the series that a real scrape gives it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from midstream.monitoring.alerts import Alert, Record, Tuning, build
from midstream.monitoring.alerts.render import prometheus
from real.programs import absent

SCRAPED = (
    'job="app",instance="10.0.0.1:9464",gen_ai_operation_name="chat",gen_ai_provider_name="openai",'
    'gen_ai_request_model="Qwen/Qwen3-8B",server_address="gpu-1",server_port="8000",'
    'otel_scope_name="midstream",otel_scope_version="0.1.0",otel_scope_schema_url=""'
)
"""The labels of every series of ours, as a scrape of `midstream.setup(prometheus=...)` has them."""

OURS = {
    "job": "app",
    "gen_ai_request_model": "Qwen/Qwen3-8B",
    "server_address": "gpu-1",
    "server_port": "8000",
}
"""The labels of an alert about streams."""

Series = Mapping[str, str]
"""Values by series, in promtool's notation: a+bxn is a, then n times b more; one value a minute."""


def ours(name: str, labels: str = "") -> str:
    """Name a series of ours as it is scraped."""
    return f"{name}{{{SCRAPED}{',' if labels else ''}{labels}}}"


def ended(outcome: str, finish_reason: str = "none") -> str:
    """Name the counter of streams that ended so."""
    return ours("stream_ended_total", f'outcome="{outcome}",finish_reason="{finish_reason}"')


def histogram(name: str, **buckets: str) -> dict[str, str]:
    """Name a histogram's series: `le_10="..."` is a bucket as scraped, `inf` is all of them."""
    bounds = {key: key.removeprefix("le_").replace("_", ".") for key in buckets if key != "inf"}
    series = {ours(f"{name}_bucket", f'le="{bound}"'): buckets[key] for key, bound in bounds.items()}
    return {
        **series,
        ours(f"{name}_bucket", 'le="+Inf"'): buckets["inf"],
        ours(f"{name}_count"): buckets["inf"],
    }


@dataclass(frozen=True)
class Fired:
    """What an alert says when it fires."""

    severity: str
    summary: str
    description: str
    dashboard: str
    labels: Mapping[str, str] = field(default_factory=lambda: OURS)
    more: Mapping[str, str] = field(default_factory=dict)


def run(
    home: Path,
    alert: str,
    series: Series,
    *,
    at: str,
    fired: tuple[Fired, ...],
    tuning: Tuning,
    interval: str = "1m",
) -> None:
    """Evaluate the rules over these series, and fail unless what `alert` then says is exactly `fired`."""
    promtool = shutil.which("promtool") or absent("promtool")
    expected = [
        {
            "exp_labels": {**one.labels, "severity": one.severity, **one.more},
            "exp_annotations": {
                "summary": one.summary,
                "description": one.description,
                "runbook_url": f"docs/runbook.md#{alert.lower()}",
                **(
                    {"dashboard_url": f"{tuning.dashboard_url}/d/{one.dashboard}"}
                    if tuning.dashboard_url
                    else {}
                ),
            },
        }
        for one in fired
    ]
    test = {
        "interval": interval,
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": expected}],
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": interval, "tests": [test]}
    # All JSON is YAML. Of the other alerts nothing is asked, and without them a week passes in no time.
    groups = [
        dataclasses.replace(group, rules=tuple(rule for rule in group.rules if _belongs(rule, alert)))
        for group in build(tuning)
    ]
    (home / "rules.yml").write_text(json.dumps(prometheus(groups, tuning)))
    (home / "test.yml").write_text(json.dumps(document))
    command = [promtool, "test", "rules", str(home / "test.yml")]
    tested = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def _belongs(rule: Record | Alert, alert: str) -> bool:
    return rule.name == alert or (isinstance(rule, Record) and alert == "StreamFreezeBudgetBurn")
