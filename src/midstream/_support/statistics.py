"""One quantile rule, one interval of a share, one confidence. Pure, and without dependencies.

The interval of a share takes numbers that are not whole: what a Prometheus counter grew by is estimated, and streams
that freeze together count as fewer independent ones. SciPy's `binomtest` takes whole numbers only, and is not installed
with the report; a test holds the two against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95
"""How often an interval shall hold the true value."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A number and the two ends between which the true one lies, with a confidence of CONFIDENCE."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Share:
    """`count` of `total`, and the interval `low` to `high` that holds the share in the long run; all None of none."""

    count: int
    total: int
    value: float | None
    low: float | None
    high: float | None


def share(count: int, total: int, confidence: float = CONFIDENCE) -> Share:
    """Return a share with its interval (`wilson`). Raises ValueError unless 0 <= count <= total, 0 < confidence < 1."""
    if not 0 <= count <= total:
        raise ValueError(f"a share is some of all, got {count} of {total}")
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence is between 0 and 1, got {confidence!r}")
    if not total:
        return Share(0, 0, None, None, None)
    return Share(count, total, count / total, *wilson(count / total, total, confidence))


def wilson(p: float, n: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the ends of Wilson's score interval for a share `p` of `n` trials; `n` need not be whole.

    It stays correct for few values and for shares near 0. Formula: E. B. Wilson, JASA 22 (1927), 209; recommended over
    the textbook interval by Brown, Cai and DasGupta, Statistical Science 16 (2001), 101.
    """
    z = z_of(confidence)
    spread = z * z / n
    centre = (p + spread / 2) / (1 + spread)
    half = math.sqrt(p * (1 - p) * spread + spread * spread / 4) / (1 + spread)
    # Where nothing or everything was counted, the formula gives 0 or 1 but for rounding.
    return (0.0 if p <= 0 else max(0.0, centre - half)), (1.0 if p >= 1 else min(1.0, centre + half))


def z_of(confidence: float) -> float:
    """Return how many standard deviations on either side of the mean hold this share of a normal distribution."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def quantile(values: Iterable[float], q: float) -> float | None:
    """Return the smallest value that at least a share `q` of all values does not exceed; None of no values.

    This is the nearest rank (Hyndman and Fan's definition 1): always a value that was seen, never one between
    two. The 99th percentile of fewer than 100 values is therefore the largest of them. Raises ValueError unless
    0 <= q <= 1.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile is between 0 and 1, got {q!r}")
    ordered = sorted(values)
    return nearest_rank(ordered, q) if ordered else None


def nearest_rank(ordered: Sequence[float], q: float) -> float:
    """Return `quantile` of values that are in order already, of which there must be one; `q` is not checked."""
    # The rounding keeps 0.07 * 100 from being 7.000000000000001, and so the eighth value.
    rank = max(1, math.ceil(round(q * len(ordered), 9)))
    return ordered[rank - 1]
