"""How long waits last that end by themselves, estimated beside waits that may never end.

A wait that was left, cancelled, timed out or cut off had lasted so long, and whether it would have ended is not known:
it is right-censored. Unlike answers, some waits have no end. So Kaplan and Meier's curve does not fall to 0 but to the
share that never ends, as in the cure models of survival analysis, and the waits that end are what lies above it:
(S(t) - S(end)) / (1 - S(end)) (R. A. Maller and X. Zhou, Survival Analysis with Long-Term Survivors, 1996). A censored
wait counts among those at risk of ending with the probability that it is one that ends (J. M. G. Taylor, Biometrics 51
(1995), 899), and the band is Greenwood's, log-log, over those.

The curve shows nothing beyond the longest wait that was seen to end. That those which were still silent then would not
have ended is trusted as far as some were watched for twice as long, or for ten minutes: Clopper and Pearson's bound
for none among so many.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from midstream._support.statistics import CONFIDENCE, z_of
from midstream.advice.survival import Curve, Quantile, Unsupported, curve_of, limit_for, needed

LONG_ENOUGH_S = 600.0
"""Watching for longer than this shows nothing that matters: the openai SDK's own timeout ends a silent read then."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long waits last that end by themselves.

    `curve` is the share of those that last longer than each time, in milliseconds. `never` is the estimated share of
    streams whose wait does not end. `silent` waits lasted longer than any that ended, and `followed` of them were
    watched for long enough to show that they would not have. `unseen` is at most the share of all waits that end,
    which may end later than the data show.
    """

    curve: Curve
    never: float
    silent: int
    followed: int
    unseen: float

    def ended_by(self, timeout_s: float) -> tuple[float | None, float | None, float | None]:
        """Return which share of the waits that end a timeout would end before, and its band; None where unknown."""
        share, low, high = self.curve.at(milliseconds(timeout_s) - 1)
        return share, low, None if high is None else min(1.0, high + self.unseen)


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, at least one."""
    return max(1, round(1000 * seconds))


def recovery_of(
    ended: Sequence[float], still_silent: Sequence[float], *, confidence: float = CONFIDENCE
) -> Recovery:
    """Estimate from waits that ended and from those that had not, in seconds. ValueError if there are none."""
    exact = sorted(milliseconds(each) for each in ended)
    censored = sorted(milliseconds(each) for each in still_silent)
    whole = curve_of(exact, censored, confidence=confidence)
    if not exact:
        return Recovery(whole, 1.0, len(censored), 0, 1.0)
    never = whole.longer[bisect_left(whole.lengths, exact[-1])]
    silent = len(censored) - bisect_left(censored, exact[-1])
    watched_ms = min(2 * exact[-1], max(milliseconds(LONG_ENOUGH_S), exact[-1] + 1))
    followed = len(censored) - bisect_left(censored, watched_ms)
    unseen = 0.0
    if never > 0:
        may_end = 1 - ((1 - confidence) / 2) ** (1 / followed) if followed else 1.0
        unseen = never / (1 - never) * may_end
    return Recovery(_recovering(whole, never), never, silent, followed, unseen)


def timeout_for(recovery: Recovery, kill: float) -> Quantile | Unsupported:
    """Return the smallest timeout, in milliseconds, that ends at most a share `kill` of the waits that end anyway.

    Its `high` is where even the upper end of the band, and all that may end later than the data show, are below
    `kill`. Unsupported if there is no such time in the data. ValueError if `kill` is not above 0 and below 1.
    """
    found = limit_for(recovery.curve, kill)
    if recovery.unseen >= kill:
        return Unsupported(
            cut=kill,
            more=_more(recovery, found, kill),
            stops_at=recovery.curve.exact[-1] if recovery.curve.exact else None,
            still_going=recovery.never,
            low=found.low,
            confidence=recovery.curve.confidence,
        )
    if isinstance(found, Unsupported):
        return found
    sure = limit_for(recovery.curve, kill - recovery.unseen)
    if isinstance(sure, Unsupported):
        return Unsupported(kill, sure.more, sure.stops_at, sure.still_going, found.low, found.confidence)
    return Quantile(kill, found.limit, found.low, max(found.high, sure.high), found.confidence)


def _more(recovery: Recovery, found: Quantile | Unsupported, kill: float) -> int:
    """Estimate how many more such waits are needed; 0 if most of the silent ones were not watched for long enough.

    As many as bring the bound for those that may end later to half of `kill`, and leave the other half to the band.
    """
    if 2 * recovery.followed < recovery.silent or not recovery.followed:
        return 0
    may_end = kill / 2 * (1 - recovery.never) / recovery.never
    outside = (1 - recovery.curve.confidence) / 2
    wanted = math.log(outside) / math.log1p(-may_end) if may_end < 1 else 1.0
    watched = (recovery.curve.answers + recovery.silent) * (wanted / recovery.followed - 1)
    band = needed(kill / 2, confidence=recovery.curve.confidence) - recovery.curve.answers
    more = found.more if isinstance(found, Unsupported) else 0
    return max(1, more, math.ceil(watched), band)


def _recovering(whole: Curve, never: float) -> Curve:
    """Return the curve of the waits that end, with the band of those that are at risk of ending."""
    exact, censored = whole.exact, whole.censored
    last = exact[-1]
    at_risk: list[tuple[int, float]] = []  # censored waits and the probability that they are such as end
    for wait in censored[: bisect_left(censored, last)]:
        place = bisect_right(whole.lengths, wait) - 1
        at_risk.append((wait, (whole.longer[place] - never) / whole.longer[place]))
    longer: list[float] = []
    low: list[float | None] = []
    high: list[float | None] = []
    lengths = [length for length in whole.lengths if length <= last]
    left = len(exact) + sum(weight for _, weight in at_risk)
    variance, share, done, passed = 0.0, 1.0, 0, 0
    z = z_of(whole.confidence)
    for length in lengths:
        while passed < len(at_risk) and at_risk[passed][0] < length:
            left -= at_risk[passed][1]
            passed += 1
        ends = bisect_right(exact, length) - done
        done += ends
        if ends:
            share = 0.0 if length == last else share * (1 - ends / left)
            if left - ends > 1e-9:
                variance += ends / (left * (left - ends))
            left -= ends
        longer.append(share)
        if 0 < share < 1 and variance > 0:
            spread = math.exp(z * math.sqrt(variance) / abs(math.log(share)))
            low.append(share**spread)
            high.append(share ** (1 / spread))
        else:
            low.append(None)
            high.append(None)
    kept = tuple(wait for wait, _ in at_risk)
    return Curve(tuple(lengths), tuple(longer), tuple(low), tuple(high), exact, kept, whole.confidence)
