"""The stall timeout for a fleet of which only metrics are known: bounds by bucket, for each model and phase.

A histogram has the longest gap of each stream, in the phase in which it began, whether it ended by itself or not. So
how many streams a timeout would have ended is known at the bounds of buckets, and how many of those would have gone on
lies between two: at most all of them, and at least those that are more than all streams that did not complete. Both
include what chance does, by Clopper and Pearson's exact interval of a share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from midstream._support.numbers import percent, plural, rounded_up, seconds
from midstream._support.sanitize import clean
from midstream._support.statistics import CONFIDENCE
from midstream.advice.buckets import clopper_pearson, needed_of_buckets
from midstream.advice.timeouts_waits import WAIT_KINDS, WaitKind
from midstream.advice.timeouts_words import setting_of, where
from midstream.sources.fleet import Histogram, Summary, merged
from midstream.telemetry.instruments import MODEL, OPERATION, PHASE

BY = (MODEL, OPERATION, PHASE)
"""The attributes by which streams of a fleet are grouped. Metrics other than that of gaps have no phase."""

FleetKind: TypeAlias = "WaitKind | None"
"""None: gaps of all phases together, from programs whose metrics have no phase."""


@dataclass(frozen=True, slots=True)
class TimeoutBounds:
    """The smallest timeout that ends at most `kill` of the streams that would go on: above `low_s`, at most `high_s`.

    `high_s` is None where the data do not show it; `ended` of `streams` it would have ended. `not_completed` streams
    may have been silent at their end. `more` streams are needed, 0 if there are enough.
    """

    kill: float
    low_s: float
    high_s: float | None
    streams: int
    ended: float | None
    not_completed: float
    more: int
    confidence: float


@dataclass(frozen=True, slots=True)
class FleetTimeout:
    """What the metrics of one model's answers to one kind of request show of one wait."""

    model: str
    operation: str
    kind: FleetKind
    bounds: TimeoutBounds


def fleet_timeouts(
    summaries: Iterable[Summary], kill: float, confidence: float = CONFIDENCE
) -> list[FleetTimeout]:
    """Return the bounds for each model, operation and phase, and for the first content; most streams first.

    The summaries are those of a fleet that was asked for by `BY`. Raises ValueError if `kill` is not above 0 and
    below 1.
    """
    if not 0 < kill < 1:
        raise ValueError(f"the share to end must be above 0 and below 1, got {kill:g}")
    groups: dict[tuple[str, str], list[Summary]] = {}
    for summary in summaries:
        model, operation = (clean(summary.labels.get(label, "")) for label in (MODEL, OPERATION))
        groups.setdefault((model, operation), []).append(summary)
    found = [
        # The first content is recorded of streams that had one: none of these was given up before it.
        FleetTimeout(
            model,
            operation,
            kind,
            timeout_bounds(
                histogram,
                kill,
                not_completed=0.0 if kind == "first_content" else _not_completed(group),
                confidence=confidence,
            ),
        )
        for (model, operation), group in groups.items()
        for kind, histogram in _histograms(group)
        if histogram.count >= 1
    ]
    order: Sequence[FleetKind] = (*WAIT_KINDS, None)
    return sorted(found, key=lambda each: (each.model, each.operation, order.index(each.kind)))


def fleet_timeout_verdict(found: FleetTimeout) -> str:
    """Return which timeout to set, or why the metrics do not show one, in a sentence."""
    bounds = found.bounds
    setting = "stall_timeout_s" if found.kind is None else setting_of(found.kind)
    share, known = percent(bounds.kill), f"it is above {seconds(bounds.low_s)}"
    if bounds.high_s is not None:
        return (
            f"Set {setting} to {bounds.high_s:g} at most: the smallest timeout that ends {share} of the streams that "
            f"would go on is above {seconds(bounds.low_s)}, and at most that; a journal has the exact gaps."
        )
    place = "in any phase" if found.kind is None else where(found.kind)
    wanted = f"Which timeout {place} ends {share} of the streams that would go on cannot be determined"
    if bounds.more:
        verb = "is" if bounds.more == 1 else "are"
        return (
            f"{wanted} from {plural(bounds.streams, 'stream')}: about {rounded_up(bounds.more):,} more {verb} needed; "
            f"{known}."
        )
    return (
        f"{wanted}: more streams than that waited for longer than the last bound, and metrics do not show which of "
        f"them went on. Use a journal; {known}."
    )


def _histograms(group: Sequence[Summary]) -> list[tuple[FleetKind, Histogram]]:
    gaps: dict[FleetKind, list[Histogram]] = {}
    first = []
    for summary in group:
        phase = summary.labels.get(PHASE, "")
        if summary.max_gap is not None and summary.max_gap.count > 0 and phase in ("", *WAIT_KINDS):
            gaps.setdefault(cast("FleetKind", phase or None), []).append(summary.max_gap)
        if summary.first_content is not None and summary.first_content.count > 0:
            first.append(summary.first_content)
    found: list[tuple[FleetKind, Histogram]] = [(kind, merged(each)) for kind, each in gaps.items()]
    return [*found, ("first_content", merged(first))] if first else found


def _not_completed(group: Sequence[Summary]) -> float:
    return sum(
        count
        for summary in group
        for outcome, count in summary.outcomes().items()
        if outcome not in ("completed", "empty", "unread")
    )


def timeout_bounds(
    histogram: Histogram, kill: float, *, not_completed: float = 0.0, confidence: float = CONFIDENCE
) -> TimeoutBounds:
    """Return what a histogram of waits in seconds shows, of which so many streams did not complete."""
    total = histogram.count
    given_up = min(not_completed, total)
    low_s, high_s, ended = 0.0, None, None
    above, sure_low = total, False
    for bucket in sorted(each for each in histogram.buckets if each.count > 0):
        above = max(0.0, above - bucket.count)
        least = max(0.0, above - given_up)
        if not sure_low and clopper_pearson(least, total, confidence)[0] <= kill:
            low_s, sure_low = bucket.low, True
        going_on = max(total - given_up, above, 1.0)
        if high_s is None and clopper_pearson(above, going_on, confidence)[1] <= kill:
            high_s, ended = bucket.high, above
    known = high_s is not None and not math.isinf(high_s)
    return TimeoutBounds(
        kill=kill,
        low_s=low_s,
        high_s=high_s if known else None,
        streams=round(total),
        ended=ended if known else None,
        not_completed=given_up,
        more=max(0, needed_of_buckets(kill, confidence=confidence) - round(total)),
        confidence=confidence,
    )
