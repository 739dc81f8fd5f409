"""The whole way, once: an answer freezes, somebody is paged, it goes on, and the page is taken back."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from midstream.cli import main
from midstream.cli.dashboard.page import DashboardPage
from midstream.monitoring.alerts import Naming, Tuning, build, tuning_of
from midstream.monitoring.dashboards import DASHBOARDS
from midstream.monitoring.dashboards.fill import filled
from midstream.setup import Setup
from midstream.telemetry.exporters.configuration import export_configuration
from monitoring.alerts.otlp_page import served, text
from monitoring.alerts.stack import (
    FROZEN,
    QUICK,
    SILENCE_S,
    Paged,
    Stack,
    Traffic,
    on_call,
    run_alertmanager,
    run_prometheus,
    scraping,
    stack,
    wire,
)
from real.programs import Collector, Prometheus, absent, answers, fetch, free_port
from real.programs import running as program_running
from support.waiting import until

QUERIES = [
    pytest.param(target.expr, id=f"{name}: {panel.title}: {target.legend}")
    for name, make in DASHBOARDS.items()
    for panel in make(Naming.PROMETHEUS).panels
    for target in panel.targets
]
"""Every query of every panel of every dashboard."""

QUICKLY: Tuning = tuning_of(
    {
        "window": "30s",
        "rising_window": "30s",
        "interval": "1s",
        "min_streams": 5,
        "freezes": 1,
        "preemptions": 1,
        "alerts": {"*": {"for": "0s", "keep_firing_for": "0s"}, "StreamFrozen": {"for": "1s"}},
    }
)
"""The same rules with short windows, so that a minute is enough to see them come and go."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Run the stack until it has seen traffic, then let one answer freeze and one request be preempted."""
    with stack(tmp_path_factory.mktemp("stack"), QUICKLY) as everything:
        until(
            lambda: (everything.prometheus.value("sum(rate(stream_ended_total[10s]))") or 0) > 0, timeout_s=20
        )
        # Rules that compare with an earlier time are silent until that time is known.
        # (`StreamFreezesRising` compares with yesterday: it is tried under promtool alone.)
        known = "count(sglang:num_running_reqs offset 35s)"
        until(partial(everything.prometheus.value, known), timeout_s=90)
        everything.traffic.freeze()
        until(lambda: everything.traffic.froze_at)
        everything.engine.preempted += 5
        everything.engine.waiting += 5
        yield everything


@pytest.fixture(scope="module")
def victoria(running: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Start a VictoriaMetrics that scrapes the same pages."""
    program = shutil.which("victoria-metrics") or absent("victoria-metrics")
    home = tmp_path_factory.mktemp("victoria")
    (home / "scrape.yml").write_text(json.dumps(scraping(running.targets)))
    server = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"-promscrape.config={home / 'scrape.yml'}",
        f"-storageDataPath={home / 'data'}",
        f"-httpListenAddr={server}",
        "-search.latencyOffset=1s",
        "-search.disableCache",
        "-loggerLevel=WARN",
    ]
    ready = f"http://{server}/health"
    with program_running(command, home / "output", lambda: answers(ready)):
        found = Prometheus(f"http://{server}")
        until(lambda: (found.value("sum(rate(stream_max_gap_seconds_count[10s]))") or 0) > 0, timeout_s=20)
        yield found


def test_a_freeze_is_told_while_it_lasts_and_taken_back_when_it_is_over(
    running: Stack, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """From the moment that the threshold is crossed to the webhook of the person on call."""
    until(lambda: running.paged.first("StreamFrozen", "firing"), timeout_s=15)
    told_at, alert = running.paged.first("StreamFrozen", "firing") or (0.0, {})
    seconds = told_at - running.traffic.froze_at[0]
    record_testsuite_property("seconds_from_freeze_to_alert", round(seconds, 2))

    assert 0 < seconds < SILENCE_S - 0.5, seconds
    assert (
        alert["labels"].items()
        >= {
            "severity": "warning",
            "job": "app",
            "gen_ai_request_model": "Qwen/Qwen3-8B",
            "server_address": "127.0.0.1",
        }.items()
    )
    assert alert["annotations"]["description"].startswith(
        "Streams frozen now: 1. Affected: job app, model Qwen/Qwen3-8B, "
    )
    assert alert["annotations"]["runbook_url"] == "docs/runbook.md#streamfrozen"

    until(lambda: running.paged.first("StreamFrozen", "resolved"), timeout_s=20)


@pytest.mark.parametrize(
    "alert",
    [
        "StreamLengthShareHigh",
        "StreamLimitHitShareHigh",
        "VllmPreemptions",
        "TrtllmPausedRequests",
        "SglangRetractions",
        "StreamFreezesFromEviction",
    ],
)
def test_what_went_on_is_told_by_its_own_alert(running: Stack, alert: str) -> None:
    """The cause of the freeze among them."""
    until(lambda: running.paged.first(alert, "firing"), timeout_s=25)


@pytest.mark.parametrize(
    "alert",
    ["StreamsMostlyFrozen", "StreamErrorShareHigh", "StreamNoFinishShareHigh", "StreamTrafficStopped"],
)
def test_what_did_not_happen_is_not_told(running: Stack, alert: str) -> None:
    """Nobody is woken for nothing."""
    assert running.paged.first(alert, "firing") is None


def test_no_rule_fails_and_all_are_there(running: Stack) -> None:
    """Prometheus reports a health for each."""
    rules = [rule for group in running.prometheus.get("rules")["groups"] for rule in group["rules"]]

    assert len(rules) == 53
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []


def test_the_check_finds_data_for_every_rule(running: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    """On this server, with these names."""
    until(lambda: running.prometheus.value("count(sglang:num_retracted_requests_total)"))
    until(lambda: running.prometheus.value("count(stream_max_gap_seconds_count)"), timeout_s=20)

    assert main(["rules", "--check", running.prometheus.url]) == 0
    out = capsys.readouterr().out
    assert "\n34 of 34 rules have data on" in out, out
    assert main(["rules", "--naming", "without-suffixes", "--check", running.prometheus.url]) == 1
    assert (
        "this server calls it stream_max_gap_seconds_bucket: render with --naming prometheus"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("expr", QUERIES)
def test_every_query_of_every_panel_has_data(running: Stack, expr: str) -> None:
    """On the Prometheus that scraped real streams."""
    until(lambda: has_data(running.prometheus, expr), timeout_s=20)


@pytest.mark.parametrize("expr", QUERIES)
def test_the_same_queries_have_data_on_victoriametrics(victoria: Prometheus, expr: str) -> None:
    """Which reads PromQL in its own way."""
    until(lambda: has_data(victoria, expr), timeout_s=20)


def test_victoriametrics_understands_every_rule(
    victoria: Prometheus, capsys: pytest.CaptureFixture[str]
) -> None:
    """And has data for each, under the same names."""
    for group in build(QUICKLY):
        for rule in group.rules:
            victoria.query(rule.expr)

    assert main(["rules", "--check", victoria.url]) == 0
    assert "\n34 of 34 rules have data on" in capsys.readouterr().out


def has_data(server: Prometheus, expr: str) -> bool:
    """Tell whether a query of a panel has a value that can be drawn."""
    return any(map(math.isfinite, server.query(filled(expr, interval_s=20)).values()))


@contextmanager
def shown(prometheus: str) -> Iterator[str]:
    """Serve the overview as `midstream dashboard --serve` does."""
    with DashboardPage(("127.0.0.1", 0), prometheus, DASHBOARDS["overview"](Naming.PROMETHEUS)) as page:
        yield f"http://127.0.0.1:{page.server_port}"


def seen(url: str, home: Path, *more: str) -> str:
    """Open a page in a real browser and return what became of it."""
    browser = shutil.which("chromium") or absent("chromium")
    command = [
        browser,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={home / 'browser'}",
        "--virtual-time-budget=9000",
        "--window-size=1400,1500",
        *more,
        url,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_overview_can_be_looked_at_without_a_grafana(running: Stack, tmp_path: Path) -> None:
    """In a real browser, with real data in every panel."""
    with shown(running.prometheus.url) as url:
        page = seen(f"{url}/?last=300", tmp_path, "--dump-dom")

    panels = len(DASHBOARDS["overview"](Naming.PROMETHEUS).panels)
    assert f'data-drawn="{panels}"' in page
    assert len(re.findall(r'data-series="[1-9]', page)) == panels
    assert re.search(r'<p id="trouble" role="alert"></p>', page)
    assert re.search(
        r'>Cut off by their limit</h3><div[^>]*><div class="stat"[^>]*>(9\d(\.\d)?|100) %</div>', page
    )


def test_the_page_says_when_prometheus_does_not_answer(tmp_path: Path) -> None:
    """And shows no old figures as new."""
    with shown(f"http://127.0.0.1:{free_port()}") as url:
        page = seen(url, tmp_path, "--dump-dom")

    assert re.search(r'role="alert">http://127\.0\.0\.1:\d+ does not answer: ', page)


def test_the_page_passes_on_its_own_queries_only(running: Stack) -> None:
    """It is no open door to the Prometheus behind it."""
    with shown(running.prometheus.url) as url:
        assert json.loads(fetch(f"{url}/query?panel=0&target=0&start=0&end=60"))["status"] == "success"
        assert not answers(f"{url}/query?panel=0&target=0&start=0&end=soon")
        assert not answers(f"{url}/query?query=up")
        assert not answers(f"{url}/api/v1/query?query=up")


def test_the_same_rules_hold_for_what_comes_by_otlp(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through a real collector, with its spelling of the bounds, and without scope labels."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    environ = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.http}
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.http)
    service = "pushed"
    programs = [shutil.which(name) or absent(name) for name in ("prometheus", "prometheus-alertmanager")]
    paged = Paged()
    with ExitStack() as cleanup:
        setup = cleanup.enter_context(
            Setup(export_configuration(environ, service_name=service, export_interval_s=0.5))
        )
        quick, frozen = (cleanup.enter_context(wire(script)) for script in (QUICK, FROZEN))
        page = cleanup.enter_context(served(lambda: text(collector.backend.metrics(service), service)))
        alertmanager = run_alertmanager(cleanup, programs[1], tmp_path, cleanup.enter_context(on_call(paged)))
        url = run_prometheus(
            cleanup, programs[0], tmp_path, targets={"page": page}, alertmanager=alertmanager, tuning=QUICKLY
        )
        traffic = Traffic(setup, quick.base_url, frozen.base_url)
        cleanup.callback(traffic.stop)
        traffic.start()
        traffic.freeze()
        until(lambda: paged.first("StreamFrozen", "firing"), timeout_s=20)
        until(lambda: paged.first("StreamLengthShareHigh", "firing"), timeout_s=20)
        _, alert = paged.first("StreamFrozen", "firing") or (0.0, {})
        prometheus = Prometheus(f"http://{url}")

        assert (alert["labels"]["job"], alert["labels"]["gen_ai_request_model"]) == (
            "pushed",
            "Qwen/Qwen3-8B",
        )
        assert prometheus.series('stream_max_gap_seconds_bucket{le="5"}')
        assert not prometheus.series('stream_max_gap_seconds_bucket{le="5.0"}')
        assert not prometheus.series('stream_max_gap_seconds_bucket{otel_scope_name!=""}')
        assert main(["rules", "--check", prometheus.url]) == 0
        assert "no metrics of vLLM" in capsys.readouterr().out
