"""How sure one can be of a difference: intervals for shares, quantiles and rates of two samples. Pure.

SciPy's `bootstrap` would need every value, and as many independent ones as there are values: here a side may be a
histogram, and streams that freeze together count as fewer. Tests hold these intervals against resamples that are made,
and against published ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Protocol

from midstream._support.statistics import CONFIDENCE, Interval, wilson
from midstream.sources.fleet import Slice

RESAMPLES = 4000
"""Enough for the ends of a 95 % interval to be steady to a few percent of its width."""
LEAST_SLICES = 5


class Distribution(Protocol):
    """Values of streams: a list of them, or a histogram."""

    @property
    def count(self) -> float:
        """How many there are."""
        ...

    def quantile(self, q: float) -> float | None:
        """Return a quantile; None without values."""
        ...


def newcombe(p1: float, n1: float, p2: float, n2: float) -> Interval:
    """Return `p2 - p1`, the difference of two shares, with Newcombe's hybrid score interval.

    Method 10 of R. G. Newcombe, Statistics in Medicine 17 (1998), 873: it stays correct for shares near 0.
    """
    (l1, u1), (l2, u2) = wilson(p1, n1), wilson(p2, n2)
    difference = p2 - p1
    return Interval(
        difference,
        difference - math.hypot(p2 - l2, u1 - p1),
        difference + math.hypot(u2 - p2, p1 - l1),
    )


def design_effect(slices: Sequence[Slice]) -> float:
    """Return the design effect: how many streams are worth one independent stream; 1 at least.

    The variance of the share of frozen streams, estimated from how it varies between slices (the ratio estimator of
    cluster sampling), over that of independent streams.
    """
    used = [piece for piece in slices if piece.streams > 0]
    streams = sum(piece.streams for piece in used)
    froze = sum(piece.froze for piece in used)
    if len(used) < LEAST_SLICES or not 0 < froze < streams:
        return 1.0
    p = froze / streams
    between = sum((piece.froze - p * piece.streams) ** 2 for piece in used) * len(used) / (len(used) - 1)
    return max(1.0, between / streams / (p * (1 - p)))


def quantile_interval(values: Distribution, q: float, effect: float, chance: random.Random) -> Interval:
    """Return a quantile with its percentile-bootstrap interval."""
    drawn = sorted(_draws(values, q, effect, chance))
    return Interval(values.quantile(q) or 0.0, *_ends(drawn))


def quantile_difference(
    before: Distribution, after: Distribution, q: float, effect: float, chance: random.Random
) -> Interval:
    """Return how much a quantile grew, with its percentile-bootstrap interval."""
    drawn = zip(_draws(before, q, effect, chance), _draws(after, q, effect, chance), strict=True)
    value = (after.quantile(q) or 0.0) - (before.quantile(q) or 0.0)
    return Interval(value, *_ends(sorted(new - old for old, new in drawn)))


def rate_ratio(before: Sequence[Slice], after: Sequence[Slice], chance: random.Random) -> Interval | None:
    """Return tokens per second after over before, resampling slices of time; None if there are too few of them."""
    sides = [
        [
            (piece.tokens, piece.seconds)
            for piece in side
            if piece.tokens is not None and piece.seconds is not None
        ]
        for side in (before, after)
    ]
    if min(map(len, sides)) < LEAST_SLICES or not all(
        sum(tokens for tokens, _ in side) > 0 and sum(seconds for _, seconds in side) > 0 for side in sides
    ):
        return None
    drawn = []
    for _ in range(RESAMPLES):
        old, new = (_rate(chance.choices(side, k=len(side))) for side in sides)
        if old > 0:
            drawn.append(new / old)
    return Interval(_rate(sides[1]) / _rate(sides[0]), *_ends(sorted(drawn)))


def _rate(pieces: Sequence[tuple[float, float]]) -> float:
    seconds = sum(seconds for _, seconds in pieces)
    return sum(tokens for tokens, _ in pieces) / seconds if seconds > 0 else 0.0


def _draws(values: Distribution, q: float, effect: float, chance: random.Random) -> list[float]:
    """Draw the quantile of resamples without making any.

    The k-th smallest of n values drawn with replacement is the one at the quantile U of the sample, where U has a
    Beta(k, n + 1 - k) distribution. So this is the bootstrap itself, of as many independent values as there are.
    """
    n = max(1.0, values.count / effect)
    k = min(n, max(1.0, q * n))
    drawn = (chance.betavariate(k, n + 1 - k) for _ in range(RESAMPLES))
    return [values.quantile(u) or 0.0 for u in drawn]


def _ends(ordered: Sequence[float]) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    last = len(ordered) - 1
    return ordered[round(tail * last)], ordered[round((1 - tail) * last)]
