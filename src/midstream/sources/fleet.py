"""Streams of a whole fleet, as their metrics add up: counts, histograms, and how they came over time. Pure values.

    fleet = source.fleet(since, until, by=("gen_ai.request.model",))        # sources.prometheus
    for summary in fleet.summaries:
        summary.labels, summary.streams, summary.max_gap.quantile(0.99), summary.max_gap.share_above(5.0)
    fleet.total                                                             # all of them together

`None` is a metric that the server does not have: it is not known, and never 0. Counts come from `increase()`, so that
they are not whole numbers. Of a histogram only the bounds are sharp: `share_above` says between which two values the
share lies, and they are one where the threshold is a bound (5 s and every other number that an alert may name).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """So many samples above `low` and up to `high`, which may be infinite."""

    low: float
    high: float
    count: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """Samples by bucket, in order and without overlap. `total` is the sum of all samples, None if not known."""

    buckets: tuple[Bucket, ...]
    total: float | None = None

    @property
    def count(self) -> float:
        """How many samples there are."""
        return sum(bucket.count for bucket in self.buckets)

    @property
    def mean(self) -> float | None:
        """The mean of all samples; None if there is none, or their sum is not known."""
        return self.total / self.count if self.total is not None and self.count > 0 else None

    def quantile(self, q: float) -> float | None:
        """Return where a share `q` of the samples lies below, as even as they can be in their bucket.

        Beyond the last bound there is no telling: then the last bound is returned. None without samples.
        """
        bucket = self.bucket_of(q)
        if bucket is None:
            return None
        if math.isinf(bucket.high):
            return bucket.low
        below = sum(each.count for each in self.buckets if each.high <= bucket.low)
        part = (q * self.count - below) / bucket.count
        return bucket.low + (bucket.high - bucket.low) * min(1.0, max(0.0, part))

    def bucket_of(self, q: float) -> Bucket | None:
        """Return the bucket that holds the quantile: all that is known for certain of it."""
        wanted = q * self.count
        reached = 0.0
        last = None
        for bucket in self.buckets:
            if bucket.count > 0:
                reached += bucket.count
                last = bucket
                if reached >= wanted * (1 - 1e-12):
                    break
        return last

    def above(self, bound: float) -> tuple[float, float]:
        """Return how many samples lie above `bound`: at least, and at most. They are one if it is a bound."""
        least = sum(bucket.count for bucket in self.buckets if bucket.low >= bound)
        most = sum(bucket.count for bucket in self.buckets if bucket.high > bound)
        return least, most

    def around(self, bound: float) -> Bucket | None:
        """Return the bucket with samples that may be on either side of `bound`; None if it is a bound."""
        inside = (each for each in self.buckets if each.low < bound < each.high and each.count > 0)
        return next(inside, None)

    def share_above(self, bound: float) -> tuple[float, float] | None:
        """Return the share of samples above `bound`, at least and at most; None without samples."""
        if not self.count > 0:
            return None
        least, most = self.above(bound)
        return least / self.count, most / self.count

    def __add__(self, other: Histogram) -> Histogram:
        """Put the samples of both together. Bounds that only one of them has are kept, and make no count sharper."""
        return merged((self, other))


def merged(histograms: Sequence[Histogram]) -> Histogram:
    """Put the samples of all of them together."""
    totals = [each.total for each in histograms]
    total = None if None in totals else sum(each for each in totals if each is not None)
    return Histogram(_merged([bucket for each in histograms for bucket in each.buckets]), total)


def classic(cumulative: Iterable[tuple[float, float]], total: float | None = None) -> Histogram:
    """Make a histogram of a classic one: upper bounds, and how many samples do not exceed each."""
    buckets = []
    low, below = 0.0, 0.0
    for high, count in sorted(cumulative):
        # increase() is taken of each bucket by itself, and may fall by a little from one to the next.
        buckets.append(Bucket(low, high, max(0.0, count - below)))
        low, below = high, max(below, count)
    return Histogram(tuple(buckets), total)


def _merged(buckets: Sequence[Bucket]) -> tuple[Bucket, ...]:
    """Add up equal buckets; where others overlap, cut at every bound and share a count out evenly."""
    same: dict[tuple[float, float], float] = {}
    for each in buckets:
        same[each.low, each.high] = same.get((each.low, each.high), 0.0) + each.count
    ordered = [Bucket(*ends, count) for ends, count in sorted(same.items())]
    if all(one.high <= other.low for one, other in pairwise(ordered)):
        return tuple(ordered)
    cuts = sorted({end for bucket in ordered for end in (bucket.low, bucket.high)})
    pieces = list(pairwise(cuts))
    place = {cut: index for index, cut in enumerate(cuts)}
    counts = [0.0] * len(pieces)
    for bucket in ordered:
        first, last = place[bucket.low], place[bucket.high]
        if not math.isfinite(bucket.high):
            # What has no upper bound may be anywhere above: it is left in the last piece, as beyond all bounds.
            counts[last - 1] += bucket.count
            continue
        for index in range(first, last):
            low, high = pieces[index]
            counts[index] += bucket.count * (high - low) / (bucket.high - bucket.low)
    return tuple(Bucket(low, high, count) for (low, high), count in zip(pieces, counts, strict=True))


@dataclass(frozen=True, slots=True)
class Summary:
    """The streams of one set of labels. Durations are seconds."""

    labels: Mapping[str, str]
    """By the names that were asked for, such as `gen_ai.request.model`."""
    ended: Mapping[tuple[str, str], float] | None = None
    """Streams by outcome and finish reason."""
    freezes: float | None = None
    hidden_freezes: float | None = None
    frozen_s: float | None = None
    limit_hits: float | None = None
    usage_missing: float | None = None
    buffered: float | None = None
    max_gap: Histogram | None = None
    """The longest gap of each stream that had one."""
    first_content: Histogram | None = None
    output_tokens: Histogram | None = None
    input_tokens: Histogram | None = None
    limit_used: Histogram | None = None
    """Output tokens over the limit asked for."""
    duration: Histogram | None = None

    @property
    def streams(self) -> float | None:
        """How many streams ended."""
        return None if self.ended is None else sum(self.ended.values())

    def outcomes(self) -> dict[str, float]:
        """Return how many streams ended in each way, whatever their finish reason."""
        found: dict[str, float] = {}
        for (outcome, _), count in (self.ended or {}).items():
            found[outcome] = found.get(outcome, 0.0) + count
        return found

    def __add__(self, other: Summary) -> Summary:
        """Put the streams of both together; a metric that only one of them has counts as it is."""
        return combined((self, other))


def combined(summaries: Sequence[Summary]) -> Summary:
    """Put the streams of all of them together; a metric that only some of them have counts as it is."""
    whole: dict[str, Any] = {}
    for each in fields(Summary):
        known = [value for one in summaries if (value := getattr(one, each.name)) is not None]
        if each.name == "labels" or not known:
            continue
        if isinstance(known[0], Histogram):
            whole[each.name] = merged(known)
        elif each.name == "ended":
            whole[each.name] = _added(known)
        else:
            whole[each.name] = sum(known)
    return Summary({}, **whole)


def _added(counts: Sequence[Mapping[tuple[str, str], float]]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for each in counts:
        for key, count in each.items():
            found[key] = found.get(key, 0.0) + count
    return found


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of the time, with what happened in it. None is not known."""

    since: float
    seconds: float | None
    """Seconds of it in which any stream was open."""
    streams: float
    """Streams that had a gap, and ended in that time."""
    froze: float
    """Those of them whose longest gap passed the threshold."""
    tokens: float | None
    """Output tokens of the streams that ended in it."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What was measured between two moments, in Unix seconds."""

    since: float
    until: float
    summaries: tuple[Summary, ...]
    slices: tuple[Slice, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What must be known of these numbers, such as that they begin later than was asked for."""

    @property
    def total(self) -> Summary:
        """All of them together."""
        return combined(self.summaries)
