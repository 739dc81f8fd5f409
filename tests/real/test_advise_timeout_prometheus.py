"""`midstream advise timeout --prometheus`, against a real Prometheus that has scraped a real endpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from midstream.cli import main
from midstream.setup import Setup
from midstream.stream.model import Outcome
from midstream.telemetry.exporters.configuration import export_configuration
from midstream.telemetry.recorder import Recorder
from real.programs import Prometheus
from support.records import a_call, a_record
from support.waiting import until

STREAMS = 400


@pytest.fixture
def url(prometheus: Callable[[str], Prometheus]) -> str:
    """Gaps of 0.3 s in text and of 40 s in reasoning, 200 streams each, and one that was left after 70 s of silence."""
    with Setup(export_configuration({}, prometheus=0)) as setup:
        seen = prometheus(setup.prometheus_url or "")
        recorder = Recorder(setup.meter_provider, list)
        labels = recorder.labels(a_call(request_model="paused"), {})
        recorder.opened(labels)
        until(
            lambda: seen.value('sum(stream_freezes_total{gen_ai_request_model="paused"})') == 0, timeout_s=20
        )
        for n in range(STREAMS):
            gap: dict[str, Any] = (
                {"max_gap_s": 40.0, "max_gap_phase": "reasoning"}
                if n % 2
                else {"max_gap_s": 0.3, "max_gap_phase": "text"}
            )
            if n == 0:
                gap |= {"max_gap_s": 70.0, "max_gap_open": True, "outcome": Outcome.CANCELLED}
            recorder.ended(labels, a_record(request_model="paused", time_to_first_content_s=0.2, **gap), None)
        until(
            lambda: seen.value('sum(stream_ended_total{gen_ai_request_model="paused"})') == STREAMS,
            timeout_s=20,
        )
    return seen.url


def test_a_fleets_timeouts_are_the_ends_of_buckets_by_phase(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One in 200 waited longer than a minute in text, and may have gone on; nothing did in reasoning."""
    asked = [
        "advise",
        "timeout",
        "--prometheus",
        url,
        "--since",
        "5m",
        "--where",
        "model=paused",
        "--kill",
        "5%",
    ]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    waits = {wait["kind"]: wait["bounds"] for wait in found["waits"]}
    assert {kind: (each["low_s"], each["high_s"]) for kind, each in waits.items()} == {
        "text": (0.25, 0.5),
        "reasoning": (30.0, 60.0),
        "first_content": (0.1, 0.25),
    }
    assert (waits["text"]["streams"], waits["text"]["ended"]) == (200, 1.0)
    (code,) = (each["code"] for each in found["code"])
    assert 'stall_timeout_s={"text": 0.5, "reasoning": 60}, first_content_timeout_s=0.25)' in code

    assert main(asked) == 0
    out = capsys.readouterr().out
    assert 'Set stall_timeout_s["reasoning"] to 60 at most' in out

    assert main([*asked[:-1], "0.1%"]) == 3
    assert "more are needed" in capsys.readouterr().out
