"""One open stream between its iterator and the world: claims freezes, records metrics, calls hooks, ends once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from midstream._support.internal_errors import report_internal_error, safe_log
from midstream._support.sanitize import clean
from midstream.attribution.rule import Attribution
from midstream.attribution.shared_freezes import shared
from midstream.runtime.watcher import FROZEN_TICK_S
from midstream.stream.chunks import NOTHING, Reader, Reading, read_model
from midstream.stream.errors import error_type_of, outcome_of
from midstream.stream.freezes import keep
from midstream.stream.model import Freeze, FreezeSpan, Hook, Outcome
from midstream.stream.session import Session, Signal
from midstream.stream.snapshots import clock_jump, freeze_of, hidden_of, record_of, span_of, thaw_of

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from midstream.runtime.monitor import Monitor
    from midstream.telemetry.recorder import Labels, Recorder

UNSURE_RECHECK_S = 0.05
"""How soon to ask again whether a silence is the server's, while our own side is too busy to tell."""
ROUNDING_S = 1e-6

_FAILED = {Outcome.TIMEOUT, Outcome.ERROR, Outcome.CANCELLED}


class Tracker:
    """The effects around one session.

    The iterator drives the session by itself, chunk by chunk, and comes here only for what is rare: a long wait, a
    freeze, a thaw, the end. Those take the monitor's lock, since the watcher or another thread may be there too.
    """

    __slots__ = (
        "_context",
        "_counted_s",
        "_dropped_at",
        "_monitor",
        "_shared",
        "_spans",
        "attribution",
        "clock",
        "labels",
        "session",
    )

    def __init__(
        self,
        session: Session,
        monitor: Monitor,
        attribution: Attribution,
        labels: Labels,
        context: Context | None,
    ) -> None:
        self.session = session
        self.attribution = attribution
        self.labels = labels
        """The attributes of this stream's metrics."""
        self.clock = monitor.process.clock
        self._monitor = monitor
        self._context = context
        self._counted_s = 0.0  # how much of the time frozen is in the counter by now
        self._dropped_at: float | None = None
        self._shared = False
        self._spans: tuple[FreezeSpan, ...] = ()

    @property
    def recorder(self) -> Recorder:
        """Where this stream's metrics go."""
        return self._monitor.recorder

    def __repr__(self) -> str:
        session = self.session
        state = "ended" if session.ended else "frozen" if session.frozen else "open"
        return f"<Tracker {session.call.request_model} {state} chunks={session.chunks}>"

    # From the iterator

    def read(self, chunk: Any, read: Reader, now: float) -> None:
        """A chunk came. Whatever is wrong with it, or with how we read it, is no matter of the caller's."""
        session = self.session
        try:
            reading = read(chunk)
            if reading is session.steady and now - session.last_event < self.attribution.long_s:
                session.on_steady_chunk(now)
            else:
                self.chunk(reading, chunk, now)
        except Exception as exc:  # noqa: BLE001 - a chunk may be anything at all
            self.on_unreadable_chunk(now, exc)

    def chunk(self, reading: Reading, chunk: Any, now: float) -> None:
        """A chunk came that is more than one more of the same."""
        session = self.session
        if now - session.last_event >= self.attribution.long_s:
            signal = self._long_wait(reading, now)
        else:
            signal = session.chunk(reading, now)
        if session.unnamed:
            session.name(read_model(chunk))
        if signal is not None:
            self._signal(signal, now)

    def on_partial_chunk(self, now: float) -> None:
        """The wait ended with something that is no chunk, such as part of one."""
        session = self.session
        try:
            blocked = 0.0
            if now - session.last_event >= self.attribution.long_s:
                with self._monitor.lock:
                    blocked = self.attribution.blocked_seconds(session, now)
            session.pause_wait(now, blocked)
        except Exception as exc:  # noqa: BLE001 - the reader gets its piece
            report_internal_error("stream", exc)

    def on_unreadable_chunk(self, now: float, exc: Exception) -> None:
        """Reading a chunk failed. It counts as one without output, whatever it was."""
        report_internal_error("chunk reader", exc)
        self.session.chunk(NOTHING, now)

    def exhausted(self, now: float) -> None:
        """The stream ended by itself."""
        self._finish(now, lambda: self.session.exhausted(now), None, answered=True)

    def failed(self, exc: BaseException, now: float) -> None:
        """The wait ended with an exception, or what waited is gone."""
        if isinstance(exc, GeneratorExit):
            self.dropped()  # raised by the garbage collector, at any moment and in any thread
            return
        session, outcome = self.session, outcome_of(exc)
        # Once the server has said how it ended, that is what counts.
        after_all = outcome is Outcome.CANCELLED and session.answer.finished
        self._finish(now, lambda: session.failed(outcome, now), None if after_all else error_type_of(exc))

    def closed(self, exc: BaseException | None) -> None:
        """The caller closes the stream, perhaps on his way out with an exception.

        In the midst of a wait, what waits mostly hears of it by itself, and ends the stream in its own way. It does not
        if it was given up before: then this is the end.
        """
        if self.session.waiting:
            self.dropped()
        else:
            cancelled = exc is not None and not isinstance(exc, (Exception, GeneratorExit))
            self.left(self.clock(), cancelled=cancelled)

    def left(self, now: float | None, *, cancelled: bool = False) -> None:
        """The stream is left unread from here; `now` is None if nobody saw when."""
        self._finish(now, lambda: self.session.left(now, cancelled=cancelled), None)

    def dropped(self) -> None:
        """The iterator is gone, most likely as garbage, perhaps in the middle of a wait: hand over, do nothing else."""
        session = self.session
        if not session.ended:
            self._dropped_at = None if session.wait_from is None else self.clock()
            self._monitor.roster.abandon(self)

    # From the roster

    def check(self, now: float) -> float | None:
        """Notice a freeze that is due, look at the wire, count the time frozen; say when to look again."""
        session = self.session
        quiet_until = self.attribution.nothing_until(session, now)
        if quiet_until is not None:
            return quiet_until
        with self._monitor.lock:
            look = self.attribution.look(session, now)
        self._tell_hidden()
        crossing = self._check_frozen(now) if session.frozen else self._check_silence(now)
        return min((moment for moment in (look, crossing) if moment is not None), default=None)

    def abandoned(self) -> None:
        """End a stream that was dropped: with its last event, whenever it was collected, or in the midst of a wait."""
        now = self._dropped_at
        self._finish(
            now,
            lambda: self.session.left(now, cancelled=now is not None),
            None if now is None else GeneratorExit.__name__,
            wait=False,
        )

    def interrupted(self) -> None:
        """End a stream that the process leaves open at its exit."""
        waiting = self.session.waiting
        self.left(self.clock() if waiting else None, cancelled=waiting)

    def withdraw(self) -> None:
        """Leave the stream to another tracker, which follows the same answer: it ends here without a record."""
        if not self.session.ended:
            self.disown()
            self.attribution.close()
            self._monitor.closed(self)

    def disown(self) -> None:
        """Forget the stream: it belongs to the parent of this process."""
        self.session.over()

    # Effects

    def _long_wait(self, reading: Reading, now: float) -> Signal | None:
        """A wait that was long enough to ask whose it was ended with a chunk."""
        with self._monitor.lock:
            spoke = reading.phase is not None or bool(reading.finishes)
            blocked = self.attribution.blocked_seconds(self.session, now, spoke=spoke)
            signal = self.session.chunk(reading, now, blocked)
        self._tell_hidden()
        return signal

    def _signal(self, signal: Signal, now: float) -> None:
        """A chunk ended a freeze, or came too late for the watcher to have seen one begin."""
        if signal is Signal.FROZE:
            self._notice(now)
            return
        with self._monitor.lock:
            unclaimed = self.session.thaw()
            self.attribution.thawed(self.session)
            frozen_s = self._uncounted(self.session.frozen_s)
            thaw = thaw_of(self.session, shared=self._shared)
            self._spans = keep(self._spans, span_of(thaw))
        if unclaimed:
            self._announce(thaw)
        self._shared = False
        self.recorder.frozen_for(self.labels, frozen_s)
        self._call(self._monitor.settings.on_thaw, thaw)

    def _check_silence(self, now: float) -> float | None:
        session = self.session
        again = session.next_crossing(now)
        if again is None or again > now:
            return again
        with self._monitor.lock:
            sure = self.attribution.sure_of_silence(session, now)
        if not sure:
            return now + UNSURE_RECHECK_S
        self._notice(now)
        return now + FROZEN_TICK_S if session.frozen else session.next_crossing(now)

    def _check_frozen(self, now: float) -> float | None:
        session = self.session
        with self._monitor.lock:
            if not session.frozen:
                return session.next_crossing(now)
            frozen_s = self._uncounted(session.frozen_s + session.open_gap(now))
        self.recorder.frozen_for(self.labels, frozen_s)
        return now + FROZEN_TICK_S

    def _notice(self, now: float) -> None:
        monitor, session = self._monitor, self.session
        together = session.freeze_after_s is not None and session.open_gap(now) >= session.freeze_after_s
        together = together and shared(session, monitor.process.sessions(), now)
        with monitor.lock:
            if not session.try_freeze(now):
                return
            self._shared = together
            session.shared += together
        self._announce(freeze_of(session, now, shared=together))

    def _announce(self, freeze: Freeze) -> None:
        session, call = self.session, self.session.call
        self.recorder.froze(self.labels, self._context, session.freezes)
        safe_log(
            logging.WARNING,
            "midstream: stream froze: nothing from %s at %s for %.1f s%s",
            clean(call.request_model or session.answer.model or "an unnamed model"),
            clean(_server(call.server_address, call.server_port)),
            freeze.gap_s,
            " (nor for the other streams of this server)" if freeze.shared else "",
        )
        self._call(self._monitor.settings.on_freeze, freeze)

    def _tell_hidden(self) -> None:
        session = self.session
        if session.freeze_after_s is None:
            return
        for since, gap_s in self.attribution.take_hidden_gaps(session.freeze_after_s):
            freeze = hidden_of(session, since, gap_s)
            with self._monitor.lock:
                session.hidden += 1
                to_the_end = session.ended and since + gap_s >= session.last_event - ROUNDING_S
                self._spans = keep(self._spans, span_of(freeze, open=to_the_end))
            self.recorder.hid(self.labels)
            self._call(self._monitor.settings.on_freeze, freeze)

    def _call(self, hook: Hook | None, freeze: Freeze) -> None:
        self._monitor.hooks.call(hook, freeze, wait=False)

    def _uncounted(self, frozen_s: float) -> float:
        new = max(0.0, frozen_s - self._counted_s)
        self._counted_s += new
        return new

    def _finish(
        self,
        now: float | None,
        end: Callable[[], Outcome | None],
        error_type: str | None,
        *,
        answered: bool = False,
        wait: bool = True,
    ) -> None:
        """End the session once, whoever comes first. Our own failures stop here."""
        session = self.session
        if session.ended:
            return
        try:
            if now is not None:
                if answered and now - session.last_event >= self.attribution.long_s:
                    with self._monitor.lock:
                        session.take_off(self.attribution.blocked_seconds(session, now))
                self._notice(now)
            with self._monitor.lock:
                self.attribution.ending(session, session.last_event if now is None else now)
                outcome = end()
            if outcome is not None:
                self._close(outcome, error_type, wait=wait)
        except Exception as exc:  # noqa: BLE001 - the caller's stream ends as it would without us
            report_internal_error("record", exc)
        finally:
            session.over()
            self._context = None  # the caller's, who may wait long for the garbage collector
            self._monitor.closed(self)

    def _close(self, outcome: Outcome, error_type: str | None, *, wait: bool) -> None:
        monitor, session, attribution = self._monitor, self.session, self.attribution
        self._tell_hidden()
        if session.frozen:  # no chunk ended it
            self._spans = keep(self._spans, span_of(thaw_of(session, shared=self._shared), open=True))
        record = record_of(
            session,
            outcome,
            (error_type or session.answer.error) if outcome in _FAILED else None,
            wire_gap_s=attribution.wire_gap(session.max_gap),
            sees_blocks=attribution.sees_blocks,
            clock_jump_s=clock_jump(session.call, self.clock(), monitor.process.wall()),
            freeze_spans=self._spans,
        )
        attribution.close()
        self.recorder.frozen_for(self.labels, self._uncounted(session.frozen_s))
        self.recorder.ended(self.labels, record, self._context)
        if monitor.journal is not None:
            monitor.journal.write(record)
        monitor.hooks.call(monitor.settings.on_end, record, wait=wait)


def _server(address: str, port: int | None) -> str:
    return address or "an unnamed server" if port is None else f"{address}:{port}"
