"""How long answers would be if nothing cut them off: a quantile that takes into account which ones were cut.

An answer that ended at its limit, or was cancelled, or broke off, would have become longer than it is: it is
*right-censored*. Counting it as it stands makes every quantile too low, and most so where the limit already is.
The Kaplan-Meier estimator uses such an answer for what it shows: that it was longer than this. The interval is
the survival curve's own (log-log, with Greenwood's variance), read off where it crosses the share, as Brookmeyer
and Crowley do. At the largest length the curve falls to 0 and has no band. If several answers share that length and
none was cut there or above, the band is the one before it, times Clopper and Pearson's bound for the share of
answers that go on when none of those was seen to.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from midstream._support.statistics import CONFIDENCE, z_of
from midstream.advice._scipy import scipy_stats

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Curve:
    """The share of answers longer than each length, with its confidence band. Lengths are tokens, and rise.

    `low` and `high` are None where the band is undefined: before the first answer that ended by itself, and where
    the curve is 0.
    """

    lengths: tuple[int, ...]
    longer: tuple[float, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    exact: tuple[int, ...]
    censored: tuple[int, ...]
    confidence: float

    @property
    def answers(self) -> int:
        """How many answers it is drawn from."""
        return len(self.exact) + len(self.censored)

    @property
    def end(self) -> float:
        """The share of answers that were longer than anything seen to its end: 0 if the longest was."""
        return self.longer[-1]

    def at(self, limit: int) -> tuple[float | None, float | None, float | None]:
        """Return the share of answers longer than a limit, and the band around it; None where the data stop."""
        place = bisect_left(self.lengths, limit + 1) - 1
        if place < 0:
            return 1.0, None, None
        if limit > self.lengths[-1] and self.end > 0:
            return None, None, None
        return self.longer[place], self.low[place], self.high[place]


@dataclass(frozen=True, slots=True)
class Quantile:
    """The smallest limit that cuts at most `cut` of all answers, and the interval that holds the true one."""

    cut: float
    limit: int
    low: int
    high: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Why the data do not show which limit cuts `cut` of all answers.

    `more` is about how many more answers are needed, 0 if there are enough. `stops_at` is the length in tokens
    beyond which there are no data, when `still_going` of all answers were longer than that: more answers under
    the same limits would not help. `low` is what is known all the same: the limit is no smaller, with the same
    confidence; None if nothing.
    """

    cut: float
    more: int
    stops_at: int | None
    still_going: float
    low: int | None
    confidence: float


def curve_of(exact: Sequence[int], censored: Sequence[int], *, confidence: float = CONFIDENCE) -> Curve:
    """Estimate the survival curve from answers that ended by themselves, and from those known to be longer.

    Raises ValueError if there are none of either.
    """
    if not exact and not censored:
        raise ValueError("there are no answers to estimate from")
    if not exact:
        # The estimator needs an event. Without one nothing is known but that all were longer.
        lengths = tuple(sorted(set(censored)))
        ones, unknown = (1.0,) * len(lengths), (None,) * len(lengths)
        return Curve(lengths, ones, unknown, unknown, (), tuple(sorted(censored)), confidence)
    stats = scipy_stats()
    survival = stats.ecdf(stats.CensoredData(uncensored=sorted(exact), right=sorted(censored))).sf
    with warnings.catch_warnings():
        # SciPy warns that the band is undefined at 0 and 1, which it marks as NaN and we as None.
        warnings.simplefilter("ignore", RuntimeWarning)
        band = survival.confidence_interval(confidence_level=confidence, method="log-log")
    return Curve(
        lengths=tuple(int(value) for value in survival.quantiles),
        longer=tuple(float(value) for value in survival.probabilities),
        low=tuple(_known(value) for value in band.low.probabilities),
        high=tuple(_known(value) for value in band.high.probabilities),
        exact=tuple(sorted(exact)),
        censored=tuple(sorted(censored)),
        confidence=confidence,
    )


def limit_for(curve: Curve, cut: float) -> Quantile | Unsupported:
    """Return the smallest limit that cuts at most a share of answers, or why the data cannot support it.

    It is supported when the whole confidence interval lies within the data. ValueError if `cut` is not a share
    above 0 and below 1.
    """
    if not 0 < cut < 1:
        raise ValueError(f"the share to cut must be above 0 and below 1, got {cut:g}")
    limit = _first(curve, curve.longer, cut)
    low = _first(curve, [_low(curve, place) for place in range(len(curve.lengths))], cut)
    high = _first(curve, curve.high, cut)
    if high is None and (top := _top_of(curve)) is not None and top.bound() <= cut:
        high = curve.lengths[-1]
    if limit is not None and low is not None and high is not None:
        return Quantile(cut, limit, low, high, curve.confidence)
    more = _more(curve, cut)
    sure = low is None
    stopped = curve.end > cut + _ROUNDING and (sure or more <= 0)
    if sure and curve.low[-1] is not None:
        low = curve.lengths[-1] + 1
    return Unsupported(
        cut=cut,
        more=max(0, more) if stopped else max(1, more),
        stops_at=curve.lengths[-1] if stopped else None,
        still_going=curve.end,
        low=low,
        confidence=curve.confidence,
    )


def naive_limit(lengths: Sequence[int], cut: float) -> int:
    """Return the smallest limit that cuts at most a share of these lengths, as if none had been cut already."""
    ordered = sorted(lengths)
    return ordered[max(0, len(ordered) - 1 - int(cut * len(ordered) + 1e-9))]


def needed(cut: float, *, confidence: float = CONFIDENCE) -> int:
    """Return how many answers, none of them cut, it takes until the interval lies within them.

    The upper end of the interval lies within the data when the band is at or below `cut` before the longest
    answer, where the curve stands at 1 in n: log n * exp(-z * sqrt(1 - 1 / n) / log n) >= -log cut.
    """
    z = z_of(confidence)

    def suffices(n: int) -> bool:
        return math.log(n) * math.exp(-z * math.sqrt(1 - 1 / n) / math.log(n)) >= -math.log(cut)

    enough = range(2, 10**12)
    return enough[bisect_left(enough, True, key=suffices)]


@dataclass(frozen=True, slots=True)
class _Top:
    """The largest length, which several answers share and none was cut at: how many shall go on beyond it.

    `before` is the share of answers that reached it and `error` the standard error of its log(-log), None if all did.
    """

    before: float
    error: float | None
    shared_by: int
    confidence: float

    def bound(self, times: float = 1.0) -> float:
        """Return the upper end for the share of answers longer than this, with so many times as many answers."""
        going_on = 1 - math.pow((1 - self.confidence) / 2, 1 / (times * self.shared_by))
        if self.error is None:
            return going_on
        reached = math.exp(
            math.log(self.before) * math.exp(-z_of(self.confidence) * self.error / math.sqrt(times))
        )
        return reached * going_on

    def needed_times(self, cut: float) -> float:
        """Return how many times as many answers bring the bound down to `cut`."""
        low, high = 1.0, 1.0
        while self.bound(high) > cut:
            low, high = high, 2 * high
        while high > low * (1 + 1e-6):
            middle = (low + high) / 2
            low, high = (low, middle) if self.bound(middle) <= cut else (middle, high)
        return high


def _top_of(curve: Curve) -> _Top | None:
    """Return the largest length if at least two answers share it and none was cut there or above."""
    if not curve.exact or curve.end > 0:
        return None
    shared_by = len(curve.exact) - bisect_left(curve.exact, curve.lengths[-1])
    if shared_by < 2:
        return None
    before = curve.longer[-2] if len(curve.lengths) > 1 else 1.0
    high = curve.high[-2] if len(curve.lengths) > 1 else None
    if high is None or not before < 1:
        return _Top(1.0, None, shared_by, curve.confidence)
    error = math.log(math.log(before) / math.log(high)) / z_of(curve.confidence)
    return _Top(before, error, shared_by, curve.confidence)


def _first(curve: Curve, shares: Sequence[float | None], cut: float) -> int | None:
    pairs = zip(curve.lengths, shares, strict=True)
    return next((length for length, share in pairs if share is not None and share <= cut + _ROUNDING), None)


def _low(curve: Curve, place: int) -> float | None:
    """Return the band's lower edge; where the curve is 0 that is 0."""
    return 0.0 if curve.longer[place] == 0.0 else curve.low[place]


def _more(curve: Curve, cut: float) -> int:
    """Estimate how many more answers are needed, if they are like those at hand.

    A standard error shrinks with the square root of the number of answers. So many times as many are needed as
    bring the band down to `cut` somewhere; or as many as if nothing had been cut, by the share that reached the end;
    or as many as make sure that hardly any answer goes on beyond a largest length that several share.
    """
    z = z_of(curve.confidence)
    times = []
    for longer, high in zip(curve.longer, curve.high, strict=True):
        if high is not None and 0 < longer < cut * (1 - 1e-9):
            error = math.log(math.log(longer) / math.log(high)) / z
            times.append((z * error / math.log(math.log(longer) / math.log(cut))) ** 2)
    top = _top_of(curve)
    if top is not None:
        times.append(top.needed_times(cut))
    full = needed(cut, confidence=curve.confidence)
    if curve.exact:
        last = curve.exact[-1]
        reached = len(curve.exact) + len(curve.censored) - bisect_left(curve.censored, last)
        reached -= bisect_left(curve.exact, last)
        before = curve.longer[curve.lengths.index(last) - 1] if curve.lengths[0] < last else 1.0
        times.append(full * before / reached)
    else:
        times.append(full / curve.answers)
    return math.ceil(curve.answers * (min(times) - 1))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
