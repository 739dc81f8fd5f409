"""Whether a change did good: intervals against known truth, verdicts, and how much more data it takes."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.advice.before_after import CompareGoal, Comparison, Side, compare
from midstream.advice.comparison_words import verdict
from midstream.advice.intervals import (
    design_effect,
    newcombe,
    quantile_difference,
    quantile_interval,
    rate_ratio,
)
from midstream.advice.sides import Values, side_of_fleet, side_of_records
from midstream.sources.fleet import Fleet, Slice, Summary, classic
from midstream.stream.model import Outcome, StreamRecord
from support.records import a_record


def side(
    streams: int = 1000,
    froze: int = 50,
    *,
    gap: float = 7.0,
    first: float = 0.5,
    rate: float = 100.0,
    seed: int = 1,
) -> Side:
    """A side with as many streams, of which so many froze for `gap` seconds each, one after the other."""
    drawn = random.Random(seed)
    frozen = set(drawn.sample(range(streams), froze))
    records = [
        a_record(
            started_at=10.0 * index,
            duration_s=9.0,
            max_gap_s=gap if index in frozen else drawn.uniform(0.05, 0.3),
            freezes=int(index in frozen),
            time_to_first_content_s=first * drawn.uniform(0.5, 1.5),
            output_tokens=round(9 * rate * drawn.uniform(0.9, 1.1)),
        )
        for index in range(streams)
    ]
    return side_of_records(records, 5.0)


def judged(comparison: Comparison) -> tuple[str, ...]:
    """The four answers."""
    return tuple(
        each.judgement for each in (comparison.froze, comparison.tail, comparison.tokens, comparison.first)
    )


def test_fewer_freezes_at_the_same_speed_is_better() -> None:
    """With what decided it in the sentence."""
    found = compare(side(froze=60), side(froze=2, seed=2))

    assert found.verdict == "better"
    assert judged(found) == ("better", "better", "same", "same")
    said = verdict(found, CompareGoal())
    assert said.startswith("Better: the share of streams that froze fell from 6 % to 0.2 %; the longest gap")
    assert "fell from 7.00 s to 0.30 s; tokens per second are at 99.9 % of before" in said


def test_more_freezes_is_worse() -> None:
    """The same the other way round."""
    found = compare(side(froze=2), side(froze=60, seed=2))

    assert found.verdict == "worse"
    assert verdict(found, CompareGoal()).startswith(
        "Worse: the share of streams that froze rose from 0.2 % to 6 %"
    )


def test_freezes_that_were_bought_too_dearly_are_worse() -> None:
    """A cap that is too low: nothing freezes, and everybody waits."""
    slow = compare(side(froze=60), side(froze=2, rate=60, seed=2))
    late = compare(side(froze=60), side(froze=2, first=14, seed=2))

    assert (slow.verdict, slow.tokens.judgement) == ("worse", "worse")
    assert verdict(slow, CompareGoal()).startswith(
        "Worse: tokens per second fell by 40 %, more than the 10 % to give up, although"
    )
    assert (late.verdict, late.first.judgement) == ("worse", "worse")
    assert "beyond the 10 s that are bearable" in verdict(late, CompareGoal())
    both = compare(side(froze=60), side(froze=2, rate=60, first=14, seed=2))
    assert "more than the 10 % to give up, and the first content now takes" in verdict(both, CompareGoal())
    assert (
        compare(side(froze=60), side(froze=2, rate=60, seed=2), CompareGoal(give_up=0.5)).verdict == "better"
    )
    assert (
        compare(side(froze=60), side(froze=2, first=14, seed=2), CompareGoal(bearable_s=30)).verdict
        == "better"
    )


def test_a_wait_that_was_never_bearable_is_no_fault_of_the_change() -> None:
    """It was as long before."""
    found = compare(side(froze=60, first=20), side(froze=2, first=15, seed=2))

    assert (found.verdict, found.first.judgement) == ("better", "same")


def test_no_change_is_found_where_the_data_could_have_shown_one() -> None:
    """Hardly any stream froze, on either side, of many."""
    found = compare(side(2000, froze=2), side(2000, froze=3, seed=2))

    assert (found.verdict, found.more_streams) == ("unchanged", None)
    assert verdict(found, CompareGoal()).startswith(
        "No difference: 0.15 % of the streams froze, and 0.1 % before"
    )


def test_few_streams_cannot_tell_and_say_how_many_more_it_takes() -> None:
    """And with so many it can indeed be told."""
    found = compare(side(40, froze=3), side(40, froze=1, seed=2))
    assert found.verdict == "cannot tell"
    assert found.more_streams is not None
    assert f"about {found.more_streams:,} more streams on each side would decide it" in verdict(
        found, CompareGoal()
    )

    factor = 1.3 * (40 + found.more_streams) / 40  # shares of whole streams, and another design effect
    more = compare(
        side(round(40 * factor), froze=round(3 * factor)),
        side(round(40 * factor), froze=round(factor), seed=2),
    )
    assert more.froze.judgement == "better"
    assert 40 < found.more_streams < 2000


def test_hardly_any_streams_say_nothing_at_all() -> None:
    """Not even an interval."""
    found = compare(side(3, froze=1), side(3, froze=0))

    assert (found.verdict, judged(found)[0]) == ("cannot tell", "unknown")
    assert verdict(found, CompareGoal()).startswith("Too little data to tell; about")


def test_a_p99_of_few_streams_is_not_known() -> None:
    """It would be the largest value and no more."""
    found = compare(side(99, froze=20), side(99, froze=0, seed=2))

    assert (found.tail.judgement, found.tail.why) == ("unknown", "it takes 100 streams on each side")
    assert found.verdict == "better"


def test_streams_that_freeze_together_tell_less() -> None:
    """One overload of fifty streams is one event, and so is its absence."""

    def at(frozen: range) -> Side:
        return side_of_records(
            [
                a_record(
                    started_at=float(i),
                    duration_s=5.0,
                    max_gap_s=8.0 if i in frozen else 0.1,
                    output_tokens=50,
                )
                for i in range(1000)
            ],
            5.0,
        )

    apart = compare(at(range(0, 1000, 20)), at(range(0)))
    together = compare(at(range(400, 450)), at(range(0)))

    assert apart.design_effect == 1.0
    assert apart.froze.judgement == "better"
    assert together.design_effect > 15
    assert together.froze.judgement == "unclear"
    assert together.notes[0] == (
        f"freezes cluster in time (design effect {together.design_effect:.1f}); the intervals are widened accordingly"
    )


def test_another_load_is_said() -> None:
    """Half as many users freeze less, whatever was changed."""
    busy = side_of_records(
        [a_record(started_at=i / 2, duration_s=10.0, max_gap_s=0.1) for i in range(100)], 5.0
    )
    idle = side_of_records(
        [a_record(started_at=i * 2.0, duration_s=10.0, max_gap_s=0.1) for i in range(100)], 5.0
    )

    assert busy.at_once == pytest.approx(16.8, abs=0.1)
    assert (
        "the load was not the same: 4.8 streams were open at once, and 16.8 before"
        in compare(busy, idle).notes[0]
    )


def test_a_side_counts_what_could_be_seen() -> None:
    """A buffered answer hides its gaps, and tokens that were not reported are no zero."""
    records = [
        a_record(
            started_at=0.0, duration_s=10.0, max_gap_s=6.0, time_to_first_content_s=1.0, output_tokens=90
        ),
        a_record(started_at=0.0, duration_s=10.0, max_gap_s=9.0, buffered=True, output_tokens=None),
        a_record(started_at=100.0, duration_s=10.0, max_gap_s=None, content_chunks=0, output_tokens=None),
    ]
    found = side_of_records(records, 6.0)

    assert (found.streams, found.judged, found.froze) == (3, 1, 1)
    assert found.tokens_per_s is None
    assert "1 of 2 streams reported no tokens" in found.notes[0]
    assert (found.since, found.until, found.at_once) == (0.0, 110.0, 1.5)


def streams(outcomes: dict[Outcome, int], *, chunk: int) -> list[StreamRecord]:
    """So many of each outcome, ten seconds each, with 80 tokens if they completed and 40 if not, `chunk` at a time."""
    return [
        a_record(
            started_at=1000.0 * index,
            duration_s=10.0,
            max_gap_s=0.1,
            time_to_first_content_s=2.0,
            outcome=outcome,
            output_tokens=80 if outcome is Outcome.COMPLETED else None,
            content_chunks=(80 if outcome is Outcome.COMPLETED else 40) // chunk,
        )
        for index, outcome in enumerate(each for each, count in outcomes.items() for _ in range(count))
    ]


def test_streams_that_were_left_are_counted_by_their_chunks() -> None:
    """Usage comes at the end, which they did not see: 120 of 80 tokens and 30 of 40, in 1,500 s."""
    found = side_of_records(
        streams({Outcome.COMPLETED: 120, Outcome.LEFT_EARLY: 20, Outcome.CANCELLED: 10}, chunk=1), 5.0
    )

    assert found.tokens_per_s == pytest.approx(7.2)
    assert (found.notes, found.why_no_tokens) == ((), "")


@pytest.mark.parametrize(
    ("outcome", "chunk", "remedy"),
    [
        (
            Outcome.LEFT_EARLY,
            4,
            "their callers left before the end, where usage comes, and a chunk of theirs",
        ),
        (Outcome.ERROR, 1, "include_usage=True makes servers report them"),
    ],
)
def test_tokens_are_refused_with_the_reason(outcome: Outcome, chunk: int, remedy: str) -> None:
    """Nine of 150 are 6 %, more than may; it is not that streams are too few."""
    known = side_of_records(streams({Outcome.COMPLETED: 150}, chunk=chunk), 5.0)
    found = side_of_records(streams({Outcome.COMPLETED: 141, outcome: 9}, chunk=chunk), 5.0)
    compared = compare(known, found)

    assert compared.tokens.why == "after, 9 of 150 reported no tokens; at most 5 % may"
    assert compared.tokens.judgement == "unknown"
    assert found.notes[0].startswith(f"9 of 150 streams reported no tokens; {remedy}")


def test_tokens_are_counted_while_they_came() -> None:
    """And time in which no stream was open does not count."""
    records = [
        a_record(
            started_at=1000.0 * i,
            duration_s=10.0,
            max_gap_s=0.1,
            time_to_first_content_s=2.0,
            output_tokens=80,
        )
        for i in range(50)
    ]

    assert side_of_records(records, 5.0).tokens_per_s == pytest.approx(8.0)


def test_a_side_of_a_fleet_is_what_its_histograms_say() -> None:
    """The threshold must be a bound, or nearly."""
    gaps = classic([(1.0, 900), (5.0, 950), (10.0, 999), (math.inf, 1000)], 900.0)
    pieces = tuple(Slice(float(i), 60.0, 100.0, 5.0, 6000.0) for i in range(10))
    summary = Summary(
        {}, ended={("completed", "stop"): 1010}, max_gap=gaps, duration=classic([(math.inf, 1010)], 3000.0)
    )
    fleet = Fleet(0.0, 600.0, (summary,), pieces, ("there are data from noon on only",))

    found = side_of_fleet(fleet, 5.0)
    assert (found.streams, found.judged, found.froze, found.tokens_per_s) == (1010, 1000, 50, 100.0)
    assert found.at_once == 5.0
    assert found.notes == ("there are data from noon on only",)
    with pytest.raises(ValueError, match="no bound at 7 s"):
        side_of_fleet(fleet, 7.0)
    with pytest.raises(ValueError, match="no histogram of gaps"):
        side_of_fleet(Fleet(0.0, 1.0, (Summary({}),)), 5.0)


def test_idle_time_of_a_fleet_is_no_time_as_it_is_none_in_a_journal() -> None:
    """Ten minutes with a stream open for 12 s of each: 600 tokens in 120 s are 5 a second, and not 1."""
    gaps = classic([(5.0, 100), (math.inf, 100)])
    summary = Summary(
        {}, ended={("completed", "stop"): 100}, max_gap=gaps, duration=classic([(math.inf, 100)], 240.0)
    )
    pieces = [Slice(60.0 * i, 12.0, 10.0, 0.0, 60.0) for i in range(10)]
    idle = [Slice(600.0 + 60.0 * i, 0.0, 0.0, 0.0, 0.0) for i in range(30)]
    running = Slice(2400.0, 60.0, 0.0, 0.0, 300.0)

    found = side_of_fleet(Fleet(0.0, 2400.0, (summary,), (*pieces, *idle)), 5.0)
    assert (found.tokens_per_s, found.at_once, len(found.slices)) == (5.0, 2.0, 10)
    longer = side_of_fleet(Fleet(0.0, 2460.0, (summary,), (*pieces, *idle, running)), 5.0)
    assert longer.tokens_per_s == pytest.approx(900 / 180)


def test_a_fleet_whose_metrics_do_not_show_when_streams_were_open_has_no_tokens_per_second() -> None:
    """An older version, or a scrape that drops gauges."""
    gaps = classic([(5.0, 100), (math.inf, 100)])
    summary = Summary(
        {}, ended={("completed", "stop"): 100}, max_gap=gaps, duration=classic([(math.inf, 100)], 240.0)
    )
    pieces = tuple(Slice(60.0 * i, None, 10.0, 0.0, 60.0) for i in range(10))
    found = side_of_fleet(Fleet(0.0, 600.0, (summary,), pieces), 5.0)

    assert (found.tokens_per_s, found.at_once) == (None, None)
    assert found.why_no_tokens == "the metrics do not show when a stream was open (stream_active)"
    assert compare(found, found).tokens.judgement == "unknown"


def test_a_fleet_that_lost_its_usage_has_no_tokens_per_second() -> None:
    """A tenth of the streams reported none."""
    gaps = classic([(5.0, 100), (math.inf, 100)])
    summary = Summary({}, ended={("completed", "stop"): 100}, max_gap=gaps, usage_missing=10.0)
    found = side_of_fleet(Fleet(0.0, 60.0, (summary,), (Slice(0.0, 60.0, 100.0, 0.0, 900.0),)), 5.0)

    assert found.tokens_per_s is None
    assert "10 % of the streams reported no tokens" in found.notes[0]


def test_newcombe_gives_the_published_intervals() -> None:
    """Table II of Newcombe (1998), method 10: 56/70 - 48/80, 9/10 - 3/10, 10/10 - 0/20, with the sign turned."""
    for (a, m), (b, n), low, high in (
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
    ):
        found = newcombe(b / n, n, a / m, m)
        assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def test_bootstrap_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Of 300 samples of 400 values each, about 95 of 100 hold the true p95 and p99."""
    drawn, held = random.Random(7), {0.95: 0, 0.99: 0}
    for _ in range(300):
        values = Values(tuple(sorted(drawn.expovariate(1.0) for _ in range(400))))
        for q in held:
            found = quantile_interval(values, q, 1.0, drawn)
            held[q] += found.low <= -math.log(1 - q) <= found.high

    assert 0.90 <= held[0.95] / 300 <= 0.99
    assert 0.86 <= held[0.99] / 300 <= 0.99


def test_the_bootstrap_is_that_of_resampling() -> None:
    """The same interval as from resamples that are really made."""
    chance = random.Random(3)
    values = Values(tuple(sorted(chance.expovariate(1.0) for _ in range(200))))
    made = sorted(
        Values(tuple(sorted(chance.choices(values.ordered, k=200)))).quantile(0.9) or 0.0 for _ in range(4000)
    )
    found = quantile_interval(values, 0.9, 1.0, chance)

    assert found.low == pytest.approx(made[100], rel=0.05)
    assert found.high == pytest.approx(made[3899], rel=0.05)


def test_a_rate_that_halved_is_found_and_one_of_few_slices_is_not() -> None:
    """Between 40 and 60 percent of before."""
    chance = random.Random(1)
    before = [Slice(0.0, 60.0, 10.0, 0.0, 60 * chance.uniform(80, 120)) for _ in range(30)]
    after = [Slice(0.0, 60.0, 10.0, 0.0, 60 * chance.uniform(40, 60)) for _ in range(30)]
    found = rate_ratio(before, after, chance)

    assert found is not None
    assert 0.45 < found.low < found.value < found.high < 0.55
    assert rate_ratio(before[:4], after, chance) is None
    assert rate_ratio([Slice(0.0, 60.0, 1.0, 0.0, None)] * 9, after, chance) is None


def test_the_design_effect_of_independent_streams_is_about_one() -> None:
    """And never below."""
    chance = random.Random(5)
    alone = [Slice(0.0, 60.0, 50.0, sum(chance.random() < 0.1 for _ in range(50)), None) for _ in range(200)]
    bursts = [Slice(0.0, 60.0, 50.0, 25.0 if i % 10 == 0 else 0.0, None) for i in range(200)]

    assert 1.0 <= design_effect(alone) < 1.3
    assert design_effect(bursts) == pytest.approx(23.8, abs=0.5)
    assert design_effect(bursts[:4]) == 1.0


@given(st.integers(0, 60), st.integers(60, 3000), st.integers(0, 60), st.integers(60, 3000))
def test_verdicts_turn_round_with_the_sides(a: int, n: int, b: int, m: int) -> None:
    """What is better one way is worse the other way, and intervals are mirrored."""
    there, back = newcombe(a / n, n, b / m, m), newcombe(b / m, m, a / n, n)

    assert (there.low, there.value, there.high) == pytest.approx(
        (-back.high, -back.value, -back.low), abs=1e-9
    )
    assert there.low <= there.value <= there.high


def test_the_same_seed_gives_the_same_intervals() -> None:
    """So that a script gets the same answer twice."""
    one, other = side(froze=60), side(froze=50, seed=2)

    assert compare(one, other, seed=3) == compare(one, other, seed=3)
    chances = random.Random(1), random.Random(2)
    first, second = (quantile_difference(one.gaps, other.gaps, 0.99, 1.0, chance) for chance in chances)
    assert first.value == second.value
