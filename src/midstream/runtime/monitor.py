"""What one call of `monitor()` set up, and the process that all monitors share."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from midstream._support.lifecycle import RecoverableLock, Stage, register
from midstream.attribution.event_loop_lag import Heartbeat, heartbeat
from midstream.attribution.rule import Attribution
from midstream.attribution.tcp_info import WireClock
from midstream.runtime.hooks import HookRunner, Hooks
from midstream.runtime.settings import Settings
from midstream.runtime.stall import ReadEnd, StallGuard
from midstream.runtime.tracker import Tracker
from midstream.runtime.watcher import Roster
from midstream.stream.model import Call, OpenStream
from midstream.stream.phases import PhaseSeconds
from midstream.stream.session import Session
from midstream.stream.snapshots import view_of
from midstream.stream.stalled import LibraryTimeout
from midstream.telemetry.recorder import OpenSample, Recorder

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider

    from midstream.journal.writer import Journal


class Process:
    """The clocks, the roster and the recorders that every monitor of a process shares."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        *,
        threaded: bool = True,
    ) -> None:
        self.clock = clock
        self.wall = wall
        self._threaded = threaded
        self.roster = Roster(clock, threaded=threaded)
        self.monitors: weakref.WeakSet[Monitor] = weakref.WeakSet()
        self._recorders: list[tuple[MeterProvider | None, Recorder]] = []
        self._replaced: tuple[MeterProvider, Callable[[], MeterProvider]] | None = None
        if threaded:
            register(self, Stage.STREAMS)

    def recorder(self, provider: MeterProvider | None) -> Recorder:
        """The recorder of this meter provider (None: the global one), made once."""
        for known, recorder in self._recorders:
            if known is provider:
                return recorder
        recorder = Recorder(provider, lambda: self._samples(recorder))
        if self._replaced is not None and recorder.feeds(self._replaced[0]):
            recorder.forked(self._replaced[1])
        self._recorders.append((provider, recorder))
        return recorder

    def replace_provider(self, old: MeterProvider, new: Callable[[], MeterProvider]) -> None:
        """Have what fed the old meter provider feed a new one, made when it is first needed: in a forked child."""
        self._replaced = old, new
        for _, recorder in self._recorders:
            if recorder.feeds(old):
                recorder.forked(new)

    def streams(self) -> tuple[OpenStream, ...]:
        """Every open stream as it is now, the longest gap first."""
        now = self.clock()
        views = [view_of(tracker.session, now) for tracker in self._trackers()]
        return tuple(sorted(views, key=lambda view: view.open_gap_s, reverse=True))

    def heartbeat(self) -> Heartbeat | None:
        """The heartbeat of the running event loop. A clock that is moved by hand has none to go by."""
        return heartbeat(self.clock) if self._threaded else None

    def sessions(self) -> list[Session]:
        """Every open stream's session."""
        return [tracker.session for tracker in self._trackers()]

    def flush(self, timeout_s: float = 1.0) -> None:
        """Bring dropped streams to their end and wait for the hooks that are due."""
        self.roster.drain()
        for monitor in list(self.monitors):
            monitor.hooks.flush(timeout_s)

    # For the lifecycle

    def at_exit(self, timeout_s: float) -> None:
        """End what the process leaves open."""
        self.roster.close()

    def before_fork(self) -> bool:
        """Nothing is stopped for a fork."""
        return False

    def after_fork_in_parent(self) -> None:
        """Nothing was stopped."""

    def after_fork_in_child(self) -> None:
        """Start over: the open streams are the parent's."""
        self.roster.forked()
        for monitor in list(self.monitors):
            monitor.lock = RecoverableLock()

    def _trackers(self) -> list[Tracker]:
        return [stream for stream in self.roster if isinstance(stream, Tracker) and not stream.session.ended]

    def _samples(self, recorder: Recorder) -> Iterable[OpenSample]:
        now = self.clock()
        return [
            OpenSample(tracker.labels, tracker.session.frozen, tracker.session.open_gap(now))
            for tracker in self._trackers()
            if tracker.recorder is recorder
        ]


class Monitor:
    """One set of settings at work."""

    def __init__(
        self, settings: Settings, process: Process, meter_provider: MeterProvider | None = None
    ) -> None:
        self.settings = settings
        self.process = process
        self.roster = process.roster
        self._stalled_since = process.roster.stalled_since  # one bound method for all streams
        self.stall_limits = settings.stall_limits
        """The limits of the stall timeout; None without one."""
        self._shortest_s = _shortest(settings)
        self.recorder = process.recorder(meter_provider)
        self.hooks: Hooks = HookRunner(busy=self.has_open_streams)
        self.journal = _journal_of(settings)
        self.lock = RecoverableLock()
        process.monitors.add(self)

    @property
    def clock(self) -> Callable[[], float]:
        """The monotonic clock of the process."""
        return self.process.clock

    @property
    def wall(self) -> Callable[[], float]:
        """Unix time."""
        return self.process.wall

    def sessions(self) -> list[Session]:
        """The sessions of all streams of the process that are open now."""
        return self.process.sessions()

    def has_open_streams(self) -> bool:
        """Whether any stream of this monitor is open."""
        return any(isinstance(stream, Tracker) and stream.belongs_to(self) for stream in self.roster)

    def open(
        self,
        call: Call,
        context: Context | None,
        wire: WireClock | None = None,
        *,
        on_loop: bool = False,
        end: ReadEnd | None = None,
        library: LibraryTimeout | None = None,
    ) -> Tracker:
        """Begin to follow one stream, over this wire if there is one.

        `end` ends its reads at the stall timeout, which then raise what is a timeout of this `library`.
        `on_loop` says that its waits are awaited on the event loop that runs here. A sync stream that is read on a
        loop's thread blocks that loop by its own waits, which are the server's all the same.
        """
        settings = self.settings
        now = self.process.clock()
        labels = self.recorder.labels(call, settings.attributes)
        session = Session(call, now, settings.freeze_limits, settings.attributes)
        pulse, tracker, guard = None, None, None
        try:
            pulse = self.process.heartbeat() if on_loop else None
            attribution = Attribution(self._shortest_s, wire, pulse, self._stalled_since)
            if self.stall_limits is not None:
                guard = StallGuard(self.stall_limits, end, library, self.roster.stood_still_during)
            tracker = Tracker(session, self, attribution, labels, context, guard=guard)
            self.recorder.opened(labels)
            if settings.on_freeze or settings.on_thaw or settings.on_end:
                self.hooks.start()
            if self.journal is not None:
                self.journal.prepare()
            self.roster.add(tracker, tracker.next_look(now))
            return tracker  # noqa: TRY300 - an exception of a signal handler may come here as well
        except BaseException:
            if tracker is not None:
                tracker.withdraw()
            elif pulse is not None:
                pulse.leave()
            raise

    def refused(self, call: Call, duration_s: float, error_type: str, context: Context | None) -> None:
        """A streaming call failed before there was a stream: no record, but an operation that took its time."""
        labels = self.recorder.labels(call, self.settings.attributes)
        self.recorder.refused(labels, duration_s, error_type, context)


def _shortest(settings: Settings) -> float | None:
    """The shortest gap that anything here has to notice, in seconds."""
    freeze, stall = settings.freeze_limits, settings.stall_limits
    limits = (
        freeze.shortest if isinstance(freeze, PhaseSeconds) else freeze,
        None if stall is None else stall.shortest,
    )
    return min((limit for limit in limits if limit is not None), default=None)


def _journal_of(settings: Settings) -> Journal | None:
    if settings.journal is None:
        return None
    from midstream.journal.writer import journal_at  # noqa: PLC0415 - only a journal needs SQLite

    return journal_at(settings.journal, settings.journal_max_mb, settings.journal_max_days)


PROCESS = Process()
