"""The simulator against a real vLLM: fitted to two loads without freezes, it must predict a third with four."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from midstream.lab.admission import engine
from midstream.lab.fitting import fit_profile
from midstream.lab.hardware import HardwareProfile
from midstream.lab.observed import ObservedLoad, ObservedStream, read_load
from midstream.lab.prediction import predict, workload_of
from midstream.lab.recording import RecordingError
from midstream.lab.results import RunResult
from midstream.lab.simulator import simulate
from midstream.lab.workload import Workload, delayed, open_loop
from support.paths import RECORDINGS

LOADS = RECORDINGS / "load"


@pytest.fixture(scope="module")
def hardware() -> HardwareProfile:
    """Return what was fitted to the two loads in which nothing froze."""
    return fit_profile([read_load(LOADS / "roomy.jsonl"), read_load(LOADS / "cap4_active.jsonl")])


@pytest.fixture(scope="module")
def over8(hardware: HardwareProfile) -> RunResult:
    """Return the prediction for eight streams in a pool of 28 blocks."""
    return predict(read_load(LOADS / "over8.jsonl"), hardware, num_gpu_blocks=28, block_size=128)


def frozen_in_order(gaps: list[tuple[int, float, float]], freeze_after_s: float = 2.0) -> list[int]:
    """Return the streams whose gap (stream, start, length) was a freeze, as they froze."""
    return [
        stream for stream, _, _ in sorted((g for g in gaps if g[2] >= freeze_after_s), key=lambda g: g[1])
    ]


def test_the_fitted_hardware_is_plausible(hardware: HardwareProfile) -> None:
    """A step of 8 takes 17 to 27 ms with its context, one of 4 takes 14 to 19; prefill about 1,350 tokens a second."""
    assert 0.016 < hardware.decode_s(8, 8 * 60) < 0.019
    assert 0.025 < hardware.decode_s(8, 8 * 740) < 0.029
    assert 0.013 < hardware.decode_s(4, 4 * 60) < 0.016
    assert 0.017 < hardware.decode_s(4, 4 * 740) < 0.021
    assert 1000 < 1 / hardware.prefill_token_s < 1800
    assert 0.03 < hardware.front_end_s < 0.05
    assert hardware.latency_s == 0


def test_exactly_four_preemptions_are_predicted(over8: RunResult) -> None:
    """As the server itself counted."""
    assert over8.preemptions == 4


def test_the_same_streams_freeze_in_the_same_order(over8: RunResult) -> None:
    """Stream 7 first, then 6, 5 and 4; nobody else, and nobody twice."""
    real = read_load(LOADS / "over8.jsonl")
    observed = []
    for stream in real.streams:
        length, start = max((b - a, a) for a, b in zip(stream.times_s, stream.times_s[1:], strict=False))
        observed.append((stream.id, start, length))
    simulated = [
        (request.id, request.longest_gap_at_s or 0.0, request.longest_gap_s or 0.0)
        for request in over8.requests
    ]
    assert frozen_in_order(observed) == [7, 6, 5, 4]
    assert frozen_in_order(simulated) == [7, 6, 5, 4]
    assert [request.preemptions for request in over8.requests] == [0, 0, 0, 0, 1, 1, 1, 1]


FREEZES_S = (2.56, 4.94, 7.64, 8.11)
"""How long streams 4 to 7 of the recording froze."""


def overloaded(calls: Workload, hardware: HardwareProfile) -> RunResult:
    """Return what becomes of calls in a pool of 28 blocks."""
    return simulate(
        engine("vllm", num_gpu_blocks=28, block_size=128),
        calls,
        hardware,
        freeze_after_s=2.0,
        keep_times=True,
    )


def recorded_calls() -> Workload:
    """Return the eight calls of the recording."""
    return workload_of(read_load(LOADS / "over8.jsonl"))


def calls_as_meant() -> Workload:
    """Return the same calls, 50 ms apart: those of the recording were held up for 0.1 s."""
    return Workload(
        tuple(replace(call, at_s=0.05 * number) for number, call in enumerate(recorded_calls().calls))
    )


def test_each_freeze_is_as_long_as_the_real_one(over8: RunResult) -> None:
    """2.4, 4.9, 7.7 and 8.2 s were predicted; each within 15 %, of the stream that it befell."""
    assert [request.longest_gap_s for request in over8.requests[4:]] == pytest.approx(FREEZES_S, rel=0.15)
    recorded = [stream.longest_gap_s for stream in read_load(LOADS / "over8.jsonl").streams[4:]]
    assert recorded == pytest.approx(FREEZES_S, abs=0.01)


@pytest.mark.parametrize("seed", range(30))
def test_the_freezes_do_not_hang_on_milliseconds(seed: int, hardware: HardwareProfile) -> None:
    """Each call up to 15 ms later: the last four to call freeze, each within 15 % of the recorded ones."""
    calls = delayed(recorded_calls(), 0.015, seed)
    run = overloaded(calls, hardware)
    gaps = [run.requests[call.request.id].longest_gap_s for call in calls.calls]
    assert gaps[4:] == pytest.approx(FREEZES_S, rel=0.15)
    assert max(gap for gap in gaps[:4] if gap is not None) < 1.0
    assert run.preemptions in (4, 5)


@pytest.mark.parametrize("front_end_ms", [20, 25, 30, 40, 50])
def test_the_freezes_do_not_hang_on_the_front_ends_share(
    front_end_ms: int, hardware: HardwareProfile
) -> None:
    """Let it take 20 to 50 ms a call, and the rest of the way none or 16 ms: every freeze is within 15 %."""
    front_end_s = front_end_ms / 1000
    rest_s = max(hardware.front_end_s - front_end_s, 0.0)
    shared = replace(hardware, front_end_s=front_end_s, latency_s=rest_s)
    run = overloaded(recorded_calls(), shared)
    assert [request.longest_gap_s for request in run.requests[4:]] == pytest.approx(FREEZES_S, rel=0.15)


def test_calls_that_are_all_read_at_once_freeze_for_too_short(hardware: HardwareProfile) -> None:
    """So it is the front end that makes the difference: 2.0 s without one, and 2.6 s were recorded."""
    at_once = replace(hardware, front_end_s=0.0, latency_s=hardware.front_end_s)
    assert overloaded(recorded_calls(), at_once).requests[4].longest_gap_s == pytest.approx(2.0, abs=0.05)
    apart = overloaded(calls_as_meant(), at_once).requests
    assert [request.longest_gap_s for request in apart] == [
        request.longest_gap_s for request in overloaded(calls_as_meant(), hardware).requests
    ]


def test_of_calls_as_they_were_meant_every_freeze_is_within_15_percent(hardware: HardwareProfile) -> None:
    """The client of the recording was held up for 0.1 s; 50 ms apart, its calls would have frozen so."""
    run = overloaded(calls_as_meant(), hardware)
    assert run.preemptions == 4
    assert [request.longest_gap_s for request in run.requests[4:]] == pytest.approx(FREEZES_S, rel=0.15)


def test_another_run_of_the_overload_is_predicted(hardware: HardwareProfile) -> None:
    """Five of its eight streams were kept: 0 to 3 never froze, and 5 did for 5.03 s when it had 462 tokens."""
    run = overloaded(calls_as_meant(), hardware)
    kept = [0, 1, 2, 3, 5]
    streams = [content_times(LOADS.parent / "streams" / f"vllm_preempted_{number}.jsonl") for number in kept]
    gaps = [max(b - a for a, b in pairwise(times)) for times in streams]
    assert gaps == pytest.approx([0.092, 0.705, 0.705, 0.705, 5.034], abs=0.001)
    predicted = [run.requests[number].longest_gap_s or 0.0 for number in kept]
    assert max(predicted[:4]) < 1.0
    assert predicted[4] == pytest.approx(gaps[4], rel=0.05)
    for number, times in zip(kept, streams, strict=True):
        request = run.requests[number]
        assert request.times_s[-1] - request.asked_s == pytest.approx(times[-1], rel=0.05)


def content_times(file: Path) -> list[float]:
    """Return when the chunks of a recorded stream arrived, from its call."""
    lines = [json.loads(line) for line in file.read_text().splitlines()[2:]]
    return [line["t"] for line in lines if line.get("line", "").startswith('data: {"id"')]


def test_the_wall_time_is_predicted_within_15_percent(over8: RunResult) -> None:
    """The real load took 22.2 s."""
    assert over8.duration_s == pytest.approx(22.2, rel=0.15)
    assert over8.duration_s == pytest.approx(read_load(LOADS / "over8.jsonl").wall_s, rel=0.15)


@pytest.mark.parametrize(
    ("name", "flags", "wall_s"),
    [
        ("roomy", {"num_gpu_blocks": 80}, 16.1),
        ("cap4_active", {"num_gpu_blocks": 28, "max_num_active_seqs": 4}, 23.7),
    ],
)
def test_the_loads_that_were_fitted_are_reproduced(
    hardware: HardwareProfile, name: str, flags: dict[str, Any], wall_s: float
) -> None:
    """No preemption, no freeze, and the wall time within 5 %."""
    run = predict(read_load(LOADS / f"{name}.jsonl"), hardware, block_size=128, **flags)
    assert (run.preemptions, run.frozen_share) == (0, 0.0)
    assert run.duration_s == pytest.approx(wall_s, rel=0.05)


def test_with_a_cap_of_four_the_others_wait_for_their_first_token(hardware: HardwareProfile) -> None:
    """Streams 4 to 7 had theirs after 11.9 s; predicted within a second."""
    load = read_load(LOADS / "cap4_active.jsonl")
    run = predict(load, hardware, num_gpu_blocks=28, block_size=128, max_num_active_seqs=4)
    for request in run.requests[4:]:
        assert request.ttft_s == pytest.approx(11.9, abs=1.0)


def test_the_cap_that_midstream_advises_removes_the_freezes(hardware: HardwareProfile) -> None:
    """The same eight calls with at most four at a time: no preemption, for a little more time in all."""
    load = read_load(LOADS / "over8.jsonl")
    run = predict(load, hardware, num_gpu_blocks=28, block_size=128, max_num_active_seqs=4)
    assert run.preemptions == 0
    assert run.duration_s == pytest.approx(24, rel=0.1)


def test_a_load_is_played_from_its_calls_alone() -> None:
    """Starts, lengths and limits are taken over; an answer that ended by itself keeps its end."""
    times = (1.0, 2.0)
    cut = ObservedStream(3, 0.5, times, 2.0, "length", 49, 700)
    whole = ObservedStream(4, 0.7, times, 2.0, "stop", 49, 12)
    calls = workload_of(ObservedLoad("two", (cut, whole))).calls
    assert [(c.at_s, c.request.answer_tokens, c.request.max_tokens) for c in calls] == [
        (0.5, None, 700),
        (0.7, 12, None),
    ]


def test_calls_that_are_served_soon_after_each_other_cannot_have_taken_the_front_end_long() -> None:
    """A call is 0.2 s under way, 10 ms in the front end; fifteen at once show that it cannot be 0.21 s."""
    truth = HardwareProfile("far", 0.02, 0.001, 1e-6, 1e-4, latency_s=0.2, front_end_s=0.01)
    fitted = fit_profile([played(truth, [0.0] * 5 + [3.0]), played(truth, [0.0] * 15 + [3.0])])
    assert fitted.latency_s + fitted.front_end_s == pytest.approx(0.21, abs=0.03)
    assert 0.01 <= fitted.front_end_s < 0.04


def played(hardware: HardwareProfile, at_s: list[float]) -> ObservedLoad:
    """Return what clients would see who call at these times, for 300 tokens each."""
    run = simulate(engine("vllm"), open_loop(at_s, [(50, 300)] * len(at_s)), hardware, keep_times=True)
    return ObservedLoad(
        "played",
        tuple(
            ObservedStream(r.id, r.asked_s, r.times_s, r.times_s[-1], "stop", 50, len(r.times_s))
            for r in run.requests
        ),
    )


def test_one_batch_size_does_not_determine_the_hardware() -> None:
    """The sentence says which load, and what is needed."""
    with pytest.raises(ValueError, match="roomy shows one batch size only; a fit needs at least two"):
        fit_profile([read_load(LOADS / "roomy.jsonl")])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            '{"i": 0, "start": 0, "times": [], "end": 1}',
            "`times` must list the arrival of every content chunk",
        ),
        ('{"i": 0, "start": 0, "times": [1], "end": 1, "usage": [1]}', "`usage` must be [prompt tokens"),
        ('{"start": 0, "times": [1], "end": 1, "usage": [1, 1]}', "`i` must be the stream's number"),
    ],
)
def test_a_load_that_cannot_be_used_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    """With file, line and remedy."""
    file = tmp_path / "load.jsonl"
    file.write_text(text)
    with pytest.raises(RecordingError) as raised:
        read_load(file)
    assert sentence in str(raised.value)
    assert f"{file}, line 1" in str(raised.value)


def test_a_load_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The sentence names the file."""
    with pytest.raises(RecordingError, match=r"there is no file .*nothing\.jsonl; check the path"):
        read_load(tmp_path / "nothing.jsonl")
