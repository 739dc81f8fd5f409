"""`midstream rules`: what it prints, what it refuses, and what it finds on a server."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import promql_parser
import pytest
import yaml

from midstream.cli import main
from midstream.monitoring.alerts import Naming, Tuning
from midstream.monitoring.alerts.check import Finding, check
from real.programs import absent
from support.paths import ROOT


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("midstream.rules.yml", []),
        ("midstream.prometheusrule.yml", ["--format", "operator"]),
        ("midstream.grafana-alerts.yml", ["--format", "grafana"]),
    ],
)
def test_the_committed_rules_are_fresh(
    file: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Render again with: midstream rules -o monitoring/midstream.rules.yml, and so on."""
    assert main(["rules", *options]) == 0

    assert capsys.readouterr().out == (ROOT / "monitoring" / file).read_text()


def test_options_become_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """Those with a name of their own, and those without."""
    options = [
        "--selector",
        'job="app"',
        "--label",
        "team=llm",
        "--set",
        "frozen_streams=3",
        "--set",
        "*.for=2s",
    ]
    assert (
        main(["rules", *options, "--only", "StreamFrozen", "--runbook-url", "https://wiki.example/rb"]) == 0
    )
    (group,) = yaml.safe_load(capsys.readouterr().out)["groups"][-1:]
    (rule,) = group["rules"]

    assert rule["expr"] == (
        'sum by (job, gen_ai_request_model, server_address, server_port) (stream_frozen{job="app"}) >= 3'
    )
    assert (rule["for"], rule["labels"]) == ("2s", {"severity": "warning", "team": "llm"})
    assert rule["annotations"]["runbook_url"] == "https://wiki.example/rb#streamfrozen"


@pytest.mark.parametrize(
    "selector",
    [
        "",
        'job="app"',
        "job='app'",
        'job=~"a|b", namespace!="x\\"y",',
        '"service.name"!~"a.*"',
        "job=`a`",
    ],
)
def test_a_list_of_matchers_is_taken_as_prometheus_takes_it(
    selector: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In every way in which they may be written."""
    assert main(["rules", "--only", "StreamFrozen", "--selector", selector]) == 0
    (group,) = yaml.safe_load(capsys.readouterr().out)["groups"][-1:]
    assert f"stream_frozen{{{selector}}}" in group["rules"][0]["expr"] or not selector
    promql_parser.parse(group["rules"][0]["expr"])


def test_only_one_alert_brings_only_what_it_reads(capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded series included."""
    assert main(["rules", "--only", "StreamFreezeBudgetBurn"]) == 0
    (group,) = yaml.safe_load(capsys.readouterr().out)["groups"]

    assert len([rule for rule in group["rules"] if "record" in rule]) == 11
    assert {rule["alert"] for rule in group["rules"] if "alert" in rule} == {"StreamFreezeBudgetBurn"}


def test_the_settings_are_a_file_that_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever starts from it starts from the defaults."""
    file = tmp_path / "rules.yml"
    assert main(["rules", "--settings", "-o", str(file)]) == 0
    assert main(["rules", "--config", str(file)]) == 0

    assert capsys.readouterr().out == (ROOT / "monitoring" / "midstream.rules.yml").read_text()


def test_alerts_link_to_a_dashboard_only_where_grafana_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    """No link is better than one to the reader's own machine."""
    assert main(["rules"]) == 0
    assert "dashboard_url" not in capsys.readouterr().out

    assert main(["rules", "--only", "StreamFrozen", "--dashboard-url", "https://grafana.example/"]) == 0
    (rule,) = yaml.safe_load(capsys.readouterr().out)["groups"][-1]["rules"]
    assert rule["annotations"]["dashboard_url"].startswith(
        "https://grafana.example/d/midstream-streams?var-job="
    )


def test_rows_of_the_check_differ_where_alerts_share_a_name() -> None:
    """Four paces of the budget, and one alert for each engine whose preemptions may go with freezes."""
    titles = [finding.title for finding in check(Tuning(labels={"team": "llm"}), lambda _: 1)]

    assert len(set(titles)) == len(titles)
    assert "StreamFreezeBudgetBurn (long=6h, short=30m)" in titles
    assert "StreamFreezesFromEviction (engine=vllm)" in titles
    assert "StreamFrozen" in titles


def test_a_file_and_an_option_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The option wins where both say something."""
    file = tmp_path / "rules.yml"
    file.write_text("gap_p99_s: 20\nmin_streams: 50\nalerts: {StreamMaxGapP99High: {severity: critical}}\n")
    assert (
        main(["rules", "--config", str(file), "--set", "min_streams=9", "--only", "StreamMaxGapP99High"]) == 0
    )
    (rule,) = yaml.safe_load(capsys.readouterr().out)["groups"][-1]["rules"]

    assert rule["expr"].endswith(") >= 9")
    assert "> 20\n" in rule["expr"]
    assert rule["labels"]["severity"] == "critical"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--set", "frozen"], "'frozen' is not NAME=VALUE; write it as --set min_streams=50"),
        (
            ["--set", "StreamFrozen.color=red"],
            "an alert has no color; it has enabled, for, keep_firing_for, severity",
        ),
        (["-o", "."], "the file to write has no name; give it one\n"),
        (["-o", "/dev"], "/dev is a folder; name a file in it\n"),
        (
            ["-o", "/dev/full"],
            "/dev/full cannot be written: No space left on device; make room, or name another file\n",
        ),
        (["--config", "/dev"], "/dev is a folder; name a file in it\n"),
        (
            ["--selector", "job=app"],
            'selector is job=app, which is no list of matchers such as job="app"; in a shell, put single quotes',
        ),
        (
            ["--server-selector", '{a="b"}'],
            'server_selector is {a="b"}, which is no list of matchers such as ',
        ),
        (["--label", "team"], "'team' is not NAME=VALUE; write it as --label team=llm"),
        (
            ["--config", "/nowhere.yml"],
            "there is no file /nowhere.yml; `midstream rules --settings` prints one",
        ),
        (
            ["--set", "gap_p99_s=7"],
            "7 is not a bucket of stream.max_gap; choose one of 0.05, 0.1, 0.25, 0.5, 1, 2, 5,",
        ),
        (["--only", "Nothing"], "there is no alert Nothing; there are SglangCapTooLow"),
        (
            ["-o", "/nowhere/rules.yml"],
            "there is no folder /nowhere; make it, or name another file than /nowhere/rules.yml\n",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the remedy, and without a traceback."""
    assert main(["rules", *options]) == 1
    assert capsys.readouterr().err.startswith(f"midstream: {sentence}")


def test_a_file_that_is_not_yaml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Is named, with what is wrong."""
    file = tmp_path / "rules.yml"
    file.write_text("a: [")
    assert main(["rules", "--config", str(file)]) == 1
    assert capsys.readouterr().err.startswith(f"midstream: {file} is not YAML: ")


def server_with(*series: str) -> Callable[[str], int]:
    """A server that has just these, asked as the check asks."""
    return lambda expr: sum(expr in {f"count({one})", f'count({{__name__="{one}"}})'} for one in series)


def found(tuning: Tuning, alert: str, *series: str) -> Finding:
    """What the check says of one alert there."""
    return next(one for one in check(tuning, server_with(*series)) if one.alert == alert)


UNSEEN = "no series stream_frozen: it appears when the first stream opens; is an application with midstream scraped?"
BUCKET = 'stream_max_gap_seconds_bucket{le=~"5|5.0"}'


@pytest.mark.parametrize(
    ("alert", "series", "reasons"),
    [
        ("StreamFrozen", ["stream_frozen"], ()),
        ("StreamFrozen", [], (UNSEEN,)),
        ("StreamHiddenFreezes", ["stream_hidden_freezes"], (
            "this server calls it stream_hidden_freezes: render with --naming without-suffixes",)),
        ("StreamHiddenFreezes", ["stream.hidden_freezes_total"], (
            "this server calls it stream.hidden_freezes_total: render with --naming utf8",)),
        ("StreamFreezeShareHigh", [BUCKET, "stream_max_gap_seconds_count"], ()),
        ("StreamFreezeShareHigh", ["stream_max_gap_seconds_bucket", "stream_max_gap_seconds_count"], (
            'stream_max_gap_seconds_bucket has no bucket le=~"5|5.0": a View of the application changed them',)),
        ("StreamFreezeShareHigh", ["stream_max_gap_seconds"], (
            "stream_max_gap_seconds is stored as a native histogram; these rules need classic buckets",)),
        ("StreamLabelsOverflow", ["stream_ended_total"], ()),
        ("StreamErrorShareHigh", ["stream_ended_total"], (
            'stream_ended_total is there, but nothing matches {outcome="error"}',)),
        ("VllmPreemptions", [], ("no metrics of vLLM: scrape its /metrics if you run it",)),
        ("VllmPreemptions", ["vllm:num_requests_running"], (
            "no series vllm:num_preemptions_total, though others of vLLM are there: its version names it otherwise",)),
        ("SglangRetractions", ["sglang:num_running_reqs"], ()),
    ],
)  # fmt: skip
def test_the_check_says_why_there_is_no_data(alert: str, series: list[str], reasons: tuple[str, ...]) -> None:
    """Which of the ways to have none it is."""
    assert found(Tuning(), alert, *series).reasons == reasons


def test_the_check_knows_the_naming_that_was_asked_for() -> None:
    """And what the default would have found."""
    finding = found(
        Tuning(naming=Naming.WITHOUT_SUFFIXES), "StreamHiddenFreezes", "stream_hidden_freezes_total"
    )

    assert finding.reasons == (
        "this server calls it stream_hidden_freezes_total: render with --naming prometheus",
    )


@contextmanager
def answering(body: str, status: int = 200) -> Iterator[str]:
    """A server that says one thing to everybody."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ("<html>", 200, "does not answer as a Prometheus does; give the address of one"),
        ("{}", 200, "does not answer as a Prometheus does; give the address of one"),
        (
            '{"status": "error", "error": "limit of 5 queries"}',
            429,
            "answers 429 (limit of 5 queries): it is too busy; ask again",
        ),
        (
            '{"status": "error", "error": "1:25: parse error"}',
            400,
            "cannot evaluate a query of the rules (1:25: parse error); see the settings that are in it",
        ),
        ("", 404, "answers 404 to /api/v1: give the path before it, too"),
    ],
)
def test_what_is_no_prometheus_is_said_so(
    body: str, status: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one sentence."""
    with answering(body, status) as url:
        assert main(["rules", "--check", url]) == 1
    assert capsys.readouterr().err.startswith(f"midstream: {url} {sentence}")


@pytest.mark.parametrize(
    ("count", "status", "line"), [("1", 0, "34 of 34 rules have data"), (None, 1, "0 of 34 rules have data")]
)
def test_the_check_ends_as_its_findings(
    count: str | None, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 if a rule about streams has no data."""
    result = [] if count is None else [{"metric": {}, "value": [0, count]}]
    with answering(json.dumps({"data": {"result": result}})) as url:
        assert main(["rules", "--check", url]) == status
    assert line in capsys.readouterr().out


RUNBOOK = ("--runbook-url", "https://wiki.example/rb")
RELATIVE = (
    "midstream: the alerts link to docs/runbook.md, which is not a working link; "
    "give the address of your copy of docs/runbook.md with --runbook-url URL\n"
)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            RUNBOOK,
            "wrote 34 alerts to {}; name it under rule_files in prometheus.yml, and reload Prometheus\n",
        ),
        ((*RUNBOOK, "--format", "operator"), "wrote 34 alerts to {0}; apply it: kubectl apply -f {0}\n"),
        (
            (*RUNBOOK, "--format", "grafana", "--only", "StreamFrozen"),
            "wrote 1 alert to {}; put it into provisioning/alerting of Grafana, and restart Grafana\n",
        ),
        (
            ("--settings",),
            "wrote every setting to {0}; change any of them, then: midstream rules --config {0}\n",
        ),
    ],
)
def test_a_file_that_was_written_is_named_with_what_to_do_with_it(
    options: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, so that a pipe gets rules only."""
    file = tmp_path / "rules.yml"
    assert main(["rules", *options, "-o", str(file)]) == 0
    assert capsys.readouterr() == ("", f"midstream: {said.format(file)}")


def test_links_that_open_nowhere_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At three in the morning it is too late to learn it."""
    assert main(["rules", "-o", str(tmp_path / "rules.yml")]) == 0
    assert capsys.readouterr().err.endswith(f"and reload Prometheus\n{RELATIVE}")
    assert main(["rules", "--only", "StreamFrozen"]) == 0
    assert capsys.readouterr().err == RELATIVE
    assert main(["rules", "--only", "StreamFrozen", *RUNBOOK]) == 0
    assert capsys.readouterr().err == ""


def test_promtool_accepts_what_is_committed() -> None:
    """As a whole file."""
    promtool = shutil.which("promtool") or absent("promtool")
    command = [promtool, "check", "rules", str(ROOT / "monitoring" / "midstream.rules.yml")]

    assert subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0
