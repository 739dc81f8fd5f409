"""One open stream between its iterator and the world: claims freezes, records metrics, calls hooks, ends once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from midstream._failures import error_type_of, outcome_of
from midstream._guard import trouble
from midstream._model import Outcome
from midstream._roster import FROZEN_TICK_S
from midstream._session import Session, Signal
from midstream._views import freeze_of, record_of, thaw_of

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from midstream._monitor import Monitor
    from midstream._recorder import Labels, Recorder

log = logging.getLogger("midstream")


class Tracker:
    """The effects around one session.

    The iterator drives the session by itself, chunk by chunk, and comes here only for what is rare: a freeze, a thaw,
    the end. Those take the monitor's lock, since the watcher or another thread may be at the same stream.
    """

    __slots__ = ("_context", "_counted_s", "_labels", "_monitor", "session")

    def __init__(self, session: Session, monitor: Monitor, labels: Labels, context: Context | None) -> None:
        self.session = session
        self._monitor = monitor
        self._labels = labels
        self._context = context
        self._counted_s = 0.0  # how much of the time frozen is in the counter by now

    @property
    def labels(self) -> Labels:
        """The attributes of this stream's metrics."""
        return self._labels

    @property
    def recorder(self) -> Recorder:
        """Where this stream's metrics go."""
        return self._monitor.recorder

    def __repr__(self) -> str:
        session = self.session
        state = "ended" if session.ended else "frozen" if session.frozen else "open"
        return f"<Tracker {session.call.request_model} {state} chunks={session.chunks}>"

    # From the iterator

    def signal(self, signal: Signal, now: float) -> None:
        """A chunk ended a freeze, or came too late for the watcher to have seen one begin."""
        if signal is Signal.FROZE:
            self._notice(now)
            return
        monitor = self._monitor
        with monitor.lock:
            unclaimed = self.session.thaw()
            frozen_s = self._uncounted(self.session.frozen_s)
        thaw = thaw_of(self.session)
        if unclaimed:
            self._announce(thaw.gap_s)
            monitor.hooks.call(monitor.settings.on_freeze, thaw, wait=False)
        monitor.recorder.frozen_for(self._labels, frozen_s)
        monitor.hooks.call(monitor.settings.on_thaw, thaw, wait=False)

    def exhausted(self, now: float) -> None:
        """The stream ended by itself."""
        self._notice(now)
        with self._monitor.lock:
            outcome = self.session.exhausted(now)
        self._close(outcome, None)

    def failed(self, exc: BaseException, now: float) -> None:
        """The wait ended with an exception."""
        self._notice(now)
        with self._monitor.lock:
            outcome = self.session.failed(outcome_of(exc), now)
        self._close(outcome, error_type_of(exc))

    def left(self, now: float | None, *, cancelled: bool = False, wait: bool = True) -> None:
        """The caller closed the stream between two chunks; or nobody saw when (`now` is None)."""
        with self._monitor.lock:
            outcome = self.session.left(now, cancelled=cancelled)
        self._close(outcome, None, wait=wait)

    def dropped(self) -> None:
        """The iterator is being collected as garbage: hand over, do nothing else."""
        if not self.session.ended:
            self._monitor.roster.abandon(self)

    # From the roster

    def check(self, now: float) -> float | None:
        """Notice a freeze that is due and count the time frozen; say when to look again."""
        session = self.session
        if not session.frozen:
            again = session.next_crossing(now)
            if again is None or again > now:
                return again
            self._notice(now)
        with self._monitor.lock:
            if not session.frozen:
                return session.next_crossing(now)
            frozen_s = self._uncounted(session.frozen_s + session.open_gap(now))
        self._monitor.recorder.frozen_for(self._labels, frozen_s)
        return now + FROZEN_TICK_S

    def abandoned(self) -> None:
        """End a stream that was dropped; its last event is its end, whenever it was collected."""
        self.left(None, wait=False)

    def interrupted(self) -> None:
        """End a stream that the process leaves open at its exit."""
        waiting = self.session.waiting
        self.left(self._monitor.roster.clock() if waiting else None, cancelled=waiting)

    def disown(self) -> None:
        """Forget the stream: it belongs to the parent of this process."""
        self.session.ended = True

    # Effects

    def _notice(self, now: float) -> None:
        session = self.session
        with self._monitor.lock:
            claimed = session.try_freeze(now)
        if claimed:
            freeze = freeze_of(session, now)
            self._announce(freeze.gap_s)
            self._monitor.hooks.call(self._monitor.settings.on_freeze, freeze, wait=False)

    def _announce(self, gap_s: float) -> None:
        session, call = self.session, self.session.call
        self._monitor.recorder.froze(self._labels, self._context, session.freezes)
        log.warning(
            "stream froze: nothing from %s at %s for %.1f s",
            session.answer.model or call.request_model or "an unnamed model",
            _server(call.server_address, call.server_port),
            gap_s,
        )

    def _uncounted(self, frozen_s: float) -> float:
        new = max(0.0, frozen_s - self._counted_s)
        self._counted_s += new
        return new

    def _close(self, outcome: Outcome | None, error_type: str | None, *, wait: bool = True) -> None:
        if outcome is None:
            return
        monitor, session = self._monitor, self.session
        try:
            if session.answer.error is not None and error_type is None:
                error_type = session.answer.error
            if outcome not in _FAILED:
                error_type = None
            record = record_of(session, outcome, error_type)
            monitor.recorder.frozen_for(self._labels, self._uncounted(session.frozen_s))
            monitor.recorder.ended(self._labels, record, self._context)
            monitor.hooks.call(monitor.settings.on_end, record, wait=wait)
        except Exception as exc:  # noqa: BLE001 - the caller's stream ends as it would without us
            trouble("record", exc)
        finally:
            monitor.roster.remove(self)


_FAILED = {Outcome.TIMEOUT, Outcome.ERROR, Outcome.CANCELLED}


def _server(address: str, port: int | None) -> str:
    return address or "an unnamed server" if port is None else f"{address}:{port}"

