"""Each engine's own `/metrics`: read as midstream reads the real ones, and odd where those are odd."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from midstream.lab.admission import Request, Vllm, VllmSettings
from midstream.lab.drive import Drive
from midstream.lab.emulation.meter import RequestState
from midstream.lab.emulation.meter_vllm import VllmMeter
from midstream.lab.hardware import HardwareProfile
from midstream.sources.server import ServerView, view_of
from support.emulating import QUICK, Server, emulating
from support.paths import RECORDINGS
from support.waiting import until

STEADY = HardwareProfile("steady", 0.02, 0.0, 0.0, 0.0)
"""Slow enough for a second stream to come while the first is at its beginning."""

POOLS: dict[str, dict[str, Any]] = {
    "vllm": {"num_gpu_blocks": 33, "block_size": 4},
    "sglang": {"max_total_tokens": 132, "schedule_conservativeness": 0.05},
    "tgi": {"max_batch_total_tokens": 4000},
    "trtllm-max-utilization": {"max_tokens_in_kv_cache": 128, "tokens_per_block": 4},
    "llamacpp": {"ctx_size": 4000},
}
BODY = {
    "model": "emulated",
    "messages": [],
    "stream": True,
    "max_tokens": 95,
    "emulate": {"prompt_tokens": 10, "answer_tokens": 90},
}
CHAT = "/v1/chat/completions"


def overload(server: Server, streams: int = 3) -> None:
    """Let one stream begin and others ask meanwhile, and read all of their answers."""
    first = server.begin(CHAT, BODY)
    answers = [first.getresponse()]
    answers[0].read1(1)
    others = [server.begin(CHAT, BODY) for _ in range(streams - 1)]
    answers += [each.getresponse() for each in others]
    for answer, connection in zip(answers, (first, *others), strict=True):
        answer.read()
        connection.close()


def view(server: Server, path: str = "/metrics") -> ServerView:
    """Read a page as `midstream watch` does."""
    status, kind, text = server.page(path)
    assert status == 200
    return view_of(text, kind)


@pytest.mark.parametrize(
    ("name", "engine", "path", "pool"),
    [
        ("vllm", "vllm", "/metrics", 132),
        ("sglang", "sglang", "/metrics", 132),
        ("tgi", "tgi", "/metrics", None),
        ("trtllm-max-utilization", "trtllm", "/prometheus/metrics", None),
        ("llamacpp", "llamacpp", "/metrics", None),
    ],
)
def test_midstream_reads_them_as_it_reads_the_real_ones(
    name: str, engine: str, path: str, pool: int | None
) -> None:
    """The engine is recognised, what ran is counted, and the pool is known where the engine tells it."""
    with emulating(name, hardware=STEADY, **POOLS[name]) as server:
        overload(server)
        seen = view(server, path)
    assert seen.engine == engine
    assert seen.pool_tokens.value == pool
    assert seen.running.value is not None
    if engine in ("vllm", "sglang"):
        assert seen.preemptions.value is not None
        assert seen.preemptions.value >= 1
    if engine in ("vllm", "sglang", "tgi", "llamacpp"):
        assert seen.generated.value == 270


def test_all_names_of_the_vllm_page_are_those_of_a_real_one() -> None:
    """Every series and every label stands on the page that was recorded, or is of this version."""
    real = (RECORDINGS / "vllm_emulated_metrics.txt").read_text()
    with emulating("vllm") as server:
        overload(server, 1)
        page = server.page()[2]
    mine = [_series(line) for line in page.splitlines() if line.startswith("vllm:") and "_bucket" not in line]
    theirs = {_series(line) for line in real.splitlines()}
    assert [series for series in mine if series not in theirs] == []


def _series(line: str) -> tuple[str, tuple[str, ...]]:
    """Return a series' name and the names of its labels; of the configuration, which has dozens, only the name."""
    name, _, labels = line.partition("{")
    config = name == "vllm:cache_config_info"
    return name, () if config else tuple(re.findall(r'(\w+)="', labels))


def test_vllm_counts_a_preemption_when_the_stream_goes_on() -> None:
    """Not when it happens; and never, if the client leaves before."""
    drive = Drive(Vllm(VllmSettings(num_gpu_blocks=4, block_size=4)), QUICK)
    for patient in (True, False):
        meter = VllmMeter("m", VllmSettings())
        life = RequestState(Request(0, 10, 10), 0.0)
        life.said(1.0)
        meter.said(life)
        meter.preempted(life)
        assert _number(meter, "vllm:num_preemptions_total") == 0
        if patient:
            life.said(9.0)
            meter.said(life)
        else:
            meter.left(life)
        assert _number(meter, "vllm:num_preemptions_total") == int(patient)
    assert drive.load.running == 0


def _number(meter: VllmMeter, name: str) -> float:
    page = meter.pages()["/metrics"]()[1].decode()
    return float(next(line.split()[-1] for line in page.splitlines() if line.startswith(name)))


def test_sglangs_counter_of_retractions_is_absent_until_the_first() -> None:
    """Its name is declared, its series is not there; afterwards it is."""
    with emulating("sglang", hardware=STEADY, **POOLS["sglang"]) as server:
        overload(server, 1)
        assert "\nsglang:num_retracted_requests_total{" not in server.page()[2]
        assert view(server).preemptions.value == 0
        overload(server)
        assert "\nsglang:num_retracted_requests_total{" in server.page()[2]


def test_sglangs_gauges_are_as_old_as_its_last_report() -> None:
    """A lone stream of 30 tokens reports once, with its prefill; it is shown as running long after its end."""
    with emulating("sglang") as server:
        server.chat(30)
        assert view(server).running.value == 1


def test_reading_takes_tensorrt_llms_iterations_away() -> None:
    """The first reader has an object for each step, the second has none."""
    with emulating("trtllm") as server:
        server.chat(5)
        first, second = (json.loads(server.page()[2]) for _ in range(2))
    assert [each["iter"] for each in first] == [1, 2, 3, 4, 5]
    assert first[0]["inflightBatchingStats"]["numContextRequests"] == 1
    assert second == []


def test_tensorrt_llms_gauges_are_renewed_by_requests_that_complete() -> None:
    """While the first request runs they are 0; with its end they show its last step."""
    slow = HardwareProfile("slow", 0.02, 0.0, 0.0, 0.0)
    with emulating("trtllm", hardware=slow) as server:
        connection = server.begin(CHAT, BODY)
        until(lambda: json.loads(server.page()[2]))
        assert view(server, "/prometheus/metrics").running.value == 0
        connection.getresponse().read()
        connection.close()
        assert view(server, "/prometheus/metrics").running.value is not None


def test_tgi_counts_passes_and_not_pauses() -> None:
    """An answer of 2,100 tokens takes three passes: two more than requests, and that is the only trace."""
    with emulating("tgi", hardware=HardwareProfile("fast", 0.0005, 0, 0, 0)) as server:
        server.chat(2100)
        server.chat(5)
        page = server.page()[2]
        assert view(server).preemptions.value == 2
    assert "tgi_request_input_length_count 4\n" in page
    assert "tgi_request_count 2\n" in page
    assert "_total" not in page


def test_what_tgi_refuses_has_no_pass() -> None:
    """So that passes less requests stays what it is."""
    with emulating("tgi", max_total_tokens=100) as server:
        server.chat(3, emulate={"prompt_tokens": 200})
        server.chat(3)
        assert view(server).preemptions.value == 0
        assert 'tgi_request_failure{err="validation"} 1' in server.page()[2]


def test_llamacpp_tells_what_waits_for_a_slot() -> None:
    """Two slots, three streams: one is deferred."""
    with emulating("llamacpp", hardware=HardwareProfile("slow", 0.05, 0, 0, 0), parallel=2) as server:
        connections = [server.begin(CHAT, BODY) for _ in range(3)]
        until(lambda: view(server).waiting.value == 1)
        assert view(server).running.value == 2
        for connection in connections:
            connection.close()
        until(lambda: view(server).running.value == 0)
