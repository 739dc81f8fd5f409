"""A server over time: what happened between two readings of its page, and since when it cannot be read. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from midstream.engines import ENGINES
from midstream.engines.page import MetricReading
from midstream.sources.scrape import Scraped

KEPT = 5000
"""How many readings are remembered for matching: more than two hours, at one every 2 s."""


@dataclass(frozen=True, slots=True)
class Between:
    """What happened between two readings. Times are Unix seconds; the events lie somewhere between them."""

    since: float
    until: float
    preemptions: MetricReading
    """Requests thrown out, or the most that were out at once where the engine tells only that."""
    preemptions_per_s: MetricReading
    tokens_per_s: MetricReading
    restarted: bool = False
    """True if the server's counters began anew."""


@dataclass(frozen=True, slots=True)
class Now:
    """The server as it is known now: the last reading, what happened before it, and what is wrong."""

    last: Scraped | None
    between: Between | None
    unknown_since: float | None
    """Unix time of the first reading that failed since the last one that did not."""
    problem: str | None


class Watched:
    """Readings in the order in which they came."""

    def __init__(self) -> None:
        self._last: Scraped | None = None
        self._between: Between | None = None
        self._unknown_since: float | None = None
        self._problem: str | None = None
        self._history: deque[Between] = deque(maxlen=KEPT)

    @property
    def now(self) -> Now:
        """What is known now."""
        return Now(self._last, self._between, self._unknown_since, self._problem)

    @property
    def history(self) -> Sequence[Between]:
        """What happened between all readings, oldest first."""
        return self._history

    def read(self, scraped: Scraped) -> None:
        """Take in a reading."""
        self._between = None
        if self._last is not None and scraped.view.engine == self._last.view.engine:
            self._between = between(self._last, scraped)
            self._history.append(self._between)
        self._last, self._unknown_since, self._problem = scraped, None, None

    def failed(self, problem: str, at: float) -> None:
        """Take in that there was no reading. What was read before is no more what is."""
        self._problem = problem
        self._between = None
        if self._unknown_since is None:
            self._unknown_since = at


def between(before: Scraped, after: Scraped) -> Between:
    """Return what happened between two readings of one server."""
    old, new = before.view, after.view
    seconds = after.at - before.at
    restarted = (
        (old.started_at or new.started_at) != (new.started_at or old.started_at)
        or _fell(old.generated, new.generated)
        or (not ENGINES[old.engine].counting.estimated and _fell(old.preemptions, new.preemptions))
    )
    if new.preempted_now.exists:
        preemptions, per_s = (
            _out(new.preempted_now),
            MetricReading(None, "pauses are not counted", exists=False),
        )
    else:
        preemptions = _grown(old.preemptions, new.preemptions, restarted=restarted)
        per_s = _rate(preemptions, seconds)
    tokens = _rate(_grown(old.generated, new.generated, restarted=restarted), seconds)
    return Between(before.asked_at, after.at, preemptions, per_s, tokens, restarted)


def _out(now: MetricReading) -> MetricReading:
    # None paused at the moment of a sample does not mean none between two samples.
    return MetricReading(None, now.why) if now.value == 0 and now.why else now


def _fell(old: MetricReading, new: MetricReading) -> bool:
    return old.value is not None and new.value is not None and new.value < old.value


def _grown(old: MetricReading, new: MetricReading, *, restarted: bool) -> MetricReading:
    if new.value is None or not new.exists:
        return new
    if restarted:
        return MetricReading(
            new.value, "the server restarted: what it counted before, after the last reading, is lost"
        )
    if old.value is None:
        return MetricReading(None, "it was not known before")
    return MetricReading(max(0.0, new.value - old.value), new.why)


def _rate(grown: MetricReading, seconds: float) -> MetricReading:
    if grown.value is None:
        return grown
    return (
        MetricReading(grown.value / seconds, grown.why)
        if seconds > 0
        else MetricReading(None, "no time has passed")
    )
