"""Which stall timeout to set: what it would end, what of that would have gone on, and the waiting it would save."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from midstream._support.statistics import CONFIDENCE
from midstream.advice.lengths import groups_of
from midstream.advice.survival import Quantile, Unsupported
from midstream.advice.timeouts_recovery import Recovery, recovery_of, timeout_for
from midstream.advice.timeouts_waits import WAIT_KINDS, WaitKind, Waits, waits_of
from midstream.stream.model import StreamRecord

CANDIDATES_S = (10.0, 30.0, 60.0, 120.0, 300.0)
"""Timeouts whose effect is always shown: those that other tools have as their defaults are among them."""


@dataclass(frozen=True, slots=True)
class TimeoutValue:
    """A timeout in seconds, for at most a share `kill` of the waits that end by themselves.

    `estimate_s` is the smallest such timeout as the data show it, and `low_s` to `high_s` the interval that holds the
    true one. `advised_s` is the interval's upper end, rounded up: with the estimate itself, the share that is ended is
    larger than `kill` about every second time.
    """

    kill: float
    advised_s: float
    estimate_s: float
    low_s: float
    high_s: float
    confidence: float


@dataclass(frozen=True, slots=True)
class NoTimeout:
    """Why the data do not show a timeout.

    `more` is about how many more streams are needed, 0 if more of the same would not help: then `silent` waits lasted
    longer than any that ended by itself (`longest_s`), and only `followed` of them were watched for long enough.
    `at_least_s` is what is known all the same: the timeout is no shorter.
    """

    kill: float
    more: int
    silent: int
    followed: int
    longest_s: float | None
    at_least_s: float | None
    confidence: float


@dataclass(frozen=True, slots=True)
class TimeoutEffect:
    """What a timeout would have done to the streams seen.

    It would have ended `ended` of `streams`. `went_on` of those went on by themselves, after `went_on_after_s` more
    (the median); the others did not while they were watched, and together would have waited `saved_s` less. `unknown`
    streams had their longest gap in another phase, and may or may not have had one of this length in this phase.
    `share` is the estimated share of the waits that end by themselves which it would end, with its band; None where
    the data do not reach.
    """

    timeout_s: float
    streams: int
    ended: int
    went_on: int
    went_on_after_s: float | None
    saved_s: float
    unknown: int
    share: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class WaitAdvice:
    """One phase, or the wait for the first content: what was seen, the timeout that follows, and what others do."""

    kind: WaitKind
    waits: Waits
    recovery: Recovery | None
    value: TimeoutValue | NoTimeout
    effects: tuple[TimeoutEffect, ...]

    @property
    def advised_effect(self) -> TimeoutEffect | None:
        """What the advised timeout would have done."""
        if isinstance(self.value, NoTimeout):
            return None
        return next(each for each in self.effects if each.timeout_s == self.value.advised_s)


@dataclass(frozen=True, slots=True)
class TimeoutGroup:
    """Everything about one model's answers to one kind of request."""

    model: str
    operation: str
    streams: int
    waits: tuple[WaitAdvice, ...]


@dataclass(frozen=True, slots=True)
class TimeoutAdvice:
    """Timeouts for each model and operation, the one with most streams first."""

    groups: tuple[TimeoutGroup, ...]
    without_waits: int
    """Streams of groups in which no wait could be seen."""


def advise_timeout(
    records: Sequence[StreamRecord],
    *,
    kill: float = 0.001,
    confidence: float = CONFIDENCE,
    timeouts_s: Sequence[float] = (),
    by_group: bool = True,
) -> TimeoutAdvice:
    """Return the shortest stall timeout by phase that ends at most a share `kill` of the streams that would go on.

    For each model and operation, or with `by_group=False` for all records together; the same for the time to the first
    content. `timeouts_s` are other timeouts, in seconds, whose effect is of interest. How long waits last that end by
    themselves is estimated beside those that never end (see `midstream.advice.timeouts_recovery`). A `value` is a
    `TimeoutValue`, or a `NoTimeout` that names what is missing; `timeout_verdict(wait)` is the advice in a sentence,
    and `timeout_code(group)` the line of code.

    Raises ValueError unless `kill` and `confidence` are above 0 and below 1, and ModuleNotFoundError without SciPy.

    >>> advice = advise_timeout(records, kill=0.05)    # records = midstream.journal.read("streams.db").records
    >>> [wait.kind for wait in advice.groups[0].waits]
    ['text', 'first_content']
    """
    for name, share in (("share to end", kill), ("confidence", confidence)):
        if not 0 < share < 1:
            raise ValueError(f"the {name} must be above 0 and below 1, got {share:g}")
    advised, silent = [], 0
    groups = groups_of(records) if by_group else {("", ""): list(records)}
    for (model, operation), group in groups.items():
        found = ((kind, waits_of(group, kind)) for kind in WAIT_KINDS)
        waits = tuple(_advice(kind, each, kill, confidence, timeouts_s) for kind, each in found if each.seen)
        if waits:
            advised.append(TimeoutGroup(model, operation, len(group), waits))
        else:
            silent += len(group)
    return TimeoutAdvice(tuple(advised), silent)


def rounded_up_s(seconds: float) -> float:
    """Round a timeout up to whole seconds, and from 100 s on to two digits: more would claim to be exact."""
    whole = max(1, math.ceil(seconds - 1e-9))
    unit = 10 ** max(0, len(str(whole)) - 2)
    return float(-(-whole // unit) * unit)


def _advice(
    kind: WaitKind, waits: Waits, kill: float, confidence: float, timeouts_s: Sequence[float]
) -> WaitAdvice:
    # Where a gap is only known not to exceed a bound, it is taken at the bound; for the interval's lower end, as none.
    longest = recovery_of([*waits.ended, *waits.bounded], waits.still_silent, confidence=confidence)
    value = _value(longest, kill)
    if waits.bounded and isinstance(value, TimeoutValue):
        shortest = recovery_of(
            [*waits.ended, *(0.0 for _ in waits.bounded)], waits.still_silent, confidence=confidence
        )
        value = _with_low(value, timeout_for(shortest, kill))
    shown = {*CANDIDATES_S, *timeouts_s}
    if isinstance(value, TimeoutValue):
        shown.add(value.advised_s)
    effects = tuple(_effect(waits, longest, timeout_s) for timeout_s in sorted(shown))
    return WaitAdvice(kind, waits, longest, value, effects)


def _value(recovery: Recovery, kill: float) -> TimeoutValue | NoTimeout:
    found = timeout_for(recovery, kill)
    if isinstance(found, Quantile):
        # A wait as long as the timeout is ended: so it is a millisecond more than the longest that may go on.
        estimate, low, high = ((each + 1) / 1000 for each in (found.limit, found.low, found.high))
        return TimeoutValue(kill, rounded_up_s(high), estimate, low, high, found.confidence)
    exact = recovery.curve.exact
    return NoTimeout(
        kill=kill,
        more=found.more,
        silent=recovery.silent,
        followed=recovery.followed,
        longest_s=exact[-1] / 1000 if exact else None,
        at_least_s=None if found.low is None else found.low / 1000,
        confidence=found.confidence,
    )


def _with_low(value: TimeoutValue, shortest: Quantile | Unsupported) -> TimeoutValue:
    low_s = 0.0 if shortest.low is None else min(value.low_s, (shortest.low + 1) / 1000)
    return TimeoutValue(value.kill, value.advised_s, value.estimate_s, low_s, value.high_s, value.confidence)


def _effect(waits: Waits, recovery: Recovery, timeout_s: float) -> TimeoutEffect:
    went_on = [each - timeout_s for each in waits.ended if each >= timeout_s]
    silent = [each - timeout_s for each in waits.still_silent if each >= timeout_s]
    share, low, high = recovery.ended_by(timeout_s) if recovery.curve.exact else (None, None, None)
    return TimeoutEffect(
        timeout_s=timeout_s,
        streams=waits.streams,
        ended=len(went_on) + len(silent),
        went_on=len(went_on),
        went_on_after_s=median(went_on) if went_on else None,
        saved_s=sum(silent),
        unknown=sum(each >= timeout_s for each in waits.bounded),
        share=share,
        low=low,
        high=high,
    )
