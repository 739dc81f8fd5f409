"""What every rule does when the traffic ends, and on the first day of a server or of Prometheus."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from midstream.engines import ENGINES
from midstream.monitoring.alerts import Alert, Tuning, build
from midstream.monitoring.alerts.render import prometheus
from midstream.telemetry.instruments import METRICS, prometheus_name
from monitoring.alerts.cases_engines import SGLANG, TRTLLM, VLLM
from monitoring.alerts.promtool import ended, histogram, ours
from real.programs import absent

ABOUT_MISSING_TRAFFIC = {"StreamTrafficStopped", "StreamMonitorSilent"}
"""These rules are to fire when the traffic ends; test_edges has their cases."""
NAMES = sorted(
    {rule.name for group in build(Tuning()) for rule in group.rules if isinstance(rule, Alert)}
    - ABOUT_MISSING_TRAFFIC
)
STOP_AT = 90
LABELS = {"VllmPreemptions": VLLM, "SglangRetractions": SGLANG, "TrtllmPausedRequests": TRTLLM}
SERIES = [facts.series for facts in ENGINES.values() if facts.series is not None]


def firing(
    home: Path, series: dict[str, str], at: list[str], only: Collection[str] | None = None
) -> dict[str, list[str]]:
    """Evaluate all rules, or some only, over these series, and return which alerts fire at each of these times."""
    promtool = shutil.which("promtool") or absent("promtool")
    groups = [
        replace(
            group,
            rules=tuple(
                rule
                for rule in group.rules
                if not isinstance(rule, Alert) or only is None or rule.name in only
            ),
        )
        for group in build(Tuning())
    ]
    (home / "rules.yml").write_text(json.dumps(prometheus(groups, Tuning())))
    # promtool prints what it got where that is not what was expected: so nothing is expected.
    count = 'count by (alertname) (ALERTS{alertstate="firing"})'
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": f'label_replace({count}, "at", "{when}", "", "")', "eval_time": when, "exp_samples": []}
            for when in at
        ],
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (home / "test.yml").write_text(json.dumps(document))
    tested = subprocess.run(
        [promtool, "test", "rules", str(home / "test.yml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    printed = tested.stdout + tested.stderr
    assert "SUCCESS" in printed or "exp_samples" in printed or "got:" in printed, printed
    return {when: [name for name in NAMES if f'alertname="{name}", at="{when}"' in printed] for when in at}


def everything_wrong(after: str) -> dict[str, str]:
    """Ninety minutes of traffic in which every rule fires, then `after`: values that stand still, or no series."""

    def then(pattern: str, last: float | None = None) -> str:
        if after == "vanished":
            return f"{pattern} stale"
        return f"{pattern} {last:g}x60" if last is not None else pattern

    def counter(per_minute: float) -> str:
        return then(f"0+{per_minute:g}x{STOP_AT}", per_minute * STOP_AT)

    def gauge(value: float) -> str:
        return then(f"{value:g}x{STOP_AT}", 0)

    def slow(name: str, bound: str, past: str) -> dict[str, str]:
        # All samples lie between `bound` and the next bound.
        return histogram(name, **{bound: counter(0), past: counter(20), "inf": counter(20)})

    outcomes = {"no_finish": 2, "error": 2, "timeout": 2, "empty": 2}
    series = {
        **slow("stream_max_gap_seconds", "le_5_0", "le_60_0"),
        ours("stream_max_gap_seconds_bucket", 'le="10.0"'): counter(0),
        **slow("stream_time_to_first_content_seconds", "le_10_0", "le_60_0"),
        **slow("stream_tail_seconds", "le_10_0", "le_60_0"),
        **slow("stream_limit_used_ratio", "le_0_02", "le_0_05"),
        ended("completed", "stop"): counter(10),
        ended("completed", "length"): counter(5),
        **{ended(outcome): counter(count) for outcome, count in outcomes.items()},
        'stream_ended_total{job="app",instance="10.0.0.1:9464",otel_metric_overflow="true"}': counter(1),
        ours("stream_limit_hits_total"): counter(8),
        ours("stream_usage_missing_total"): counter(8),
        ours("stream_buffered_total"): counter(10),
        ours("stream_freezes_total"): counter(5),
        ours("stream_hidden_freezes_total"): counter(5),
        ours("stream_stall_timeouts_total"): counter(5),
        ours("stream_frozen"): gauge(5),
        ours("stream_active"): gauge(10),
        ours("stream_open_gap_seconds"): gauge(90),
    }
    for engine in SERIES:
        labels = f"{{{LABELS[engine.alert]}}}"
        series[f"{engine.preemptions}{labels}"] = gauge(2) if engine.kind == "gauge" else counter(2)
        series[f"{engine.usage}{labels}"] = gauge(0.4)
        series[f"{engine.running}{labels}"] = gauge(3)
        series[f"{engine.waiting}{labels}"] = then(f"0+1x{STOP_AT}", 0)
    return series


@pytest.mark.parametrize("after", ["standing still", "vanished"])
def test_every_rule_is_silent_soon_after_the_traffic_ends(after: str, tmp_path: Path) -> None:
    """All fire while there is traffic (the first day's baseline keeps one silent), none eight minutes after it.

    Two rules look back on hours or a day, and allow a longer lull: the slow paces of the budget a quarter of an hour,
    that about the size of max_tokens ten minutes.
    """
    series = everything_wrong(after)

    found = firing(tmp_path, series, [f"{STOP_AT + late}m" for late in (0, 8, 14, 20)])

    during, after_8, after_14, after_20 = found.values()
    assert sorted(set(NAMES) - set(during)) == ["StreamFreezesRising"]
    assert set(after_8) <= {"StreamFreezeBudgetBurn", "StreamLimitOversized"}
    assert set(after_14) <= {"StreamFreezeBudgetBurn"}
    assert after_20 == []


@pytest.mark.parametrize("after", ["standing still", "vanished"])
def test_no_critical_burn_outlives_the_traffic(after: str, tmp_path: Path) -> None:
    """What wakes somebody is silent after eight minutes, too."""
    promtool = shutil.which("promtool") or absent("promtool")
    groups = build(Tuning())
    kept = [group for group in groups if group.name == "midstream-objective"]
    (tmp_path / "rules.yml").write_text(json.dumps(prometheus(kept, Tuning())))
    query = 'count(ALERTS{alertstate="firing", severity="critical"}) or vector(0)'
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": v} for name, v in everything_wrong(after).items()],
            "promql_expr_test": [
                {"expr": query, "eval_time": f"{when}m", "exp_samples": [{"labels": "{}", "value": value}]}
                for when, value in ((STOP_AT, 2), (STOP_AT + 8, 0), (STOP_AT + 14, 0))
            ],
        }
    ]
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yml").write_text(json.dumps(document))

    tested = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "test.yml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_freezes_that_rise_are_forgotten_when_the_traffic_ends(tmp_path: Path) -> None:
    """The one rule that needs a yesterday, with one."""
    day = 1500
    series = {
        ours("stream_freezes_total"): f"0x{day} 0+5x{STOP_AT} 450x60",
        ended("completed", "stop"): f"0+10x{day + STOP_AT} {10 * (day + STOP_AT)}x60",
        ours("stream_active"): f"3x{day + STOP_AT} 0x60",
    }

    found = firing(
        tmp_path, series, [f"{day + STOP_AT}m", f"{day + STOP_AT + 8}m"], only=["StreamFreezesRising"]
    )

    during, after = found.values()
    assert "StreamFreezesRising" in during
    assert after == []


def test_no_rule_fires_on_a_healthy_first_day(tmp_path: Path) -> None:
    """Prometheus is new and the servers are old: every count appears with what it had, and traffic is healthy."""
    appears = "_x10 5000x240"
    growing = "_x10 5000+20x240"
    series: dict[str, str] = {}
    for metric in METRICS:
        name = prometheus_name(metric)
        if metric.kind == "histogram":
            # All samples are small but those of the limit's use, which lie between 0.3 and 0.4.
            bounds = metric.buckets or ()
            low = 0.4 if name == "stream_limit_used_ratio" else bounds[3]
            for bound in bounds:
                series[ours(f"{name}_bucket", f'le="{bound}"')] = growing if bound >= low else appears
            series[ours(f"{name}_bucket", 'le="+Inf"')] = growing
            series[ours(f"{name}_count")] = growing
        elif name == "stream_ended_total":
            series[ended("completed", "stop")] = growing
            for outcome in ("no_finish", "error", "timeout", "empty"):
                series[ended(outcome)] = appears
        else:
            series[ours(name)] = appears if metric.kind == "counter" else "_x10 0x240"
    series[ours("stream_active")] = "_x10 10x240"
    for engine in SERIES:
        labels = f"{{{LABELS[engine.alert]}}}"
        series[f"{engine.preemptions}{labels}"] = "_x10 0x240" if engine.kind == "gauge" else "_x10 500x240"
        series[f"{engine.usage}{labels}"] = "_x10 0.4x240"
        series[f"{engine.running}{labels}"] = "_x10 3x240"
        # The queue of a server that has just started grows, before it has any usual length.
        series[f"{engine.waiting}{labels}"] = "_x10 0+1x40 1x200"

    found = firing(tmp_path, series, ["11m", "15m", "40m", "80m", "240m"])

    assert found == {"11m": [], "15m": [], "40m": [], "80m": [], "240m": []}


def test_what_fires_is_read_from_promtools_output(tmp_path: Path) -> None:
    """The tests above can fail: one frozen stream is found, and nothing else."""
    assert firing(tmp_path, {ours("stream_frozen"): "1x10"}, ["5m"]) == {"5m": ["StreamFrozen"]}
