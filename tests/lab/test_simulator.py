"""Virtual time: what clients see, to the second, and laws that hold whatever the engine."""

import math

import pytest

from midstream.lab.admission import ENGINES, PrefillChunk, Request, Step, engine
from midstream.lab.hardware import A100, L4, PROFILES, QWEN3_8B, HardwareProfile, computed_profile
from midstream.lab.results import RunResult, Spread, spread
from midstream.lab.simulator import simulate
from midstream.lab.workload import (
    Workload,
    WorkloadCall,
    burst,
    closed_loop,
    fixed,
    generator,
    lognormal_by,
    open_loop,
    pairs,
    poisson,
)

SECOND = HardwareProfile("one second a step", step_s=1.0, sequence_s=0.0, context_s=0.0, prefill_token_s=0.0)


def small_load(seed: int, count: int = 200) -> Workload:
    """Return calls that overload an L4 for a while."""
    lengths = pairs(seed, count, fixed(200), lognormal_by(mean=1000, p95=3000, most=8000))
    return open_loop(poisson(seed, count, 0.4), lengths, max_tokens=8192)


def test_a_lone_request_gets_a_token_a_step() -> None:
    """Asked at 0.5 s: five tokens at 1.5 to 5.5 s, no gap longer than a step."""
    (result,) = simulate(engine("vllm"), open_loop([0.5], [(10, 5)]), SECOND, keep_times=True).requests
    assert result.times_s == (1.5, 2.5, 3.5, 4.5, 5.5)
    assert (result.ttft_s, result.longest_gap_s, result.freezes, result.ended_s) == (1.0, 1.0, 0, 5.5)


def test_a_call_during_a_step_is_seen_by_the_next() -> None:
    """Asked at 0.5 s, while the first step runs until 1 s, it has its first token at 2 s."""
    run = simulate(engine("vllm"), open_loop([0.0, 0.5], [(10, 3), (10, 1)]), SECOND)
    assert [request.first_token_s for request in run.requests] == [1.0, 2.0]


def test_latency_passes_before_the_engine_hears_of_a_call() -> None:
    """A quarter of a second on the way, then a step."""
    slow = HardwareProfile("far", 1.0, 0.0, 0.0, 0.0, latency_s=0.25)
    (result,) = simulate(engine("vllm"), open_loop([1.0], [(10, 1)]), slow).requests
    assert (result.asked_s, result.admitted_s, result.first_token_s) == (1.0, 1.25, 2.25)


def test_calls_that_come_at_once_pass_the_front_end_one_after_the_other() -> None:
    """A quarter of a second under way, half a second each in the front end, and then a step of one second."""
    slow = HardwareProfile("busy", 1.0, 0.0, 0.0, 0.0, latency_s=0.25, front_end_s=0.5)
    calls = open_loop([1.0, 1.0, 1.125, 9.0], [(10, 1)] * 4)
    run = simulate(engine("vllm"), calls, slow)
    assert [request.asked_s for request in run.requests] == [1.0, 1.0, 1.125, 9.0]
    assert [request.admitted_s for request in run.requests] == [1.75, 2.75, 2.75, 9.75]


def test_who_hangs_up_waits_for_the_turn_of_the_front_end() -> None:
    """Patient for 0.5 s, the second is heard at 2 s; it leaves then, before a step that begins at 2 s."""
    slow = HardwareProfile("busy", 0.25, 0.0, 0.0, 0.0, front_end_s=1.0)
    calls = Workload(
        (WorkloadCall(Request(0, 10, 1), 0.0), WorkloadCall(Request(1, 10, 1), 0.0, patience_s=0.5))
    )
    run = simulate(engine("vllm"), calls, slow)
    assert [(request.ending, request.ended_s) for request in run.requests] == [("stop", 1.25), ("left", 2.0)]


def test_a_preempted_stream_freezes_until_it_is_served_again() -> None:
    """Two blocks of four: at 1 s request 1 gives way; 0 ends at 4 s; 1 has its second token at 5 s."""
    run = simulate(
        engine("vllm", num_gpu_blocks=3, block_size=4, enable_prefix_caching=False),
        open_loop([0.0, 0.0], [(4, 4), (4, 3)]),
        SECOND,
        freeze_after_s=4.0,
        keep_times=True,
    )
    frozen = run.requests[1]
    assert frozen.times_s == (1.0, 5.0, 6.0)
    assert (frozen.preemptions, frozen.longest_gap_s, frozen.longest_gap_at_s) == (1, 4.0, 1.0)
    assert (frozen.freezes, frozen.frozen_s, frozen.redone_tokens) == (1, 4.0, 4)
    assert (run.preempted_share, run.frozen_share, run.redone_share) == (0.5, 0.5, 4 / 13)
    assert run.freeze_s == Spread(median=4.0, p95=4.0, max=4.0, min=4.0)


def test_a_step_costs_what_the_profile_says() -> None:
    """1 s, 0.1 s for each of two that decode, 0.01 s for 50 tokens of context, and a chunk of 4 after 6."""
    profile = HardwareProfile("stated", 1.0, 0.1, 0.01, 0.5, prefill_pair_s=0.001)
    step = Step(prefill=(PrefillChunk(2, 6, 4, 0),), decode=(0, 1), decode_context=50)
    assert profile.duration_s(step) == pytest.approx(1.0 + 0.2 + 0.5 + 4 * 0.5 + 0.001 * (4 * 6 + 10))


def test_profiles_follow_from_bandwidth_and_arithmetic() -> None:
    """Qwen3-8B on an L4: 71 ms a step, 0.61 microseconds a token of context, 3,694 tokens a second of prefill."""
    profile = PROFILES["l4"]
    assert profile == computed_profile("l4", L4, QWEN3_8B)
    assert profile.step_s == pytest.approx(0.0713, rel=0.01)
    assert profile.context_s == pytest.approx(0.614e-6, rel=0.01)
    assert 1 / profile.prefill_token_s == pytest.approx(3694, rel=0.01)
    assert PROFILES["a100"].step_s < computed_profile("a100", A100, QWEN3_8B).step_s * 1.001 < profile.step_s


def test_a_profile_in_which_time_stands_still_is_refused() -> None:
    """A step must take some time, or a run would never end."""
    with pytest.raises(
        ValueError, match="the costs of nothing must not be negative, and step_s must be above 0"
    ):
        HardwareProfile("nothing", 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", [1, 2])
def test_skipping_ahead_changes_nothing(name: str, seed: int) -> None:
    """Every time, gap and count is the same to the last bit as when each step is made."""
    played = [
        simulate(engine(name), small_load(seed), PROFILES["l4"], keep_times=True, skip=skip)
        for skip in (True, False)
    ]
    assert played[0].requests == played[1].requests
    assert played[0].steps == played[1].steps
    assert played[0].events < played[1].events


def test_skipping_ahead_changes_nothing_when_planning_is_ahead() -> None:
    """Nor with vLLM's asynchronous scheduling."""
    played = [
        simulate(engine("vllm", async_scheduling=True), small_load(3), PROFILES["l4"], skip=skip)
        for skip in (True, False)
    ]
    assert played[0].requests == played[1].requests


GOLDEN = {
    "vllm": (14453, 187),
    "sglang": (20530, 0),
    "tgi": (15825, 100),
    "tgi-2.4": (53907, 0),
    "trtllm": (65461, 0),
    "trtllm-max-utilization": (14130, 117),
    "llamacpp": (42977, 0),
}
"""Steps and preemptions of each engine."""


@pytest.mark.parametrize("name", ENGINES)
def test_the_same_seed_makes_the_same_run_to_the_event(name: str) -> None:
    """Steps and preemptions are golden: whoever changes a rule sees it here."""
    run = simulate(engine(name), small_load(0), PROFILES["l4"])
    assert (run.steps, run.preemptions) == GOLDEN[name]


@pytest.mark.parametrize("name", ENGINES)
def test_littles_law_holds(name: str) -> None:
    """Requests inside, on average over time, are the rate at which they come times the time that each stays."""
    run = simulate(engine(name), small_load(4), PROFILES["l4"])
    stays = sum(request.ended_s - request.asked_s for request in run.requests)
    assert run.mean_inside == pytest.approx(stays / run.duration_s, rel=1e-9)


def test_one_slot_is_a_queue_with_a_known_length() -> None:
    """Random calls, exponential answers, one server at 60 % load: 0.6 / (1 - 0.6) = 1.5 requests inside."""
    rng = generator("answers", 1)
    lengths = [(1, max(1, round(rng.expovariate(1 / 100)))) for _ in range(20_000)]
    hardware = HardwareProfile("a hundredth", 0.01, 0.0, 0.0, 0.0)
    workload = open_loop(poisson(1, len(lengths), 0.6), lengths)
    run = simulate(engine("vllm", max_num_seqs=1, num_gpu_blocks=1000), workload, hardware)
    assert run.mean_running == pytest.approx(0.6, rel=0.03)
    assert run.mean_inside == pytest.approx(1.5, rel=0.1)


def test_users_take_turns() -> None:
    """Two users, four calls of two steps each: the third call is made when the first answer has ended."""
    run = simulate(engine("vllm"), closed_loop(2, [(10, 2), (10, 3), (10, 2), (10, 2)]), SECOND)
    assert [(request.asked_s, request.ended_s) for request in run.requests] == [
        (0.0, 2.0),
        (0.0, 3.0),
        (2.0, 4.0),
        (3.0, 5.0),
    ]


def test_users_pause_before_their_turn() -> None:
    """The second call comes 1.5 s after the first answer."""
    calls = (WorkloadCall(Request(0, 10, 2), 0.0), WorkloadCall(Request(1, 10, 2), 1.5))
    run = simulate(engine("vllm"), Workload(calls, users=1), SECOND)
    assert [request.asked_s for request in run.requests] == [0.0, 3.5]


def test_a_client_hangs_up_when_its_patience_ends() -> None:
    """After 2.5 s it is gone with two tokens; a patience that suffices changes nothing."""
    calls = (
        WorkloadCall(Request(0, 10, 9), 0.0, patience_s=2.5),
        WorkloadCall(Request(1, 10, 2), 0.0, patience_s=9.0),
    )
    run = simulate(engine("vllm"), Workload(calls), SECOND)
    assert [(request.ending, request.answer_tokens) for request in run.requests] == [("left", 3), ("stop", 2)]
    assert run.requests[0].ended_s == run.duration_s == 3.0


def test_a_gap_in_which_a_client_hangs_up_counts() -> None:
    """Preempted at 1 s and gone at 3 s: two seconds of silence that no token ended."""
    calls = (WorkloadCall(Request(0, 4, 4), 0.0), WorkloadCall(Request(1, 4, 3), 0.0, patience_s=3.0))
    rule = engine("vllm", num_gpu_blocks=3, block_size=4)
    left = simulate(rule, Workload(calls), SECOND, freeze_after_s=2.0).requests[1]
    assert (left.ending, left.longest_gap_s, left.longest_gap_at_s, left.freezes) == ("left", 2.0, 1.0, 1)


def test_a_run_can_be_stopped() -> None:
    """After 3 s one answer is whole, and the other is not counted as served."""
    run = simulate(engine("vllm"), open_loop(burst(2), [(10, 2), (10, 9)]), SECOND, until_s=3.0)
    assert [request.ending for request in run.requests] == ["stop", "unfinished"]
    assert (run.duration_s, run.throughput, len(run.served)) == (3.0, 5 / 3, 1)


def test_refused_and_failed_requests_are_counted() -> None:
    """A prompt too long is refused; when llama.cpp's memory runs out both answers fail."""
    run = simulate(
        engine("llamacpp", ctx_size=40), open_loop(burst(3), [(10, 30), (10, 30), (50, 1)]), SECOND
    )
    assert [request.ending for request in run.requests] == ["error", "error", "refused"]
    assert run.failed_share == 1.0


def test_truncated_answers_are_counted() -> None:
    """One of two answers is cut at its limit of 5."""
    run = simulate(engine("vllm"), open_loop(burst(2), [(10, 4), (10, 9)], max_tokens=5), SECOND)
    assert run.truncated_share == 0.5


def test_memory_in_use_is_averaged_over_time() -> None:
    """A reservation of 16 + 16 tokens of 64 is taken throughout, while what is written grows from 16 to 31."""
    run = simulate(
        engine("trtllm", max_tokens_in_kv_cache=64, tokens_per_block=16),
        open_loop([0.0], [(16, 16)], max_tokens=16),
        SECOND,
    )
    assert run.kv_reserved == pytest.approx(0.5, abs=0.04)
    assert 0.3 < run.kv_used < 0.4


def test_a_run_of_nothing_has_no_figures() -> None:
    """Shares are 0 and spreads absent; nothing is divided by zero."""
    run = simulate(engine("vllm"), Workload(()), SECOND)
    assert (run.throughput, run.preempted_share, run.redone_share, run.freeze_s, run.ttft_s) == (
        0,
        0,
        0,
        None,
        None,
    )


def test_progress_is_told() -> None:
    """Every fifty requests that ended."""
    told: list[int] = []
    simulate(engine("vllm"), open_loop(burst(120), [(10, 2)] * 120), SECOND, progress=told.append)
    assert told == [50, 100]


def test_a_spread_has_the_median_and_the_p95_by_nearest_rank() -> None:
    """The median of an even number is halfway, and the p95 a value that was seen; a spread of nothing is absent."""
    assert spread([3.0, 1.0]) == Spread(median=2.0, p95=3.0, max=3.0, min=1.0)
    assert spread(list(range(1, 101))) == Spread(median=50.5, p95=95, max=100, min=1)
    assert spread([]) is None


def test_thousands_of_requests_take_few_events() -> None:
    """A thousand answers, 330,000 steps: nine in ten need no decision."""
    lengths = pairs(1, 1000, fixed(200), lognormal_by(mean=1000, p95=3000, most=8000))
    run: RunResult = simulate(
        engine("trtllm"), open_loop(burst(1000), lengths, max_tokens=8192), PROFILES["l4"]
    )
    assert len(run.served) == 1000
    assert run.events < run.steps / 10
    assert math.isfinite(run.throughput)
