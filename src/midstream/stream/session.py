"""The life of one stream: waits, holds, gaps, freezes, and its one end.

Time is an argument, in seconds on any monotonic clock; nothing here reads a clock, takes a lock or does I/O. One
thread drives a session (`wait`, `chunk` and the endings); the watcher may read it at any moment and claim a freeze.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from midstream.stream.answer import AnswerState
from midstream.stream.chunks import REASONING, TEXT, TOOL_CALL, Reading
from midstream.stream.freezes import Signal, suspect
from midstream.stream.model import FREEZE_AFTER_S, Call, Outcome, Phase, Suspicion
from midstream.stream.phases import PhaseSeconds

CAUGHT_UP_S = 0.002
"""A wait this long emptied whatever lay ready: the chunk that ended it is the newest there is."""
HOLDING_RECHECK_S = 0.05
"""How soon to look again at a stream whose caller is busy: its gap cannot grow until the caller asks again."""

_STEADY = (TEXT, REASONING, TOOL_CALL)


class Session:
    """The bookkeeping of one open stream. Fields are offsets on the monitor's clock or durations, in seconds."""

    __slots__ = (
        "_last_content", "_limit", "_others", "answer", "attributes", "blocked", "by_phase", "call",
        "caught_up", "content_chunks", "ended", "first_chunk", "first_content", "freeze_after_s", "freezes",
        "frozen", "frozen_s", "gap", "hidden", "in_tail", "last_event", "last_gap", "last_gap_at",
        "last_gap_phase", "max_gap", "max_gap_at", "max_gap_open", "max_gap_phase", "max_hold",
        "max_interval", "opened", "phase", "shared", "steady", "stood_still", "suspected", "tail", "unnamed",
        "wait_from", "waited",
    )  # fmt: skip

    def __init__(
        self,
        call: Call,
        opened: float,
        freeze_after_s: float | PhaseSeconds | None = FREEZE_AFTER_S,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        self.call = call
        self.attributes = attributes or {}
        self.by_phase = freeze_after_s if isinstance(freeze_after_s, PhaseSeconds) else None
        self.freeze_after_s: float | None = (
            freeze_after_s.text if isinstance(freeze_after_s, PhaseSeconds) else freeze_after_s
        )
        """The threshold for the gap in progress, in seconds."""
        self.answer = AnswerState()
        self.opened = opened
        self.ended = False
        self.unnamed = True  # no chunk has named the model or the answer, and one still may

        # What the next chunk most probably holds: more of the same output. While it does, the iterators update this.
        self.steady: Reading | None = None
        self.content_chunks = 0
        self._others = 0
        self.first_chunk: float | None = None
        self.first_content: float | None = None
        self._last_content: float | None = None
        self.last_event = opened
        self.phase: Phase = "text"

        self.wait_from: float | None = None  # since when the caller is blocked on the stream; None while not
        self.waited = 0.0 if call.started is None else opened - call.started
        self.blocked = 0.0  # waits in which the chunk was there, and our own side was not
        self.caught_up = opened  # when the caller last waited for a chunk that was not there yet
        self.max_hold: float | None = None
        self.max_interval: float | None = None
        self.gap = 0.0  # waits since the last content, the one in progress not included
        self.last_gap = 0.0  # the gap that ended last: how long, since when, in which phase
        self.last_gap_at: float | None = None
        self.last_gap_phase: Phase = "text"
        self.max_gap: float | None = None
        self.max_gap_at: float | None = None
        self.max_gap_phase: Phase | None = None
        self.max_gap_open = False
        self.in_tail = False
        self.tail = 0.0

        self.frozen = False
        self.freezes = 0
        self.frozen_s = 0.0
        self.hidden = 0
        self.shared = 0
        self.stood_still = 0.0
        self.suspected: Suspicion = "unknown"

        self._limit = math.inf if self.freeze_after_s is None else self.freeze_after_s

    @property
    def waiting(self) -> bool:
        """Whether the caller is blocked on the stream now."""
        return self.wait_from is not None and not self.ended

    @property
    def state(self) -> Literal["waiting", "holding", "frozen"]:
        """What the open stream is doing now."""
        return "frozen" if self.frozen else "waiting" if self.wait_from is not None else "holding"

    @property
    def last_content(self) -> float | None:
        """When the caller got the last chunk with output."""
        moment = self.last_event
        return self._last_content if self.steady is None else moment

    @property
    def chunks(self) -> int:
        """How many chunks the caller got."""
        return self.content_chunks + self._others

    @property
    def fast_path_state(self) -> tuple[Reading | None, float, float]:
        """What the next chunk most probably brings, and which wait or hold would be the longest so far."""
        return self.steady, self.max_gap or 0.0, self.max_hold or 0.0

    def on_steady_chunk(self, now: float, count: int = 1) -> None:
        """The wait ended with so many more chunks of the same: what `runtime.generators` does in place for one."""
        wait_from, last = self.wait_from, self.last_event
        if wait_from is None:
            return
        self.wait_from = None
        self.content_chunks += count
        self.waited += now - wait_from
        if now - wait_from > CAUGHT_UP_S:
            self.caught_up = now
        if now - last > (self.max_gap or 0.0) or wait_from - last > (self.max_hold or 0.0):
            self.update_maxima(wait_from - last, now - wait_from)
        self.last_event = now

    def update_maxima(self, hold: float, wait: float) -> None:
        """A steady chunk came after a hold or a wait that may be the longest so far; `last_event` is the one before."""
        self.max_hold = max(self.max_hold or 0.0, hold)
        if wait > (self.max_gap or 0.0):
            self._widen(wait)
        self.max_interval = max(self.max_interval or 0.0, hold + wait)

    def chunk(self, reading: Reading, now: float, blocked: float = 0.0) -> Signal | None:
        """The wait ended with a chunk that had been there for `blocked` seconds: no part of a gap."""
        wait_from = self.wait_from
        if wait_from is None or self.ended:
            return None
        wait = self._take(wait_from, now)
        if blocked:
            wait = max(0.0, wait - blocked)
            self.blocked += blocked
        elif wait > CAUGHT_UP_S:
            self.caught_up = now
        signal = self._in_tail(reading, wait) if self.in_tail else self._in_answer(reading, wait)
        if reading.phase is None:
            self._others += 1
        else:
            self.content_chunks += 1
            self._content(now)
            if reading.phase != self.phase:
                self._enter_phase(reading.phase)
            self.gap = 0.0
        if reading.finishes and self.answer.finished:
            # Where output has come after a finish reason before, one that comes with output is not trusted again.
            self.in_tail = reading.phase is None or not self.answer.reopened
        elif reading.usage is not None and reading.phase is None and self.answer.finished:
            self._enter_tail()
        if self.content_chunks > 1 and self.max_gap is not None and not self.in_tail and reading in _STEADY:
            self.steady = reading
        return signal

    def pause_wait(self, now: float, blocked: float = 0.0) -> None:
        """The wait ended with something that is no chunk, such as part of one: what was waited is in the gap."""
        wait_from, first_chunk = self.wait_from, self.first_chunk
        if wait_from is None or self.ended:
            return
        wait = max(0.0, self._take(wait_from, now) - blocked)
        self.first_chunk = first_chunk
        self.blocked += blocked
        if self.in_tail:
            self.tail += wait
        else:
            self.gap += wait

    def begin_wait(self, now: float) -> None:
        """The caller asks for the next chunk."""
        if not self.ended:
            self.wait_from = now

    def name(self, model: str | None, response_id: str | None) -> None:
        """Take over the names of model and answer from a chunk; after the second content chunk none is expected."""
        self.unnamed = not self.answer.name(model, response_id) and self.content_chunks < 2

    def take_off(self, blocked: float) -> None:
        """Part of the wait in progress, which is about to end, was not the server's."""
        self.gap -= blocked
        self.blocked += blocked

    def exhausted(self, now: float) -> Outcome | None:
        """The stream ended by itself. The outcome, or None if it had ended before; so for every ending."""
        empty = self.chunks == 0
        if self.answer.finished:
            self._enter_tail()
        return self._end(Outcome.EMPTY if empty else self._unless_finished(Outcome.NO_FINISH), now)

    def failed(self, outcome: Outcome, now: float) -> Outcome | None:
        """The wait ended with an exception: a timeout, an error, or a cancellation of the caller.

        To be cancelled after the finish is to leave a complete answer; a failure reaches the caller whenever it comes.
        """
        return self._end(self._unless_finished(outcome) if outcome is Outcome.CANCELLED else outcome, now)

    def left(self, now: float | None, *, cancelled: bool = False) -> Outcome | None:
        """The caller closed or dropped the stream; `now` is None if it is not known when."""
        if self.answer.finished and not self.waiting:
            self._enter_tail()
        if self.chunks == 0 and not self.waiting and self.last_event == self.opened:
            outcome = Outcome.UNREAD
        else:
            outcome = self._unless_finished(Outcome.CANCELLED if cancelled else Outcome.LEFT_EARLY)
        return self._end(outcome, self.last_event if now is None else now)

    def note_stood_still(self, seconds: float) -> None:
        """For that much of the time taken off the whole process stood still."""
        self.stood_still += seconds

    def note_freeze(self, *, hidden: int = 0, shared: int = 0) -> None:
        """Count a freeze that the caller did not wait for, or that other streams of the server have as well."""
        self.hidden += hidden
        self.shared += shared

    def over(self) -> None:
        """The stream is over, or none of this process's any more."""
        self.ended = True
        self.wait_from = None

    def open_gap(self, now: float) -> float:
        """The gap in progress in seconds; 0 before the first content and after the finish."""
        if self.content_chunks == 0 or self.in_tail or self.ended:
            return 0.0
        wait_from = self.wait_from
        return self.gap if wait_from is None else max(0.0, self.gap + now - wait_from)

    def next_crossing(self, now: float) -> float | None:
        """The earliest moment at which this stream can freeze; None if it is frozen or can freeze no more."""
        if self.freeze_after_s is None or self.frozen or self.ended or self.in_tail:
            return None
        left = max(0.0, self.freeze_after_s - self.open_gap(now))
        return now + (left if self.waiting else max(left, HOLDING_RECHECK_S))

    def try_freeze(self, now: float) -> bool:
        """Claim the freeze if the open gap has reached the threshold and it is unclaimed. One claimer at a time.

        The driving thread may take a chunk meanwhile, without a lock; the claim is then withdrawn.
        """
        seen = self.content_chunks
        if self.frozen or self.open_gap(now) < self._limit:
            return False
        self.frozen = True
        if self.content_chunks != seen or self.ended:
            self.frozen = False
            return False
        self.freezes += 1
        return True

    def thaw(self) -> bool:
        """End the freeze that `chunk` reported as thawed; True if it was unclaimed, so that it counts only now."""
        unclaimed = not self.frozen
        if unclaimed:
            self.freezes += 1
        self.frozen = False
        return unclaimed

    def _enter_phase(self, phase: Phase) -> None:
        self.phase = phase
        if self.by_phase is not None:
            self.freeze_after_s = self.by_phase.of(phase)
            self._limit = math.inf if self.freeze_after_s is None else self.freeze_after_s

    def _enter_tail(self) -> None:
        """The answer was over with its last output: the wait since then is the tail. A reported freeze stays."""
        if not self.in_tail and not self.frozen:
            self.tail += self.gap
            self.gap = 0.0
            self.in_tail = True

    def _take(self, wait_from: float, now: float) -> float:
        """End the wait in progress and the steadiness; the wait's length."""
        self._note_hold(wait_from)
        wait = now - wait_from
        self._last_content = self.last_content
        self.steady = None
        self.last_event = now
        self.wait_from = None
        self.waited += wait
        if self.first_chunk is None:
            self.first_chunk = now
        return wait

    def _note_hold(self, wait_from: float) -> None:
        if self.first_chunk is not None:
            self.max_hold = max(self.max_hold or 0.0, wait_from - self.last_event)

    def _in_answer(self, reading: Reading, wait: float) -> Signal | None:
        self.gap += wait
        speaking = reading.phase is not None
        counted = self.answer.output_tokens
        if speaking:
            self.answer.on_output(reading.choices)
        self.answer.on_reading(reading)
        if self.content_chunks == 0:
            return None
        # A gap before a bare finish was a gap of the answer as well, and it is over.
        if speaking or (reading.finishes and self.answer.finished):
            longest = self.max_gap is None or self.gap > self.max_gap
            signal = self._end_gap(self.gap)
            if longest and speaking and counted is not None:
                self.suspected = suspect(self.gap, counted, self.answer.output_tokens, self._pace(counted))
            return signal
        return Signal.FROZE if self.gap >= self._limit and not self.frozen else None

    def _in_tail(self, reading: Reading, wait: float) -> Signal | None:
        self.tail += wait
        signal = None
        if reading.phase is not None:
            # The answer goes on, in this choice or another: what looked like the tail was a gap. If a bare finish
            # reason has ended a freeze, that one is over and counted.
            self.answer.on_output(reading.choices)
            if self.content_chunks:  # before the first output there is no gap
                signal = self._end_gap(self.tail if self.gap >= self._limit else self.gap + self.tail)
            self.tail = 0.0
            self.in_tail = False
        self.answer.on_reading(reading)
        return signal

    def _pace(self, tokens: int) -> float | None:
        """Seconds per token until this gap, earlier ones included; None before there is anything to count."""
        if not tokens or self.first_content is None or self.last_content is None:
            return None
        return (self.last_content - self.first_content) / tokens

    def _content(self, now: float) -> None:
        last = self._last_content
        if last is None:
            self.first_content = now
        elif self.max_interval is None or now - last > self.max_interval:
            self.max_interval = now - last
        self._last_content = now

    def _end_gap(self, gap: float) -> Signal | None:
        self._note_gap(gap)
        if self.max_gap is None or gap > self.max_gap:
            self._widen(gap)
        if gap < self._limit and not self.frozen:
            return None
        self.frozen_s += gap
        return Signal.THAWED

    def _note_gap(self, gap: float) -> None:
        self.last_gap = gap
        self.last_gap_at = self.last_content
        self.last_gap_phase = self.phase

    def _widen(self, gap: float) -> None:
        self.max_gap = gap
        self.max_gap_at = self.last_content
        self.max_gap_phase = self.phase
        self.suspected = "unknown"

    def _unless_finished(self, otherwise: Outcome) -> Outcome:
        return Outcome.COMPLETED if self.answer.finished else otherwise

    def _end(self, outcome: Outcome, now: float) -> Outcome | None:
        if self.ended:
            return None
        wait_from = self.wait_from
        if wait_from is not None:
            self._note_hold(wait_from)
            self.waited += now - wait_from
            if self.in_tail:
                self.tail += now - wait_from
        if self.content_chunks and not self.in_tail and (wait_from is not None or self.gap > 0.0):
            self._end_open_gap(self.open_gap(now))
        self._last_content = self.last_content
        self.steady = None
        self.over()
        self.last_event = now
        if self.answer.error is not None and outcome not in {Outcome.TIMEOUT, Outcome.CANCELLED}:
            return Outcome.ERROR
        return outcome

    def _end_open_gap(self, gap: float) -> None:
        """No chunk ended this gap, and it counts all the same: the worst freezes end so."""
        self._note_gap(gap)
        if self.max_gap is None or gap > self.max_gap:
            self._widen(gap)
            self.max_gap_open = True
        if self.frozen or gap >= self._limit:
            self.frozen_s += gap
