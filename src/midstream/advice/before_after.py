"""Whether a change did good: freezes and gaps before and after it, and what it cost. Pure.

Four questions, each with a 95 % interval: did fewer streams freeze, did the 99th percentile of the longest gap
fall, did tokens per second hold, did the time to first content stay bearable.

Streams of one overload freeze together, so that they are not independent. How the share of frozen streams varies
between pieces of the time gives the design effect (L. Kish, Survey Sampling, 1965), by which all intervals are widened.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from midstream._support.numbers import rounded_up
from midstream._support.statistics import Interval
from midstream.advice.comparison import (
    FIRST_CONTENT,
    FROZE,
    TAIL_GAP,
    TOKENS,
    CompareGoal,
    Comparison,
    Judgement,
    Measure,
    Side,
    Verdict,
)
from midstream.advice.intervals import (
    design_effect,
    newcombe,
    quantile_difference,
    quantile_interval,
    rate_ratio,
)
from midstream.advice.sides import side_of_records
from midstream.advice.threshold import threshold_of
from midstream.stream.model import FREEZE_AFTER_S, StreamRecord

__all__ = ["CompareGoal", "Comparison", "Measure", "Side", "compare"]

TAIL = 0.99
FIRST = 0.95
LEAST_FOR_TAIL = 100
"""Below so many, the 99th percentile is nothing but the largest value."""
MOST = 1e8
"""More streams than this are no advice."""
LOADS = (0.75, 1.33)
"""A load that changed by no more than this is the same one."""
LEAST = 5
"""Below so many streams on a side, nothing is said at all."""


def compare(
    before: Side | Sequence[StreamRecord],
    after: Side | Sequence[StreamRecord],
    goal: CompareGoal | None = None,
    *,
    freeze_after_s: float | None = None,
    seed: int = 0,
) -> Comparison:
    """Return whether a change did good: freezes, gaps, tokens per second and the time to first content, each judged.

    `before` and `after` are the records of the streams on both sides, oldest first, or sides made by `side_of_fleet`
    from a Prometheus server. `goal` says what counts as good. `freeze_after_s` is the gap in seconds from which a
    stream of the records counts as frozen, by default that of the records, else 5. The same seed gives the same
    intervals, which are 95 %: Newcombe's for the difference of two shares, percentile bootstrap for the rest.

    Raises ValueError if a side has no records. `verdict(comparison, goal)` is the answer in a sentence.

    >>> comparison = compare(records, records_with_cap)
    >>> comparison.verdict
    'better'
    """
    if not isinstance(before, Side) and not isinstance(after, Side):
        before, after = sides_of_records(before, after, freeze_after_s)
    if not isinstance(before, Side) or not isinstance(after, Side):
        raise TypeError("compare records with records, or a Side with a Side")
    goal = goal or CompareGoal()
    chance = random.Random(seed)  # noqa: S311 - resampling, not secrets
    effect = max(design_effect(side.slices) for side in (before, after))
    froze = _froze(before, after, goal, effect)
    tail = _tail(before, after, goal, effect, chance)
    tokens = _tokens(before, after, goal, chance)
    first = _first(before, after, goal, effect, chance)
    verdict = _verdict(froze, tail, tokens, first)
    more = _more(before, after, goal, effect) if verdict == "cannot tell" else None
    return Comparison(froze, tail, tokens, first, verdict, more, effect, tuple(_notes(before, after, effect)))


def sides_of_records(
    before: Sequence[StreamRecord], after: Sequence[StreamRecord], freeze_after_s: float | None = None
) -> tuple[Side, Side]:
    """Return both sides, with one threshold: the one given, else that of the records, else 5 s."""
    if not before or not after:
        raise ValueError(
            "a side has no records; give the streams from before the change, and those from after it"
        )
    threshold = freeze_after_s or threshold_of([*before, *after]).value_s or FREEZE_AFTER_S
    return side_of_records(before, threshold), side_of_records(after, threshold)


def _froze(before: Side, after: Side, goal: CompareGoal, effect: float) -> Measure:
    name = FROZE
    if min(before.judged, after.judged) < LEAST:
        return Measure(name, _share(before), _share(after), None, "unknown", "too few streams")
    shares = (before.froze / before.judged, after.froze / after.judged)
    change = newcombe(shares[0], before.judged / effect, shares[1], after.judged / effect)
    return Measure(name, *shares, change, _of_difference(change, goal.margin))


def _tail(before: Side, after: Side, goal: CompareGoal, effect: float, chance: random.Random) -> Measure:
    name = TAIL_GAP
    values = (before.gaps.quantile(TAIL), after.gaps.quantile(TAIL))
    least = min(before.gaps.count, after.gaps.count)
    if values[0] is None or values[1] is None or least < LEAST_FOR_TAIL:
        return Measure(name, *values, None, "unknown", f"it takes {LEAST_FOR_TAIL} streams on each side")
    change = quantile_difference(before.gaps, after.gaps, TAIL, effect, chance)
    margin = max(goal.tail_margin_s, goal.tail_margin * values[0])
    judgement = _of_difference(change, margin)
    if judgement in ("better", "worse") and abs(values[1] - values[0]) < margin:
        judgement = "same"
    return Measure(name, *values, change, judgement)


def _tokens(before: Side, after: Side, goal: CompareGoal, chance: random.Random) -> Measure:
    name = TOKENS
    values = (before.tokens_per_s, after.tokens_per_s)
    change = rate_ratio(before.slices, after.slices, chance)
    if not values[0] or values[1] is None or change is None:
        refused = (
            f"{when}, {side.why_no_tokens}" for when, side in _sides(before, after) if side.why_no_tokens
        )
        why = "; ".join(refused) or "it takes some 25 streams with usage on each side"
        return Measure(name, *values, None, "unknown", why)
    held = 1 - goal.give_up
    judgement: Judgement = "same" if change.low >= held else "worse" if change.high < held else "unclear"
    return Measure(name, *values, change, "better" if change.low > 1 + goal.give_up else judgement)


def _first(before: Side, after: Side, goal: CompareGoal, effect: float, chance: random.Random) -> Measure:
    name = FIRST_CONTENT
    values = (before.first_content.quantile(FIRST), after.first_content.quantile(FIRST))
    if (
        values[0] is None
        or values[1] is None
        or min(before.first_content.count, after.first_content.count) < LEAST
    ):
        return Measure(name, *values, None, "unknown", "too few streams")
    change = quantile_difference(before.first_content, after.first_content, FIRST, effect, chance)
    now = quantile_interval(after.first_content, FIRST, effect, chance)
    if now.high <= goal.bearable_s or change.high <= 0:
        judgement: Judgement = "same"
    else:
        judgement = "worse" if now.low > goal.bearable_s and change.low > 0 else "unclear"
    return Measure(name, *values, change, judgement)


def _of_difference(change: Interval, margin: float) -> Judgement:
    if change.high < 0:
        return "better"
    if change.low > 0:
        return "worse"
    return "same" if -margin < change.low and change.high < margin else "unclear"


def _verdict(froze: Measure, tail: Measure, tokens: Measure, first: Measure) -> Verdict:
    if "worse" in {each.judgement for each in (froze, tail, tokens, first)}:
        return "worse"
    if "better" in {froze.judgement, tail.judgement}:
        return "better"
    if froze.judgement == "same" and tail.judgement in ("same", "unknown"):
        return "unchanged"
    return "cannot tell"


def _more(before: Side, after: Side, goal: CompareGoal, effect: float) -> int | None:
    """Return how many more streams on each side would settle whether fewer froze, if the shares stay as they are."""
    least = min(before.judged, after.judged)
    if least < 1:
        return LEAST_FOR_TAIL
    p1, p2 = before.froze / before.judged, after.froze / after.judged

    def settles(more: float) -> bool:
        change = newcombe(p1, (before.judged + more) / effect, p2, (after.judged + more) / effect)
        return _of_difference(change, goal.margin) != "unclear"

    floor = LEAST_FOR_TAIL - least if least < LEAST_FOR_TAIL else 0.0
    low, high = 0.0, 1.0
    while not settles(high):
        low, high = high, 2 * high
        if high > MOST:
            return None
    while high - low > 0.02 * high and high - low > 1:
        middle = (low + high) / 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return rounded_up(max(high, floor))


def _share(side: Side) -> float | None:
    return side.froze / side.judged if side.judged else None


def _sides(before: Side, after: Side) -> tuple[tuple[str, Side], ...]:
    return ("before", before), ("after", after)


def _notes(before: Side, after: Side, effect: float) -> Iterator[str]:
    for name, side in _sides(before, after):
        for note in side.notes:
            yield f"{name}: {note}"
    if effect >= 1.5:
        yield (f"freezes cluster in time (design effect {effect:.1f}); the intervals are widened accordingly")
    if before.at_once and after.at_once and not LOADS[0] < after.at_once / before.at_once < LOADS[1]:
        yield (
            f"the load was not the same: {after.at_once:.1f} streams were open at once, and {before.at_once:.1f} "
            "before, which alone changes freezes and tokens per second"
        )
