"""A cap that is advised keeps its promise: the model is fitted to the journal, held to it, and gives intervals."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from midstream.advice import CapAdvice, CapGoal, advise_concurrency
from midstream.advice.calibration import calibrate
from midstream.advice.load import load_of
from midstream.advice.pool import Pool, pool_of_view
from midstream.journal import read
from midstream.lab.admission import engine
from midstream.lab.hardware import PROFILES, HardwareProfile
from midstream.lab.simulator import simulate
from midstream.lab.workload import closed_loop, lognormal_by, pairs
from midstream.sources.server import view_of
from midstream.stream.model import StreamRecord
from support.paths import RECORDINGS
from support.records import a_record

JOURNALS = RECORDINGS / "journals"
CAPPED_AT = datetime(2026, 11, 30, 20, 48, 38, tzinfo=timezone.utc).timestamp()
TRUTH = HardwareProfile("truth", 0.010, 0.001, 2e-6, 0.0005, latency_s=0.05)


def simulated(
    users: int, *, pool: int = 3200, count: int = 200, rate: float | None = None
) -> list[StreamRecord]:
    """What a journal holds of a simulated vLLM with blocks of 16 tokens."""
    lengths = pairs(3, count, lognormal_by(mean=60, p95=120), lognormal_by(mean=200, p95=500, most=900))
    calls = closed_loop(users, lengths)
    rule = engine("vllm", num_gpu_blocks=pool // 16, max_num_seqs=max(256, users))
    run = simulate(rule, calls, TRUTH, freeze_after_s=1.0)
    return [
        a_record(
            started_at=1.7e9 + each.asked_s,
            duration_s=each.ended_s - each.asked_s,
            time_to_first_content_s=each.ttft_s,
            input_tokens=each.prompt_tokens,
            output_tokens=each.answer_tokens,
            content_chunks=each.answer_tokens,
            max_gap_s=each.longest_gap_s,
            max_gap_at_s=None if each.longest_gap_at_s is None else each.longest_gap_at_s - each.asked_s,
            freezes=each.freezes,
            frozen_s=each.frozen_s,
            freeze_after_s=1.0,
        )
        for each in sorted(run.served, key=lambda each: each.asked_s)
    ]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[StreamRecord], list[StreamRecord]]:
    """The same 120 requests to a real vLLM twice: without a cap, and with `--max-num-active-seqs 5`."""
    copy = shutil.copy(JOURNALS / "vllm_cap5.db", tmp_path_factory.mktemp("pair") / "streams.db")
    records = read(Path(copy)).records
    return (
        [record for record in records if record.started_at < CAPPED_AT],
        [record for record in records if record.started_at >= CAPPED_AT],
    )


def of_the_pair(records: list[StreamRecord], cap: int | None) -> CapAdvice:
    """The advice from its journal and its page."""
    view = view_of((JOURNALS / "vllm_cap5_metrics.txt").read_text())
    return advise_concurrency(
        records, pool_of_view(view), server=view, cap_now=cap, goals=[CapGoal("freeze-share", 0.1)], seeds=3
    )


@pytest.mark.parametrize(("side", "cap", "frozen", "tokens"), [(0, None, 0.225, 169), (1, 5, 0.083, 131)])
def test_a_real_server_is_reproduced_with_and_without_its_cap(
    pair: tuple[list[StreamRecord], list[StreamRecord]],
    side: int,
    cap: int | None,
    frozen: float,
    tokens: float,
) -> None:
    """Within 10 points of the measured frozen share and 15 % of the tokens a second, its users in turn."""
    advice = of_the_pair(pair[side], cap)
    today = advice.today
    assert today is not None
    assert today.measured.frozen == pytest.approx(frozen, abs=0.001)
    assert today.measured.tokens_per_s == pytest.approx(tokens, abs=1)
    shares, speeds = today.each("frozen"), today.each("tokens_per_s")
    assert sum(shares) / len(shares) == pytest.approx(frozen, abs=0.10)
    assert sum(speeds) / len(speeds) == pytest.approx(tokens, rel=0.15)
    assert today.disagrees is None
    assert advice.config.users == 10
    assert (advice.config.block_size, dict(advice.config.settings)) == (
        128,
        {"block_size": 128, "enable_prefix_caching": True},
    )


def test_the_interval_for_the_cap_that_was_set_holds_what_happened(
    pair: tuple[list[StreamRecord], list[StreamRecord]],
) -> None:
    """From the first half of the journal alone: 8.3 % froze with a cap of 5, at 131 tokens/s."""
    from midstream.advice.promise import RUNS, promise_of

    advice = of_the_pair(pair[0], None)
    assert advice.today is not None
    promise = promise_of(advice.config.trial(5, range(RUNS), lambda: None), advice.today)
    assert promise is not None
    assert promise.tokens_per_s is not None
    assert promise.frozen[0] <= 0.083 <= promise.frozen[1] < 0.2
    assert promise.tokens_per_s[0] <= 131 <= promise.tokens_per_s[1]


def test_a_cap_that_nobody_named_is_noticed(pair: tuple[list[StreamRecord], list[StreamRecord]]) -> None:
    """Simulated without one, far more answers freeze than did: no promise, and a sentence."""
    advice = of_the_pair(pair[1], None)
    assert advice.today is not None
    assert advice.today.disagrees is not None
    assert "--cap-now" in advice.today.disagrees
    assert advice.promise is None


def test_the_costs_of_a_step_are_found_again() -> None:
    """A token with 8 at once takes 10 + 8 ms and what the context costs; prefill and latency apart."""
    records = simulated(8, pool=16_000)
    found = calibrate(records, load_of(records), 8, PROFILES["l4"])
    assert found.known
    assert found.error is not None
    assert found.error < 0.05
    assert found.profile.decode_s(8, 1300) == pytest.approx(TRUTH.decode_s(8, 1300), rel=0.05)
    assert found.profile.prefill_token_s == pytest.approx(0.0005, rel=0.5)
    assert found.profile.latency_s == pytest.approx(0.05, abs=0.05)
    assert found.of_seed(0) == found.profile != found.of_seed(1)


def test_without_a_pace_the_given_hardware_counts_and_no_second_is_compared() -> None:
    """Answers that arrived in one burst show lengths and no pace."""
    records = [replace(record, buffered=True) for record in simulated(8)]
    found = calibrate(records, load_of(records), 8, PROFILES["h100"])
    assert not found.known
    assert found.profile == PROFILES["h100"]
    advice = advise_concurrency(records, 3200, seeds=1, requests=50)
    assert advice.today is not None
    assert not advice.today.paced
    assert advice.promise is None or advice.promise.tokens_per_s is None


def test_users_in_turn_are_recognised() -> None:
    """Twelve users without a pause: as many are open all the time, which calls as they came do not give."""
    advice = advise_concurrency(simulated(12), Pool(3200, "as given"), seeds=3, requests=100)
    assert advice.config.users == 12


def test_users_begin_as_far_apart_as_they_began() -> None:
    """So users in step stay in step: equal lengths make them need memory at the same time."""
    records = [
        a_record(
            started_at=1e9 + 0.1 * (n % 4) + 10.0 * (n // 4),
            duration_s=9.0,
            input_tokens=10,
            output_tokens=100,
            content_chunks=100,
        )
        for n in range(40)
    ]
    load = load_of(records)
    calls = load.as_logged(0, 4, 12).calls
    assert [call.at_s for call in calls[:4]] == pytest.approx([0.0, 0.1, 0.2, 0.3], abs=1e-6)
    assert [call.at_s for call in calls[4:]] == pytest.approx([1.0] * 8, abs=1e-6)
