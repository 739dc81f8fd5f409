"""What numbers may be said of a sample, and how sure one can be: quantiles of few values, shares with an interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95
"""How often an interval shall hold the truth."""


@dataclass(frozen=True, slots=True)
class Share:
    """`count` of `total`, and the interval `low` to `high` that holds the share in the long run; all None of none."""

    count: int
    total: int
    value: float | None
    low: float | None
    high: float | None


def share(count: int, total: int, confidence: float = CONFIDENCE) -> Share:
    """Return a share with its Wilson score interval, which stays honest for few values and for shares near 0.

    Formula: E. B. Wilson, JASA 22 (1927), 209; recommended over the textbook interval by Brown, Cai and DasGupta,
    Statistical Science 16 (2001), 101. Raises ValueError unless 0 <= count <= total and 0 < confidence < 1.
    """
    if not 0 <= count <= total:
        raise ValueError(f"a share is some of all, got {count} of {total}")
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence is between 0 and 1, got {confidence!r}")
    if not total:
        return Share(0, 0, None, None, None)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    p, spread = count / total, z * z / total
    centre = (p + spread / 2) / (1 + spread)
    half = math.sqrt(p * (1 - p) * spread + spread * spread / 4) / (1 + spread)
    # Where nothing or everything was counted, the formula gives 0 or 1 but for rounding.
    low = 0.0 if count == 0 else max(0.0, centre - half)
    high = 1.0 if count == total else min(1.0, centre + half)
    return Share(count, total, p, low, high)


def quantile(values: Iterable[float], q: float) -> float | None:
    """Return the smallest value that at least a share `q` of all values does not exceed; None of no values.

    This is the nearest rank (Hyndman and Fan's definition 1): always a value that was seen, never one between
    two. The 99th percentile of fewer than 100 values is therefore the largest of them. Raises ValueError unless
    0 <= q <= 1.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile is between 0 and 1, got {q!r}")
    return nearest_rank(sorted(values), q)


def nearest_rank(ordered: Sequence[float], q: float) -> float | None:
    """Return `quantile` of values that are in order already; `q` is not checked."""
    if not ordered:
        return None
    # The rounding keeps 0.07 * 100 from being 7.000000000000001, and so the eighth value.
    rank = max(1, math.ceil(round(q * len(ordered), 9)))
    return ordered[rank - 1]
