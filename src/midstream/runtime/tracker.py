"""One open stream between its iterator and the world: claims freezes, records metrics, calls hooks, ends once.

An exception of a signal handler may interrupt any line here, so the end is done in steps that the watcher can resume.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from midstream._support.internal_errors import raised_by_signal_handler, report_internal_error
from midstream.attribution.rule import Attribution
from midstream.runtime.freeze_log import log_end_frozen, log_stalled
from midstream.runtime.freezing import Freezing
from midstream.runtime.host import Ending, Host, deliver
from midstream.runtime.stall import StallGuard
from midstream.stream.chunks import NOTHING, Reader, Reading, read_model, read_response_id
from midstream.stream.errors import STALL_TIMEOUT, error_type_of, outcome_of
from midstream.stream.freezes import Signal, keep
from midstream.stream.model import Outcome, StreamRecord
from midstream.stream.session import Session
from midstream.stream.snapshots import clock_jump, record_of, span_of, stalled_of, thaw_of
from midstream.stream.stalled import StreamStalled

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from midstream.telemetry.recorder import Labels


_FAILED = {Outcome.TIMEOUT, Outcome.ERROR, Outcome.CANCELLED}


class Tracker(Freezing):
    """The effects around one session.

    The iterator drives the session by itself, chunk by chunk, and comes here only for what is rare: a long wait, a
    freeze, a thaw, the end. Those take the monitor's lock, since the watcher or another thread may be there too.
    """

    __slots__ = ("_ending", "_guard")

    def __init__(
        self,
        session: Session,
        monitor: Host,
        attribution: Attribution,
        labels: Labels,
        context: Context | None,
        *,
        guard: StallGuard | None = None,
    ) -> None:
        super().__init__(session, monitor, attribution, labels, context)
        self._guard = guard
        self._ending: Ending | None = None

    @property
    def clock(self) -> Callable[[], float]:
        """The monotonic clock that all moments here are of."""
        return self._monitor.clock

    def belongs_to(self, monitor: Host) -> bool:
        """Whether this is a stream of that monitor."""
        return self._monitor is monitor

    def __repr__(self) -> str:
        state = "ended" if self.session.ended else self.session.state
        return f"<Tracker {self.session.call.request_model} {state} chunks={self.session.chunks}>"

    # From the iterator

    def read(self, chunk: Any, read: Reader, now: float) -> None:
        """A chunk came. A chunk that cannot be read counts as one without output."""
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
            session.name(read_model(chunk), read_response_id(chunk))
        if signal is not None:
            self._signal(signal, now)

    def on_partial_chunk(self, now: float) -> None:
        """The wait ended with something that is no chunk, such as part of one."""
        session, blocked = self.session, 0.0
        try:
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

    def exhausted(self, now: float, *, marked: bool = False) -> None:
        """The stream ended by itself, or, if no end was `marked`, because the stall timeout ended the read."""
        stalled = None if marked else self._stalled_by(None)
        if stalled is not None:
            self.failed(stalled, now)
            raise stalled from None
        self._finish(now, lambda: self.session.exhausted(now), None, answered=True)

    def failed(self, exc: BaseException, now: float) -> None:
        """The wait ended with an exception, or what waited is gone.

        Raises `StreamStalled` in place of an exception that comes from the stall timeout.
        """
        if isinstance(exc, GeneratorExit):
            self.dropped()  # raised by the garbage collector, at any moment and in any thread
            return
        stalled = self._stalled_by(exc)
        if stalled is not None:
            exc = stalled
        session, outcome = self.session, outcome_of(exc)
        if outcome is Outcome.ERROR and raised_by_signal_handler(exc):
            outcome = Outcome.CANCELLED  # neither the server nor the connection failed
        # Once the server has said how it ended, that is what counts.
        after_all = outcome is Outcome.CANCELLED and session.answer.finished
        self._finish(now, lambda: session.failed(outcome, now), None if after_all else error_type_of(exc))
        if stalled is not None:
            raise stalled from None

    def closed(self, exc: BaseException | None) -> None:
        """The caller closes the stream, perhaps while handling an exception.

        During a wait the iterator mostly notices that by itself, and ends the stream in its own way. It does not if it
        was given up before: then this is the end.
        """
        if self.session.waiting:
            self.dropped()
        else:
            cancelled = exc is not None and not isinstance(exc, (Exception, GeneratorExit))
            self.left(self.clock(), cancelled=cancelled)

    def left(self, now: float | None, *, cancelled: bool = False) -> None:
        """The stream is left unread from here; `now` is None if it is not known when."""
        self._finish(now, lambda: self.session.left(now, cancelled=cancelled), None)

    def dropped(self) -> None:
        """The iterator is gone, perhaps as garbage and perhaps in the middle of a wait: hand over, do nothing else."""
        roster = self._monitor.roster
        if self in roster:
            ending = self._ending = self._ending or Ending()
            if not ending.was_dropped:
                ending.was_dropped = True
                ending.dropped_at = None if self.session.wait_from is None else self.clock()
                roster.abandon(self)

    def withdraw(self) -> None:
        """Follow the stream no more, without a record: it is not ours, or another tracker follows the same answer."""
        try:
            self.session.over()
            self.attribution.close()
        finally:
            self._monitor.roster.remove(self)

    def endable(self, source: Any) -> Any:
        """An async source whose steps the stall timeout can end, if it has no other way; else the source itself."""
        return source if self._guard is None else self._guard.endable(source)

    def _stalled_by(self, exc: BaseException | None) -> StreamStalled | None:
        return None if self._guard is None else self._guard.instead_of(self.session, exc)

    def release(self) -> None:
        """The connection is closed or goes back to its pool: the stall timeout must not touch it any more."""
        if self._guard is not None:
            with self._monitor.lock:
                self._guard.release()

    # From the roster

    def next_look(self, now: float) -> float | None:
        """The earliest moment at which there can be something to notice."""
        stall = None if self._guard is None else self._guard.due(self.session, now)
        crossing = self.session.next_crossing(now)
        return min((moment for moment in (crossing, stall) if moment is not None), default=None)

    def check(self, now: float) -> float | None:
        """Notice a freeze that is due, look at the wire, count the time frozen; say when to look again."""
        session = self.session
        if session.ended:  # and still in the roster: its end was interrupted
            self.abandoned()
            return None
        quiet_until = self.attribution.nothing_until(session, now)
        if quiet_until is not None:
            return quiet_until
        with self._monitor.lock:
            look = self.attribution.look(session, now)
        self._announce_hidden()
        crossing = self._check_frozen(now) if session.frozen else self._check_gap(now)
        stall = (
            None
            if self._guard is None
            else self._guard.check(session, self.attribution, self._monitor.lock, now)
        )
        return min((moment for moment in (look, crossing, stall) if moment is not None), default=None)

    def abandoned(self) -> None:
        """End a stream that was dropped: with its last event, whenever it was collected, or in the midst of a wait."""
        now = None if self._ending is None else self._ending.dropped_at
        self._finish(
            now,
            lambda: self.session.left(now, cancelled=now is not None),
            None if now is None else GeneratorExit.__name__,
            wait=False,
            resume=True,
        )

    def interrupted(self) -> None:
        """End a stream that the process leaves open at its exit."""
        waiting = self.session.waiting
        self.left(self.clock() if waiting else None, cancelled=waiting)

    def disown(self) -> None:
        """Forget the stream: it belongs to the parent of this process."""
        self.session.over()

    # Effects

    def _long_wait(self, reading: Reading, now: float) -> Signal | None:
        """A wait that was long enough to ask whose it was ended with a chunk."""
        with self._monitor.lock:
            spoke = reading.phase is not None or bool(reading.finishes)
            blocked_s = self.attribution.blocked_seconds(self.session, now, spoke=spoke)
            signal = self.session.chunk(reading, now, blocked_s)
        self._announce_hidden()
        return signal

    def _finish(
        self,
        now: float | None,
        end: Callable[[], Outcome | None],
        error_type: str | None,
        *,
        answered: bool = False,
        wait: bool = True,
        resume: bool = False,
    ) -> None:
        """End the session once, whichever way it ends first. Failures of our own stop here.

        `answered`: the wait in progress ends because something came. `resume`: go on with an end that an exception of
        the caller's interrupted. Until it is done the stream stays in the roster, where the watcher finds it.
        """
        session = self.session
        if session.ended and not resume:
            return
        ending = None
        try:  # from the claim on: an exception of a signal handler may come at any line
            ending = self._claim()
            if ending is None:
                return
            if ending.record is None:
                ending.record = self._end(now, end, error_type, answered=answered)
            if ending.record is not None:
                frozen_s = self._uncounted(session.frozen_s) if ending.delivered == 0 else 0.0
                deliver(
                    ending,
                    ending.record,
                    self._monitor,
                    self.labels,
                    self._context,
                    frozen_s=frozen_s,
                    phase=session.last_gap_phase,
                    wait=wait,
                )
        except Exception as exc:  # noqa: BLE001 - the caller's stream ends as it would without us
            report_internal_error("record", exc)
        finally:
            if ending is not None:
                ending.claimed_at = None
        self._context = None  # the caller's own, and the garbage collector may come late
        self.withdraw()

    def _claim(self) -> Ending | None:
        """The right to end this stream; None if it has ended, or another thread is at it now."""
        monitor, now, ours = self._monitor, self.clock(), None
        try:
            with monitor.lock:
                ending = self._ending = self._ending or Ending()
                if self not in monitor.roster or ending.is_claimed(now):
                    return None
                ours = ending
                ending.claimed_at = now
                return ending
        except BaseException:  # a signal handler's, at the end of the lock: the right is given back
            if ours is not None:
                ours.claimed_at = None
            raise

    def _end(
        self, now: float | None, end: Callable[[], Outcome | None], error_type: str | None, *, answered: bool
    ) -> StreamRecord | None:
        """Settle the wait in progress, end the session and make its record; None if it had ended before."""
        session, attribution, lock = self.session, self.attribution, self._monitor.lock
        if session.ended:  # and no record was made: that was interrupted
            outcome: Outcome | None = Outcome.COMPLETED if session.answer.finished else Outcome.CANCELLED
        else:
            if now is not None:
                if now - session.last_event >= attribution.long_s:
                    with lock:
                        take = attribution.blocked_seconds if answered else attribution.busy_seconds
                        session.take_off(take(session, now))
                self._notice(now)
            with lock:
                attribution.ending(session, session.last_event if now is None else now)
                outcome = end()
        if outcome is None:
            return None
        self._announce_hidden()
        if session.frozen:  # no chunk ended it
            freeze = thaw_of(session, shared=self._shared)
            span = span_of(freeze, open=True)
            self._spans = keep(self._spans, span)
            self._freeze_over(span)
            log_end_frozen(freeze, outcome)
        if error_type == STALL_TIMEOUT:
            log_stalled(stalled_of(session, shared=self._shared), session.content_chunks)
        return record_of(
            session,
            outcome,
            (error_type or session.answer.error) if outcome in _FAILED else None,
            wire_gap_s=attribution.wire_gap(session.max_gap),
            sees_blocks=attribution.sees_blocks,
            clock_jump_s=clock_jump(session.call, self.clock(), self._monitor.wall()),
            freeze_spans=self._spans,
        )
