"""What holds for every rule: it is explained, quiet without traffic, and made of what exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from midstream.engines import ENGINES
from midstream.monitoring.alerts import (
    Alert,
    Naming,
    Override,
    Record,
    Tuning,
    TuningError,
    build,
    flattened,
    tuning_of,
)
from midstream.monitoring.alerts.query import Query
from midstream.monitoring.alerts.render import as_yaml, grafana, prometheus, prometheus_rule
from midstream.telemetry.instruments import METRICS, prometheus_name
from monitoring.alerts.promtool import ours, run
from monitoring.alerts.test_edges import CASES
from real.programs import absent
from support.paths import ROOT

ALL = tuning_of({"expect_jobs": ["app"]})
RULES = [rule for group in build(ALL) for rule in group.rules]
ALERTS = [rule for rule in RULES if isinstance(rule, Alert)]
NAMES = sorted({alert.name for alert in ALERTS})
each_alert = pytest.mark.parametrize("name", NAMES)


@each_alert
def test_every_alert_is_tested_on_both_sides_of_its_edge(name: str) -> None:
    """At least one case in which it fires, and one in which it does not."""
    sides = {case.fired is not None for case in CASES if case.alert == name}

    assert sides == {True, False}


@each_alert
def test_every_alert_has_its_heading_in_the_runbook(name: str) -> None:
    """With all that one wants to know at night."""
    page = (ROOT / "docs" / "runbook.md").read_text()
    _, _, after = page.partition(f"\n## {name}\n")
    section = after.partition("\n## ")[0]

    for part in ("What it means.", "What users feel.", "How to confirm.", "First three things to do."):
        assert f"**{part}**" in section
    assert re.findall(r"^(\d)\. ", section, re.MULTILINE) == ["1", "2", "3"]


@each_alert
def test_every_page_of_the_runbook_leads_from_advice_over_a_change_to_a_proof(name: str) -> None:
    """The advice or the proof is a command of ours, and no page proposes what `advise flags` advises against."""
    page = (ROOT / "docs" / "runbook.md").read_text()
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d\. (\*\w+:\*) (.*)$", section, re.MULTILINE)

    assert [step for step, _ in steps] == ["*Advice:*", "*Change:*", "*Proof:*"]
    advice, change, proof = (text for _, text in steps)
    assert re.search(r"midstream (advise|probe|watch|report|rules)|count by|error_type", advice)
    assert "--watermark" not in change.replace("Not `--watermark`", "")
    if "midstream advise" in advice + change:
        assert re.search(r"`midstream (compare|advise)", proof)


def test_the_runbook_has_no_heading_without_an_alert() -> None:
    """It would be about something that no longer exists."""
    page = (ROOT / "docs" / "runbook.md").read_text()

    assert sorted(re.findall(r"^## (\w+)$", page, re.MULTILINE)) == NAMES


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"StreamMonitorSilent"}))
@pytest.mark.parametrize("value", ["0x60", "500x60"])
def test_no_alert_without_traffic(name: str, value: str, tmp_path: Path) -> None:
    """All counters and histograms there and standing still, all gauges at 0."""
    series = {}
    for metric in METRICS:
        plain = prometheus_name(metric)
        if metric.kind == "histogram":
            for bound in (*(metric.buckets or ()), "+Inf"):
                series[ours(f"{plain}_bucket", f'le="{bound}"')] = value
            series[ours(f"{plain}_count")] = value
        else:
            series[ours(plain, 'outcome="completed",finish_reason="stop"')] = (
                value if metric.kind == "counter" else "0x60"
            )
    for engine in (facts.series for facts in ENGINES.values() if facts.series is not None):
        labels = '{job="e",instance="i",model_name="m"}'
        series[engine.preemptions + labels] = "0x60" if engine.kind == "gauge" else value
        series |= {f"{one}{labels}": "0x60" for one in (engine.usage, engine.waiting, engine.running)}

    run(tmp_path, name, series, at="55m", fired=(), tuning=Tuning())


@each_alert
def test_no_alert_without_a_single_series(name: str, tmp_path: Path) -> None:
    """An empty server is no emergency, unless somebody said that it must not be empty."""
    run(tmp_path, name, {}, at="55m", fired=(), tuning=Tuning())


def test_the_rules_pass_promtools_own_check(tmp_path: Path) -> None:
    """Syntax, templates and duplicates."""
    promtool = shutil.which("promtool") or absent("promtool")
    (tmp_path / "rules.yml").write_text(as_yaml(prometheus(build(ALL), ALL)))

    checked = subprocess.run(
        [promtool, "check", "rules", str(tmp_path / "rules.yml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert (checked.returncode, f"SUCCESS: {len(RULES)} rules found" in checked.stdout) == (0, True), (
        checked.stderr
    )


def test_an_older_vmalert_reads_them_without_keep_firing_for(tmp_path: Path) -> None:
    """It knows no such field; one setting leaves it out everywhere."""
    vmalert = shutil.which("vmalert") or absent("vmalert")
    plain = tuning_of({"expect_jobs": ["app"], "alerts": {"*": {"keep_firing_for": "0s"}}})
    (tmp_path / "rules.yml").write_text(as_yaml(prometheus(build(plain), plain)))
    command = [vmalert, "-dryRun", f"-rule={tmp_path / 'rules.yml'}"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("naming", list(Naming), ids=lambda naming: naming.value)
def test_every_expression_is_promql_under_every_naming(naming: Naming) -> None:
    """Also for servers that no test here can run."""
    tuning = Tuning(naming=naming, expect_jobs=("app",))
    for group in (*build(tuning), *flattened(build(tuning))):
        for rule in group.rules:
            promql_parser.parse(rule.expr)


@pytest.mark.parametrize(
    ("naming", "expr", "who"),
    [
        (Naming.PROMETHEUS, "sum by (gen_ai_request_model) (stream_frozen) >= 1", "{{ $labels.gen_ai_request_model }}"),
        (Naming.WITHOUT_SUFFIXES, "sum by (gen_ai_request_model) (stream_frozen) >= 1",
         "{{ $labels.gen_ai_request_model }}"),
        (Naming.UTF8, 'sum by ("gen_ai.request.model") ({"stream.frozen"}) >= 1',
         '{{ index $labels "gen_ai.request.model" }}'),
        (Naming.UNTRANSLATED, 'sum by ("gen_ai.request.model") ({"stream.frozen"}) >= 1',
         '{{ index $labels "gen_ai.request.model" }}'),
    ],
)  # fmt: skip
def test_names_and_labels_are_as_the_server_writes_them(naming: Naming, expr: str, who: str) -> None:
    """In the expression as in the template."""
    tuning = Tuning(naming=naming, by=("gen_ai.request.model",))
    rules = prometheus(build(tuning), tuning)["groups"][1]["rules"]
    frozen = next(rule for rule in rules if rule["alert"] == "StreamFrozen")

    assert frozen["expr"] == expr
    assert f"model {who}" in frozen["annotations"]["description"]


@pytest.mark.parametrize(
    ("naming", "name"),
    [
        (Naming.PROMETHEUS, "stream_frozen_time_seconds_total"),
        (Naming.WITHOUT_SUFFIXES, "stream_frozen_time"),
        (Naming.UTF8, "stream.frozen_time_seconds_total"),
        (Naming.UNTRANSLATED, "stream.frozen_time"),
    ],
)
def test_suffixes_follow_the_strategy(naming: Naming, name: str) -> None:
    """Unit and `_total`, or neither."""
    metric = next(metric for metric in METRICS if metric.name == "stream.frozen_time")

    assert naming.metric(metric) == name


def test_recorded_names_are_level_metric_operation() -> None:
    """And each is recorded once."""
    names = [rule.name for rule in RULES if isinstance(rule, Record)]

    assert len(names) == len(set(names)) == 19
    for name in names:
        assert re.fullmatch(r"job_model_server:[a-z0-9_]+:(p\d\d_|ratio_)?(rate|increase)\d+[mhd]", name)


def test_a_threshold_that_no_bucket_has_is_refused() -> None:
    """A rule about it could never be right."""
    with pytest.raises(
        TuningError, match=r"^7 is not a bucket of stream\.max_gap; choose one of 0\.05, 0\.1, "
    ):
        build(Tuning(gap_p99_s=7.0))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"min_stream": 1}, "there is no setting min_stream; `midstream rules --settings` lists them"),
        ({"min_streams": "many"}, "min_streams cannot be 'many'; its default is 20"),
        ({"min_streams": 0}, "min_streams is 0; it must be a positive number"),
        ({"freeze_share": 5}, "freeze_share is 5; it is a share, such as 0.05 for 5 %"),
        ({"window": "ten minutes"}, "window: 'ten minutes' is not a duration; write it as 90s, 5m or 1h30m"),
        ({"window": "0s"}, "window is 0s; a window must have a length"),
        ({"objective": 100}, "objective is 100; give percent, such as 99.5"),
        ({"by": []}, "by is empty; name at least one label, such as job"),
        ({"alerts": {"StreamFrozen": {"after": "1m"}}},
         "StreamFrozen has no after; it has enabled, for, keep_firing_for, labels, severity"),
        ({"alerts": {"StreamFrozen": {"for": "soon"}}},
         "StreamFrozen.for: 'soon' is not a duration; write it as 90s, 5m or 1h30m"),
        ({"naming": "dotted"}, f"naming cannot be 'dotted'; its default is {Naming.PROMETHEUS!r}"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_named_with_its_remedy(given: dict[str, Any], sentence: str) -> None:
    """Before anything is rendered."""
    with pytest.raises(TuningError) as raised:
        tuning_of(given)

    assert str(raised.value) == sentence


def test_an_unknown_alert_is_named() -> None:
    """Not silently left as it was."""
    with pytest.raises(TuningError, match=r"^there is no alert StreamFroze; there are SglangCapTooLow, "):
        build(Tuning(alerts={"StreamFroze": Override(enabled=False)}))


def test_overrides_change_one_alert_or_all() -> None:
    """The nearer one wins; labels add up."""
    tuning = tuning_of(
        {
            "labels": {"team": "llm"},
            "alerts": {
                "*": {"for": "1s", "keep_firing_for": "0s"},
                "StreamFrozen": {"for": "3s", "severity": "critical", "labels": {"page": "yes"}},
                "StreamsMostlyFrozen": {"enabled": False},
            },
        }
    )
    rules = prometheus(build(tuning), tuning)["groups"][1]["rules"]

    assert [rule["alert"] for rule in rules][:2] == ["StreamFrozen", "StreamOpenGapLong"]
    assert (rules[0]["for"], rules[1]["for"]) == ("3s", "1s")
    assert "keep_firing_for" not in rules[0]
    assert rules[0]["labels"] == {"severity": "critical", "team": "llm", "page": "yes"}
    assert rules[1]["labels"] == {"severity": "warning", "team": "llm"}


def test_selectors_restrict_every_series() -> None:
    """Ours by one, the engines' by the other."""
    tuning = Tuning(selector='job="app"', server_selector='cluster="a"')
    query = Query(tuning.naming, tuning.by, selector=tuning.selector, server_selector=tuning.server_selector)
    build(tuning, query)

    for text, selected in query.selected.items():
        assert ('job="app"' if selected.metric else 'cluster="a"') in text


def test_the_operators_resource_holds_the_same_groups() -> None:
    """Under its spec, with the labels that it is selected by."""
    rendered = prometheus_rule(
        build(ALL), ALL, name="midstream", namespace="llm", labels={"release": "prometheus"}
    )

    assert {key: rendered[key] for key in ("apiVersion", "kind", "metadata")} == {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "midstream", "namespace": "llm", "labels": {"release": "prometheus"}},
    }
    assert rendered["spec"] == prometheus(build(ALL), ALL)


def test_grafanas_alerts_stand_on_their_own() -> None:
    """No recorded series, no NaN that fires, one uid each that Grafana accepts, and no data is fine."""
    rendered = grafana(build(ALL), ALL, datasource="mimir", folder="LLM")
    rules = [rule for group in rendered["groups"] for rule in group["rules"]]

    assert len(rules) == len(ALERTS) == len({rule["uid"] for rule in rules})
    for rule in rules:
        query, condition = rule["data"]
        assert re.fullmatch(r"[a-z0-9_-]{1,40}", rule["uid"])
        assert "job_model_server:" not in query["model"]["expr"]
        promql_parser.parse(query["model"]["expr"])
        assert (query["datasourceUid"], query["model"]["instant"]) == ("mimir", True)
        assert (condition["model"]["type"], condition["model"]["expression"]) == ("math", "is_number($A)")
        assert (rule["condition"], rule["noDataState"], rule["execErrState"]) == ("B", "OK", "Error")
        assert "$value " not in json.dumps(rule["annotations"])


def test_yaml_says_what_was_meant() -> None:
    """Blocks, quotes and all."""
    document = prometheus(build(ALL), ALL)

    assert yaml.safe_load(as_yaml(document, head="Rendered.\nTwice.")) == document
    assert as_yaml(document, head="Rendered.\nTwice.").startswith("# Rendered.\n# Twice.\ngroups:\n")
