"""The gaps of a stream as its connection shows them, read or not. Pure: samples in, seconds out.

A caller that reads promptly sees every gap as a wait. One that is busy, or whose event loop is blocked, does not: data
arrives and stays in the kernel. Samples of the connection, taken meanwhile, show when it arrived. They do not show what
it is, so two rules keep the result right:

- Less than `SMALL` bytes from one sample to the next are keep-alive comments or pings and end no gap: the smallest
  chunk of output that any OpenAI-compatible server sends is longer. Many comments at once may be taken for output; then
  the gap is measured shorter than it was, never longer.
- A gap counts only once output is known to have followed it. A server that has finished sends nothing either, and the
  caller may hold the last piece of an answer for any length of time.
"""

from __future__ import annotations

import math

from midstream.attribution.tcp_info import Sample

SMALL = 96
TAIL_BYTES = 1024
"""Finish chunk, usage and the end marker are shorter than this; more bytes after a gap hold output."""
SHARP_S = 0.03
"""Two samples this close tell when data came, even if several pieces did."""
MOST_PENDING = 16
FINEST_S = 0.01
FINENESS = 0.01
"""While a gap lasts the connection is sampled every hundredth of its length, and not more often than every 10 ms."""


class WireGaps:
    """The gaps of one stream on its connection; the longest is kept. Moments and durations in seconds on one clock."""

    __slots__ = ("_accounted", "_last", "_pending", "hidden", "longest", "since")

    def __init__(self) -> None:
        self._last: Sample | None = None
        self._pending: list[tuple[float, float, int]] = []
        self._accounted = -math.inf  # up to this moment the caller has waited for the end of every gap
        self.since: float | None = None
        self.longest: float | None = None
        self.hidden: list[tuple[float, float]] = []

    def look(
        self, sample: Sample, last_read: float, *, nothing_new: bool, emptied: float = -math.inf
    ) -> None:
        """Add a sample of a connection whose last output the caller received at `last_read`.

        At `emptied` the caller had read all there was, output or not. `nothing_new` means for a first sample that what
        arrived since then, if anything did, was no output. The caller may have read on since the sample was taken: a
        gap whose end the caller has waited for is never begun again.
        """
        if sample.at <= self._accounted:
            return
        last, self._last = self._last, sample
        if last is None or self.since is None:
            since = min(sample.last_data_at, last_read) if nothing_new else sample.last_data_at
            self.since = max(since, self._accounted)
            return
        pieces = sample.segments - last.segments
        if pieces <= 0 or sample.received - last.received <= SMALL:
            return
        arrival = self._arrival(last, sample, emptied)
        # Of several pieces in some time, one at least came no sooner than the average after the one before.
        average = (sample.last_data_at - last.last_data_at) / pieces
        if average > arrival - self.since:
            self._end(sample.last_data_at - average, sample.last_data_at, last.received)
        else:
            self._end(self.since, arrival, last.received)
        self.since = sample.last_data_at

    def first_output_after(self, moment: float) -> float | None:
        """When output first came in after `moment`, if a gap that began before it is known to have ended."""
        ends = [end for start, end, _ in self._pending if start <= moment + SHARP_S and end > moment]
        return min(ends) if ends else None

    def caught_up(self, *, in_answer: bool = True) -> None:
        """The caller read output that came after everything sampled so far: those gaps were in the answer.

        So was the one in progress at the last sample, unless the answer had finished by then (`in_answer` False): it
        lasted until that sample at least.
        """
        if in_answer and self.since is not None and self._last is not None:
            self._end(self.since, self._last.at, self._last.received)
        for start, end, _ in self._pending:
            self._count(start, end)
        self._pending.clear()
        self._last = None
        self.since = None

    def settle(self, received: int) -> None:
        """The stream finished. A gap that was followed by more than the tail of an answer was in the answer."""
        for start, end, before in self._pending:
            if received - before > TAIL_BYTES:
                self._count(start, end)
        self._pending.clear()

    def waited(self, since: float, asked: float, until: float) -> float | None:
        """The caller received its last output at `since`, asked for more at `asked`, and received that at `until`.

        Returns when the gap that it waited for began; None if what it received was there when it asked.
        """
        own = [(start, end) for start, end, _ in self._pending if start <= since + SHARP_S]
        self._pending = [pending for pending in self._pending if pending[0] > since + SHARP_S]
        ready = until - asked < SHARP_S and bool(own) and all(end <= asked for _, end in own)
        # What had arrived before `asked`, and was received neither then nor before, was no output, however large.
        for start, end in own:
            if ready or end <= since + SHARP_S:
                self._count(start, end)
        if ready:
            return None
        self.account_for(until)
        lasting = [start for start, end in own if end > since + SHARP_S]
        begun = min([since, *lasting])
        if not lasting and self.since is not None:
            begun = min(begun, self.since)
            self.since = None
        self._keep(begun, until)
        return begun

    def goes_on(self, since: float) -> None:
        """The caller has read all there is, and there was no output after `since`: no gap has ended since then."""
        ended = [start for start, end, _ in self._pending if end > since + SHARP_S]
        self._pending = [pending for pending in self._pending if pending[1] <= since + SHARP_S]
        if ended and self.since is not None:
            self.since = min(self.since, *ended)

    def hide(self, start: float, end: float) -> None:
        """Note a freeze of the server that the caller waited for only in part."""
        self.hidden.append((start, end))

    def quiet_for(self, sample: Sample) -> float:
        """How long no output has come in, as far as samples tell."""
        return sample.at - (sample.last_data_at if self.since is None else self.since)

    def account_for(self, moment: float) -> None:
        """Up to this moment the caller has waited for the end of every gap, or its freeze was reported."""
        self._accounted = max(self._accounted, moment)
        self._pending = [pending for pending in self._pending if pending[0] >= moment - SHARP_S]

    def accounts_for(self, moment: float) -> bool:
        """Whether that is known already."""
        return moment <= self._accounted

    @property
    def last(self) -> Sample | None:
        """The latest sample of the gap in progress."""
        return self._last

    def _arrival(self, last: Sample, sample: Sample, emptied: float) -> float:
        if sample.segments - last.segments == 1 or sample.at - last.at <= SHARP_S:
            return sample.last_data_at
        # Several pieces came, and the first of output among them later than that.
        return min(max(last.at, emptied), sample.last_data_at)

    def _end(self, start: float, end: float, before: int) -> None:
        start = max(start, self._accounted)
        if end > start:
            self._pending.append((start, end, before))
            if len(self._pending) > MOST_PENDING:
                self._pending.remove(min(self._pending, key=lambda pending: pending[1] - pending[0]))

    def _count(self, start: float, end: float) -> None:
        self.hidden.append((start, end))
        self._keep(start, end)

    def _keep(self, start: float, end: float) -> None:
        self.longest = max(self.longest or 0.0, end - start)
