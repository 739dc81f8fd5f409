"""`midstream report --prometheus`, against a real Prometheus that has scraped a real endpoint."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from midstream.cli import main
from midstream.setup import Setup
from midstream.stream.model import Outcome
from midstream.telemetry.exporters.configuration import export_configuration
from midstream.telemetry.recorder import Recorder
from real.programs import Prometheus
from support.records import a_call, a_record
from support.waiting import until


@pytest.fixture
def url(prometheus: Callable[[str], Prometheus]) -> str:
    """Three streams of two models, one of which froze, as a Prometheus has seen them."""
    with Setup(export_configuration({}, prometheus=0)) as setup:
        seen = prometheus(setup.prometheus_url or "")
        recorder = Recorder(setup.meter_provider, list)
        labels = {model: recorder.labels(a_call(request_model=model), {}) for model in ("big", "small")}
        for each in labels.values():
            recorder.opened(each)
        until(lambda: seen.value("sum(stream_freezes_total)") == 0, timeout_s=20)
        recorder.froze(labels["big"], None)
        recorder.frozen_for(labels["big"], 7.5)
        known = {"time_to_first_content_s": 0.2, "output_tokens": 100}
        recorder.ended(
            labels["big"],
            a_record(request_model="big", max_gap_s=7.5, freezes=1, frozen_s=7.5, **known),
            None,
        )
        recorder.ended(
            labels["big"], a_record(request_model="big", max_gap_s=0.3, outcome=Outcome.TIMEOUT), None
        )
        recorder.ended(labels["small"], a_record(request_model="small", max_gap_s=0.3, **known), None)
        until(lambda: seen.value("sum(stream_ended_total)") == 3, timeout_s=20)
        until(
            lambda: (seen.value("min(count_over_time(stream_max_gap_seconds_count[1m]))") or 0) >= 3,
            timeout_s=20,
        )
    return seen.url


def test_a_fleet_is_reported(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In tables, and in numbers."""
    assert main(["report", "--prometheus", url, "--since", "5m", "--by", "model", "--by", "operation"]) == 0
    out = capsys.readouterr().out
    assert "a timeline, and a page with plots, need a journal." in out
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("big ", "small "))][:2] == [
        "big",
        "small",
    ]
    assert "by operation" in out

    assert main(["report", "--prometheus", url, "--since", "5m", "--json"]) == 0
    groups = {group["name"]: group for group in json.loads(capsys.readouterr().out)["by"]["model"]}
    assert groups["big"]["froze"]["count"] >= 1
    assert groups["small"]["froze"]["count"] == 0
    assert groups["big"]["freezes"] > 0
    assert groups["small"]["limit_used"] == {"p50": None, "p95": None, "p99": None}


def test_a_server_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--prometheus", "http://127.0.0.1:1"]) == 1
    err = capsys.readouterr().err
    assert "127.0.0.1:1" in err
    assert err.count("\n") == 1
