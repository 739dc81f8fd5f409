"""How long waits last that end by themselves, and the stall timeout that follows."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.advice.survival import Quantile, Unsupported, curve_of, limit_for, needed
from midstream.advice.timeouts import (
    NoTimeout,
    TimeoutEffect,
    TimeoutGroup,
    TimeoutValue,
    WaitAdvice,
    advise_timeout,
    rounded_up_s,
)
from midstream.advice.timeouts_fleet import (
    FleetTimeout,
    fleet_timeout_verdict,
    fleet_timeouts,
    timeout_bounds,
)
from midstream.advice.timeouts_recovery import recovery_of, timeout_for
from midstream.advice.timeouts_waits import Waits, waits_of
from midstream.advice.timeouts_words import code_of, timeout_code, timeout_verdict
from midstream.sources.fleet import Bucket, Histogram, Summary
from midstream.stream.model import FreezeSpan, Outcome, StreamRecord
from midstream.telemetry.instruments import MODEL, OPERATION, PHASE
from support.records import a_record


def a_gap(seconds: float, phase: str = "text", **fields: Any) -> StreamRecord:
    """The record of a stream whose longest gap was this, and which went on."""
    return a_record(content_chunks=9, max_gap_s=seconds, max_gap_phase=phase, **fields)


def silent(seconds: float, outcome: Outcome = Outcome.CANCELLED, phase: str = "text") -> StreamRecord:
    """The record of a stream that ended in a gap that had lasted so long."""
    return a_gap(seconds, phase, max_gap_open=True, outcome=outcome, finish_reasons=())


def a_freeze(seconds: float, phase: str, **fields: bool) -> FreezeSpan:
    """A freeze that the caller waited for, and that ended."""
    return FreezeSpan(1.0, seconds, phase, **{"hidden": False, "shared": False, "open": False, **fields})  # type: ignore[arg-type]


def the_wait(records: list[StreamRecord], kind: str, **options: Any) -> WaitAdvice:
    """What is advised for one wait of these records, which are of one group."""
    (group,) = advise_timeout(records, **options).groups
    return next(wait for wait in group.waits if wait.kind == kind)


# Which records show which waits


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        (Outcome.LEFT_EARLY, "left"),
        (Outcome.CANCELLED, "cancelled"),
        (Outcome.TIMEOUT, "timed out"),
        (Outcome.ERROR, "cut"),
        (Outcome.NO_FINISH, "cut"),
    ],
)
def test_a_gap_in_which_the_stream_ended_may_have_been_longer(outcome: Outcome, cause: str) -> None:
    assert waits_of([silent(12.0, outcome), a_gap(3.0)], "text") == Waits((3.0,), ((12.0, cause),))  # type: ignore[arg-type]


def test_a_stream_that_was_left_between_two_gaps_had_no_longer_one() -> None:
    """A timeout above its longest gap would not have ended it."""
    left = a_gap(0.4, outcome=Outcome.LEFT_EARLY, finish_reasons=())
    assert waits_of([left], "text") == Waits((0.4,), ())


def test_a_gap_in_another_phase_than_that_of_the_longest_is_known_if_it_was_a_freeze() -> None:
    """Else it was shorter than a freeze of its phase: 5 s here, as the text of other streams shows."""
    froze = a_gap(40.0, "reasoning", freeze_after_s=20.0, freeze_spans=(a_freeze(8.0, "text"),))
    smooth = a_gap(40.0, "reasoning", freeze_after_s=20.0)
    short = a_gap(2.0, "reasoning", freeze_after_s=20.0)
    records = [froze, smooth, short, a_gap(0.5, freeze_after_s=5.0)]
    assert waits_of(records, "text") == Waits((8.0, 0.5), (), (5.0, 2.0))
    assert waits_of(records, "reasoning") == Waits((40.0, 40.0, 2.0), ())


def test_without_a_known_threshold_a_gap_is_no_longer_than_the_longest() -> None:
    records = [a_gap(40.0, "reasoning"), a_gap(0.5, freeze_after_s=None)]
    assert waits_of(records, "text") == Waits((0.5,), (), (40.0,))


def test_freezes_that_the_caller_did_not_wait_for_do_not_count() -> None:
    """The stall timeout never ends a stream of a busy caller."""
    busy = a_gap(0.2, freeze_spans=(a_freeze(30.0, "text", hidden=True),))
    assert waits_of([busy], "text") == Waits((0.2,), ())


def test_only_streams_that_were_in_a_phase_count_in_it() -> None:
    """Reasoning tokens or a call of a tool show it, and an answer that ended in a call need have no text."""
    thought = a_gap(1.0, reasoning_tokens=40)
    called = a_gap(2.0, "tool_call", finish_reasons=("tool_calls",))
    assert waits_of([thought, called], "text") == Waits((1.0,), ())
    assert waits_of([thought, called], "reasoning") == Waits((), (), (1.0,))
    assert waits_of([thought, called], "tool_call") == Waits((2.0,), ())


def test_streams_that_show_no_gap_are_left_out_and_counted() -> None:
    found = waits_of([a_record(), a_gap(0.0, buffered=True), a_gap(1.0)], "text")
    assert found == Waits((1.0,), (), (), 2)


def test_the_wait_for_the_first_content_is_as_long_as_the_stream_if_none_came() -> None:
    """An empty answer had no content to wait for."""
    came = a_record(time_to_first_content_s=0.4)
    none = a_record(content_chunks=0, outcome=Outcome.TIMEOUT, duration_s=60.0)
    empty = a_record(content_chunks=0, outcome=Outcome.EMPTY)
    assert waits_of([came, none, empty], "first_content") == Waits((0.4,), ((60.0, "timed out"),), (), 1)


# The estimator


def test_without_waits_that_were_given_up_it_is_the_curve_of_the_answers() -> None:
    """Kaplan and Meier's, with Greenwood's log-log band, as SciPy has it."""
    ended = [random.Random(3).expovariate(1.0) for _ in range(500)]
    plain = curve_of([max(1, round(1000 * each)) for each in ended], [])
    found = recovery_of(ended, [])
    assert (found.never, found.silent, found.unseen) == (0.0, 0, 0.0)
    assert found.curve.longer == pytest.approx(plain.longer)
    assert found.curve.low[:-1] == pytest.approx(plain.low[:-1])
    assert found.curve.high[:-1] == pytest.approx(plain.high[:-1])
    assert timeout_for(found, 0.05) == limit_for(plain, 0.05)


def test_waits_that_outlast_all_others_never_end_by_hand() -> None:
    """Of 1, 2, 3, 4 s and two given up at 100 s a third never ends; of the rest a half lasts longer than 2 s."""
    found = recovery_of([1.0, 2.0, 3.0, 4.0], [100.0, 100.0])
    assert found.never == pytest.approx(1 / 3)
    assert (found.silent, found.followed) == (2, 2)
    assert found.curve.lengths == (1000, 2000, 3000, 4000)
    assert found.curve.longer == pytest.approx((0.75, 0.5, 0.25, 0.0))
    assert found.unseen == pytest.approx(0.5 * (1 - 0.025**0.5))


def test_a_wait_that_was_given_up_early_counts_as_far_as_it_may_have_ended_by_hand() -> None:
    """Ended at 1 and 3 s, given up at 2 and 50 s: S is 3/4, then 3/8; of those that end, 3/5 last longer than 1 s."""
    found = recovery_of([1.0, 3.0], [2.0, 50.0])
    assert found.never == pytest.approx(3 / 8)
    assert found.curve.lengths == (1000, 2000, 3000)
    assert found.curve.longer == pytest.approx((0.6, 0.6, 0.0))


@given(
    ended=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    given_up=st.lists(st.integers(1, 80), max_size=20),
)
def test_the_weighted_curve_is_what_lies_above_the_share_that_never_ends(
    ended: list[int], given_up: list[int]
) -> None:
    """(S - S(end)) / (1 - S(end)), with S from SciPy."""
    found = recovery_of(ended, given_up)
    whole = curve_of([1000 * each for each in ended], [1000 * each for each in given_up])
    known = dict(zip(whole.lengths, whole.longer, strict=True))
    wanted = [(known[each] - found.never) / (1 - found.never) for each in found.curve.lengths]
    assert found.curve.longer == pytest.approx(wanted, abs=1e-9)


def test_few_waits_that_were_watched_for_long_do_not_show_that_the_rest_would_not_end() -> None:
    """2 % never ended; of those one was watched for twice as long as the longest that ended, or 300 were."""
    ended = [0.01 * n for n in range(1, 15_001)]
    few = timeout_for(recovery_of(ended, [160.0] * 300 + [400.0]), 0.01)
    assert isinstance(few, Unsupported)
    assert (few.more, few.stops_at) == (0, 150_000)
    assert isinstance(timeout_for(recovery_of(ended, [160.0] + [400.0] * 300), 0.01), Quantile)


def test_ten_minutes_are_long_enough_to_watch() -> None:
    """The openai SDK's own timeout ends a silent read then."""
    assert recovery_of([1.0, 500.0], [600.0, 999.0, 1001.0]).followed == 3
    assert recovery_of([1.0, 100.0], [199.0, 200.0]).followed == 1


def test_more_of_the_same_help_if_those_that_never_end_were_watched_for_long() -> None:
    """Ten that do not go on, and 1,000 that do: 0.2 % takes six times as many, as one in a thousand alone would."""
    ended = [n / 250 for n in range(1, 1001)]
    few = timeout_for(recovery_of(ended, [300.0] * 10), 0.002)
    assert isinstance(few, Unsupported)
    assert few.more == needed(0.001) - 1000 == 4778
    assert isinstance(timeout_for(recovery_of(ended * 6, [300.0] * 60), 0.002), Quantile)


def test_without_a_wait_that_ended_there_is_no_timeout() -> None:
    found = timeout_for(recovery_of([], [3.0, 4.0]), 0.01)
    assert isinstance(found, Unsupported)


# The advice


def many(seed: int = 1, dead: int = 0) -> list[StreamRecord]:
    """12,000 streams with gaps of up to 8 s, and some that were silent until a time limit of ten minutes."""
    drawn = random.Random(seed)
    records = [a_gap(8 * drawn.random(), time_to_first_content_s=0.5) for _ in range(12_000)]
    return records + [silent(600.0, Outcome.TIMEOUT) for _ in range(dead)]


def test_streams_that_never_go_on_do_not_make_the_timeout_longer() -> None:
    """A plain quantile would be 600 s: one stream in three hundred never ended."""
    for dead in (0, 40):
        value = the_wait(many(dead=dead), "text").value
        assert isinstance(value, TimeoutValue)
        assert 7.9 < value.low_s <= value.estimate_s <= value.high_s <= 8.001
        assert value.advised_s == 8.0


def test_what_a_timeout_would_have_done_is_counted() -> None:
    """Of gaps of 1, ..., 100 s and ten that were given up at 600 s."""
    records = [a_gap(float(n)) for n in range(1, 101)] + [silent(600.0)] * 10
    (effect,) = (
        each for each in the_wait(records, "text", timeouts_s=[91.0]).effects if each.timeout_s == 91.0
    )
    assert effect == TimeoutEffect(91.0, 110, 20, 10, 4.5, 5090.0, 0, effect.share, effect.low, effect.high)
    assert effect.share == pytest.approx(0.1)


def test_streams_whose_longest_gap_was_in_another_phase_may_be_ended_too() -> None:
    records = [a_gap(1.0, freeze_after_s=None)] * 5 + [a_gap(50.0, "reasoning", freeze_after_s=None)] * 3
    wait = the_wait(records, "text", kill=0.5, timeouts_s=[20.0])
    assert {each.timeout_s: each.unknown for each in wait.effects} == {
        10.0: 3, 20.0: 3, 30.0: 3, 51.0: 0, 60.0: 0, 120.0: 0, 300.0: 0,
    }  # fmt: skip


def test_the_interval_begins_where_unknown_gaps_would_be_none() -> None:
    """Of 2,000 streams with gaps of up to 1 s in text a half also had one of reasoning, of 50 s."""
    records = [a_gap(n / 1000, freeze_after_s=None) for n in range(1, 1001)]
    thought = [a_gap(50.0, "reasoning", freeze_after_s=None)] * 1000
    value = the_wait([*records, *thought], "text", kill=0.1).value
    assert isinstance(value, TimeoutValue)
    assert value.low_s < 1.0
    assert value.estimate_s == pytest.approx(50.0, abs=0.01)


def test_thin_data_are_refused_with_what_is_needed() -> None:
    """The interval of one in a thousand needs 5,778 streams."""
    wait = the_wait([a_gap(n / 100) for n in range(1, 201)], "text")
    assert wait.value == NoTimeout(0.001, 5578, 0, 0, 2.0, 1.99, 0.95)
    assert wait.advised_effect is None
    assert timeout_verdict(wait) == (
        "Which timeout in text ends 0.1 % of the streams that would go on cannot be determined from 200 streams: about "
        "5,600 more are needed. What is known: it is 1.99 s or more (95 % interval)."
    )


def test_streams_that_were_not_watched_for_long_are_told() -> None:
    """More of the same would not help."""
    records = many() + [silent(12.0)] * 80
    assert timeout_verdict(the_wait(records, "text")).startswith(
        "Which timeout in text ends 0.1 % of the streams that would go on cannot be determined: 80 streams ended while "
        "silent for longer than any wait that ended by itself (8.00 s), and 0 of them were watched for twice as long "
        "or ten minutes: too few to know that the others would not have gone on. Let streams wait longer for a while, "
        "or allow a larger share with --kill."
    )


def test_the_advice_is_a_sentence_and_a_line_of_code() -> None:
    """For each group one."""
    thought = [a_gap(3 * n / 8000 - 0.0001, "reasoning", reasoning_tokens=5) for n in range(1, 8001)]
    (group,) = advise_timeout([*many(dead=40), *thought]).groups
    assert timeout_verdict(group.waits[0]) == (
        'Set stall_timeout_s["text"] to 8: it ends at most 0.1 % of the streams that would go on (estimate '
        f"{group.waits[0].value.estimate_s:.2f} s, 95 % interval {group.waits[0].value.low_s:.2f} s to "  # type: ignore[union-attr]
        "7.99 s); it would have ended 40 of 20,040 streams, of which 0 went on by themselves, and saved 6.6 h of "
        "waiting."
    )
    assert timeout_code(group) == (
        'client = midstream.monitor(client, stall_timeout_s={"text": 8, "reasoning": 3}, first_content_timeout_s=1)'
    )


def test_without_advice_there_is_no_line_of_code() -> None:
    assert timeout_code(TimeoutGroup("m", "chat", 0, ())) is None
    assert code_of({"first_content": 9.0}) == "client = midstream.monitor(client, first_content_timeout_s=9)"


def test_models_are_apart_unless_they_are_taken_together() -> None:
    records = [a_gap(1.0), a_gap(2.0, request_model="big"), a_gap(3.0, request_model="big")]
    assert [(each.model, each.streams) for each in advise_timeout(records).groups] == [("big", 2), ("m", 1)]
    assert [each.streams for each in advise_timeout(records, by_group=False).groups] == [3]
    nothing = advise_timeout([a_record(request_model="mute")])
    assert (nothing.groups, nothing.without_waits) == ((), 1)


@pytest.mark.parametrize(("kill", "confidence"), [(0.0, 0.95), (1.0, 0.95), (0.1, 1.5)])
def test_shares_that_are_none_are_refused(kill: float, confidence: float) -> None:
    with pytest.raises(ValueError, match="must be above 0 and below 1"):
        advise_timeout([a_gap(1.0)], kill=kill, confidence=confidence)


@pytest.mark.parametrize(
    ("seconds", "rounded"), [(0.02, 1), (9.0, 9), (9.001, 10), (99.1, 100), (101.0, 110), (300.0, 300)]
)
def test_a_timeout_is_rounded_up(seconds: float, rounded: float) -> None:
    assert rounded_up_s(seconds) == rounded


# Fleets


def a_fleet(above_10: float, above_30: float = 0.0, *, not_completed: float = 0.0) -> list[Summary]:
    """10,000 streams with gaps in text, so many longer than 10 and 30 s, as metrics with phases have them."""
    gaps = (Bucket(0, 10, 10_000 - above_10), Bucket(10, 30, above_10 - above_30), Bucket(30, 60, above_30))
    ended = {("completed", "stop"): 10_000 - not_completed, ("cancelled", "none"): not_completed}
    labels = {MODEL: "m", OPERATION: "chat"}
    return [
        Summary({**labels, PHASE: "text"}, max_gap=Histogram(gaps)),
        Summary({**labels, PHASE: ""}, ended=ended, max_gap=Histogram(())),
    ]


def test_a_fleets_timeout_is_the_end_of_a_bucket() -> None:
    """60 in 10,000 exceeded 10 s, fewer than one in a hundred; all of them may have gone on."""
    (found,) = fleet_timeouts(a_fleet(60), 0.01)
    assert (found.model, found.operation, found.kind) == ("m", "chat", "text")
    assert (found.bounds.low_s, found.bounds.high_s, found.bounds.ended) == (0.0, 10.0, 60.0)
    assert fleet_timeout_verdict(found) == (
        'Set stall_timeout_s["text"] to 10 at most: the smallest timeout that ends 1 % of the streams that would go on '
        "is above 0 s, and at most that; a journal has the exact gaps."
    )


def test_streams_of_a_fleet_that_did_not_complete_may_or_may_not_have_gone_on() -> None:
    """If all 150 beyond 10 s would have, 10 s ends too many; if none, it ends none: between 0 and 30 s."""
    (found,) = fleet_timeouts(a_fleet(150, 20, not_completed=200), 0.01)
    assert (found.bounds.low_s, found.bounds.high_s, found.bounds.not_completed) == (0.0, 30.0, 200.0)
    (all_went_on,) = fleet_timeouts(a_fleet(150, 20), 0.01)
    assert (all_went_on.bounds.low_s, all_went_on.bounds.high_s) == (10.0, 30.0)


def test_too_few_streams_of_a_fleet_are_refused() -> None:
    (found,) = fleet_timeouts(a_fleet(60), 0.0001)
    assert found.bounds.high_s is None
    assert fleet_timeout_verdict(found) == (
        "Which timeout in text ends 0.01 % of the streams that would go on cannot be determined from 10,000 streams: "
        "about 27,000 more are needed; it is above 10.0 s."
    )


def test_waits_beyond_the_last_bound_give_no_timeout() -> None:
    bounds = timeout_bounds(Histogram((Bucket(0, 600, 9_000), Bucket(600, float("inf"), 1_000))), 0.01)
    assert (bounds.low_s, bounds.high_s, bounds.more) == (600.0, None, 0)
    assert fleet_timeout_verdict(FleetTimeout("m", "chat", "reasoning", bounds)) == (
        "Which timeout in reasoning ends 1 % of the streams that would go on cannot be determined: more streams than "
        "that waited for longer than the last bound, and metrics do not show which of them went on. Use a journal; it "
        "is above 10 min."
    )


def test_metrics_without_phases_give_one_timeout_for_all() -> None:
    """And the time to the first content has its own."""
    gaps, first = Histogram((Bucket(0, 5, 9_999), Bucket(5, 10, 1))), Histogram((Bucket(0, 2, 10_000),))
    summary = Summary({MODEL: "m", OPERATION: "chat"}, max_gap=gaps, first_content=first)
    found = {each.kind: each.bounds.high_s for each in fleet_timeouts([summary], 0.01)}
    assert found == {None: 5.0, "first_content": 2.0}
    assert fleet_timeout_verdict(fleet_timeouts([summary], 0.01)[1]).startswith(
        "Set stall_timeout_s to 5 at most"
    )
