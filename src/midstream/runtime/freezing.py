"""The freezes of one open stream: claimed once, counted, logged and announced while they last.

The watcher and the iterator both come here, so everything that decides is done under the monitor's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream.attribution.rule import Attribution
from midstream.attribution.shared_freezes import shared
from midstream.runtime.freeze_log import log_freeze, log_thaw
from midstream.runtime.host import Host
from midstream.runtime.watcher import FROZEN_TICK_S
from midstream.stream.freezes import Signal, keep
from midstream.stream.model import Freeze, FreezeSpan
from midstream.stream.session import Session
from midstream.stream.snapshots import freeze_of, hidden_of, span_of, thaw_of, threshold_in

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from midstream.telemetry.recorder import Labels, Recorder

UNSURE_RECHECK_S = 0.05
"""How soon to ask again whether a gap is the server's, while our own side is too busy to tell."""
ROUNDING_S = 1e-6


class Freezing:
    """What notices and announces the freezes of one session."""

    __slots__ = (
        "_context",
        "_counted_s",
        "_monitor",
        "_shared",
        "_spans",
        "attribution",
        "labels",
        "session",
    )

    def __init__(
        self,
        session: Session,
        monitor: Host,
        attribution: Attribution,
        labels: Labels,
        context: Context | None,
    ) -> None:
        self.session = session
        self.attribution = attribution
        self.labels = labels
        """The attributes of this stream's metrics."""
        self._monitor = monitor
        self._context = context
        self._counted_s = 0.0  # how much of the time frozen is in the counter by now
        self._shared = False
        self._spans: tuple[FreezeSpan, ...] = ()

    @property
    def recorder(self) -> Recorder:
        """Where this stream's metrics go."""
        return self._monitor.recorder

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
            span = span_of(thaw)
            self._spans = keep(self._spans, span)
        if unclaimed:
            self._count_freeze(thaw)
        self._freeze_over(span)
        log_thaw(thaw)
        self._shared = False
        self.recorder.frozen_for(self.labels, frozen_s, phase=thaw.phase)
        self._monitor.hooks.call(self._monitor.settings.on_thaw, thaw, wait=False)

    def _check_gap(self, now: float) -> float | None:
        session = self.session
        again = session.next_crossing(now)
        if again is None or again > now:
            return again
        with self._monitor.lock:
            sure = self.attribution.is_server_silent(session, now, session.freeze_after_s)
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
            phase = session.phase
        self.recorder.frozen_for(self.labels, frozen_s, phase=phase)
        return now + FROZEN_TICK_S

    def _notice(self, now: float) -> None:
        monitor, session = self._monitor, self.session
        together = session.freeze_after_s is not None and session.open_gap(now) >= session.freeze_after_s
        together = together and shared(session, monitor.sessions(), now)
        with monitor.lock:
            if not session.try_freeze(now):
                return
            self._shared = together
            session.note_freeze(shared=int(together))
        freeze = freeze_of(session, now, shared=together)
        log_freeze(freeze)
        self._count_freeze(freeze)

    def _count_freeze(self, freeze: Freeze) -> None:
        self.recorder.froze(self.labels, self._context, phase=freeze.phase)
        self._monitor.hooks.call(self._monitor.settings.on_freeze, freeze, wait=False)

    def _freeze_over(self, span: FreezeSpan) -> None:
        session = self.session
        nth = session.freezes + session.hidden
        self.recorder.freeze_over(self._context, span, nth, session.answer.response_id)

    def _announce_hidden(self) -> None:
        session = self.session
        limits = [threshold_in(session, phase) for phase in (session.phase, session.last_gap_phase)]
        known = [limit for limit in limits if limit is not None]
        if len(known) < len(limits):
            return  # a phase in which no gap is a freeze
        for since, gap_s in self.attribution.take_hidden_gaps(max(known)):
            freeze = hidden_of(session, since, gap_s)
            with self._monitor.lock:
                session.note_freeze(hidden=1)
                to_the_end = session.ended and since + gap_s >= session.last_event - ROUNDING_S
                span = span_of(freeze, open=to_the_end)
                self._spans = keep(self._spans, span)
            self.recorder.hid(self.labels)
            self._freeze_over(span)
            self._monitor.hooks.call(self._monitor.settings.on_freeze, freeze, wait=False)

    def _uncounted(self, frozen_s: float) -> float:
        new = max(0.0, frozen_s - self._counted_s)
        self._counted_s += new
        return new
