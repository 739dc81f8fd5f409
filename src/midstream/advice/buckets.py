"""The limit that cuts a share of answers, where only a histogram of their lengths is known, as in Prometheus.

Each answer is known to lie in a bucket, and how many of all were cut off is known, but not which. So the limit is
known between two bounds: the lower one takes every length as it is, the upper one takes every answer that was cut
off to be endless. Both include what chance does, by Clopper and Pearson's exact interval of a share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from midstream._support.statistics import CONFIDENCE
from midstream.advice._scipy import scipy_stats
from midstream.sources.fleet import Bucket, Summary


@dataclass(frozen=True, slots=True)
class Bounds:
    """The smallest limit that cuts at most `cut` of all answers is above `low` and at most `high`, in tokens.

    `high` is None where the data do not show it: too few answers (`more` are needed), or too many of them cut off.
    """

    cut: float
    low: float
    high: float | None
    answers: int
    cut_off_share: float
    more: int
    confidence: float


def bounds_for(
    buckets: Sequence[Bucket], cut: float, *, cut_off: float = 0.0, confidence: float = CONFIDENCE
) -> Bounds:
    """Return what a histogram shows of the smallest limit that cuts at most a share of answers.

    Counts may be broken: Prometheus extrapolates.

    `cut_off` is how many of the answers ended at their limit, or otherwise before their own end. Raises ValueError
    for a histogram without answers, or whose buckets overlap.
    """
    if not 0 < cut < 1:
        raise ValueError(f"the share to cut must be above 0 and below 1, got {cut:g}")
    ordered = sorted((bucket for bucket in buckets if bucket.count > 0), key=lambda bucket: bucket.low)
    if any(after.low < before.high - 1e-9 for before, after in pairwise(ordered)):
        raise ValueError("the buckets overlap; give counts of each bucket, not cumulative ones")
    total = sum(bucket.count for bucket in ordered)
    if not total > 0.5:
        raise ValueError("the histogram holds no answer")
    answers = round(total)
    low, high, above = 0.0, None, total
    sure_low = False
    for bucket in ordered:
        above -= bucket.count
        if not sure_low and clopper_pearson(above, total, confidence)[0] <= cut:
            low, sure_low = bucket.low, True
        if high is None and clopper_pearson(min(total, above + cut_off), total, confidence)[1] <= cut:
            high = bucket.high
    return Bounds(
        cut=cut,
        low=low,
        high=None if high is None or math.isinf(high) else high,
        answers=answers,
        cut_off_share=min(1.0, cut_off / total),
        more=max(0, needed_of_buckets(cut, confidence=confidence) - answers),
        confidence=confidence,
    )


def cut_off_of(summary: Summary) -> float:
    """Return how many streams of a fleet ended before their answer did: an upper bound from their metrics.

    Those that did not end with a stop or a tool call; and of those that did, the ones that had reached their limit.
    """
    ended = summary.ended or {}
    natural = ("stop", "tool_calls")
    early = sum(
        count for (outcome, reason), count in ended.items() if outcome != "completed" or reason not in natural
    )
    said = sum(count for (_, reason), count in ended.items() if reason == "length")
    return early + max(0.0, (summary.limit_hits or 0.0) - said)


def needed_of_buckets(cut: float, *, confidence: float = CONFIDENCE) -> int:
    """Return how many answers it takes, none of them above a bucket, to be sure that at most `cut` are."""
    return math.ceil(math.log((1 - confidence) / 2) / math.log1p(-cut))


def clopper_pearson(count: float, total: float, confidence: float) -> tuple[float, float]:
    """Return Clopper and Pearson's interval of a share."""
    outside = (1 - confidence) / 2
    stats = scipy_stats()
    low = 0.0 if count < 0.5 else float(stats.beta.ppf(outside, count, total - count + 1))
    high = 1.0 if count > total - 0.5 else float(stats.beta.ppf(1 - outside, count + 1, total - count))
    return low, high
