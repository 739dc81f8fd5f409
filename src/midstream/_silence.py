"""The server's silence as the wire shows it, also while the caller looks elsewhere. Pure: samples in, seconds out.

A caller who reads promptly sees every silence as a wait. One who is busy, or whose event loop is blocked, does not: data
comes in and lies in the kernel. Samples of the connection, taken meanwhile, tell when it came. What they cannot tell is
what it says, so two rules keep the answer right:

- Data in pieces of at most `SMALL` bytes is a keep-alive comment or a ping and ends no silence: the smallest chunk of
  output that any OpenAI-compatible server sends is longer.
- A silence counts only once output is known to have followed it. A server that has finished is silent as well, and the
  caller may hold the last piece of an answer for as long as he likes.
"""

from __future__ import annotations

from midstream._wire import Sample

SMALL = 96
TAIL_BYTES = 1024
"""Finish chunk, usage and the end marker are shorter than this; more bytes after a silence hold output."""
SHARP_S = 0.03
"""Two samples this close tell when data came, even if several pieces did."""
FINEST_S = 0.01
FINENESS = 0.01
"""While a silence lasts it is sampled every hundredth of its length, and not more often than every 10 ms."""


class Silence:
    """The silences of one stream, longest kept. Moments and durations in seconds on one clock."""

    __slots__ = ("_last", "_pending", "hidden", "longest", "since")

    def __init__(self) -> None:
        self._last: Sample | None = None
        self._pending: list[tuple[float, float, int]] = []
        self.since: float | None = None
        self.longest: float | None = None
        self.hidden: list[tuple[float, float]] = []

    def look(self, sample: Sample, last_read: float, *, reading: bool) -> None:
        """Take in a sample of a connection whose last output the caller got at `last_read`.

        `reading` says that the caller is at the connection now: data that came since and did not end the wait is a ping.
        """
        last, self._last = self._last, sample
        if last is None or self.since is None:
            self.since = min(sample.last_data_at, last_read) if reading else sample.last_data_at
            return
        if self._quiet(last, sample):
            return
        self._end(self._arrival(last, sample), last.received)
        self.since = sample.last_data_at

    def first_output_after(self, moment: float) -> float | None:
        """When output first came in after `moment`, if a silence that began before it is known to have ended."""
        ends = [end for start, end, _ in self._pending if start <= moment + SHARP_S and end > moment]
        return min(ends) if ends else None

    def confirm(self) -> None:
        """Output was read that came after everything seen so far: those silences were in the answer."""
        for start, end, _ in self._pending:
            self._count(start, end)
        self._pending.clear()

    def settle(self, received: int | None) -> None:
        """The stream finished. What silence was followed by more than the tail of an answer was in the answer."""
        for start, end, before in self._pending:
            if received is not None and received - before > TAIL_BYTES:
                self._count(start, end)
        self._pending.clear()

    def waited(self, since: float, until: float) -> None:
        """The caller waited through a silence, and output, or the end of the waiting, ended it."""
        start = since if self.since is None else min(since, self.since)
        self._last = None
        self.since = None
        if until > start:
            self._keep(start, until)

    def forget(self) -> None:
        """The caller has caught up: samples taken before say nothing about the next silence."""
        self._last = None
        self.since = None

    def quiet_for(self, sample: Sample) -> float:
        """How long no output has come in, as far as samples tell."""
        return sample.at - (sample.last_data_at if self.since is None else self.since)

    @property
    def last(self) -> Sample | None:
        """The latest sample of the silence in progress."""
        return self._last

    def _quiet(self, last: Sample, sample: Sample) -> bool:
        pieces = sample.segments - last.segments
        return pieces <= 0 or (sample.received - last.received) <= SMALL * pieces

    def _arrival(self, last: Sample, sample: Sample) -> float:
        if sample.segments - last.segments == 1 or sample.at - last.at <= SHARP_S:
            return sample.last_data_at
        return last.at  # several pieces came, and the first of them at this moment or later

    def _end(self, arrival: float, before: int) -> None:
        if self.since is not None and arrival > self.since:
            self._pending.append((self.since, arrival, before))
            del self._pending[:-16]

    def _count(self, start: float, end: float) -> None:
        self.hidden.append((start, end))
        self._keep(start, end)

    def _keep(self, start: float, end: float) -> None:
        self.longest = max(self.longest or 0.0, end - start)
