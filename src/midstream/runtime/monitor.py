"""What one call of `monitor()` set up, and the process that all monitors share."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from midstream._support import journals  # noqa: F401 - what it does at exit must come after what the roster does
from midstream._support.idle import notify_idle
from midstream.attribution.event_loop_lag import Heartbeat, heartbeat
from midstream.attribution.rule import Attribution
from midstream.attribution.tcp_info import WireClock
from midstream.runtime.hooks import HookRunner, Hooks
from midstream.runtime.tracker import Tracker
from midstream.runtime.watcher import Roster
from midstream.stream.model import Call, OpenStream, Settings
from midstream.stream.session import Session
from midstream.stream.snapshots import view_of
from midstream.telemetry.recorder import OpenSample, Recorder

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider

    from midstream.journal._writer import Journal


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
        self.roster = Roster(clock, threaded=threaded, at_exit=self.exit)
        self.monitors: weakref.WeakSet[Monitor] = weakref.WeakSet()
        self._recorders: list[tuple[MeterProvider | None, Recorder]] = []
        self._replaced: tuple[MeterProvider, Callable[[], MeterProvider]] | None = None

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
        """Every open stream as it is now, the longest silence first."""
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

    def exit(self) -> None:
        """End what the process leaves open, and give hooks a moment to hear of it."""
        self.roster.close()
        self.flush()

    def forked(self) -> None:
        """Start over in a forked child."""
        self.roster.forked()
        for monitor in list(self.monitors):
            monitor.forked()

    def _trackers(self) -> list[Tracker]:
        return [stream for stream in self.roster if isinstance(stream, Tracker)]

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
        self.recorder = process.recorder(meter_provider)
        self.hooks: Hooks = HookRunner(busy=lambda: self.open_streams > 0)
        self.journal = _journal_of(settings)
        self.lock = threading.Lock()
        self.open_streams = 0
        process.monitors.add(self)

    def open(
        self, call: Call, context: Context | None, wire: WireClock | None = None, *, on_loop: bool = False
    ) -> Tracker:
        """Begin to follow one stream, over this wire if there is one.

        `on_loop` says that its waits are awaited on the event loop that runs here. A sync stream that is read on a
        loop's thread blocks that loop by its own waits, which are the server's all the same.
        """
        settings = self.settings
        now = self.process.clock()
        labels = self.recorder.labels(call, settings.attributes)
        session = Session(call, now, settings.freeze_after_s, settings.attributes)
        pulse = self.process.heartbeat() if on_loop else None
        attribution = Attribution(settings.freeze_after_s, wire, pulse, self._stalled_since)
        tracker = Tracker(session, self, attribution, labels, context)
        self.recorder.opened(labels)
        with self.lock:
            self.open_streams += 1
        if settings.on_freeze or settings.on_thaw or settings.on_end:
            self.hooks.start()
        self.roster.add(tracker, session.next_crossing(now))
        return tracker

    def closed(self, tracker: Tracker) -> None:
        """A stream has ended, and its record, if it has one, is out."""
        if self.roster.remove(tracker):
            with self.lock:
                self.open_streams -= 1
            if not len(self.roster):
                notify_idle()

    def refused(self, call: Call, duration_s: float, error_type: str, context: Context | None) -> None:
        """A streaming call failed before there was a stream: no record, but an operation that took its time."""
        labels = self.recorder.labels(call, self.settings.attributes)
        self.recorder.refused(labels, duration_s, error_type, context)

    def forked(self) -> None:
        """Start over in a forked child."""
        self.lock = threading.Lock()
        self.open_streams = 0
        self.hooks.forked()


def _journal_of(settings: Settings) -> Journal | None:
    if settings.journal is None:
        return None
    from midstream.journal._writer import journal_at  # noqa: PLC0415 - whoever has no journal does not pay for it

    return journal_at(settings.journal, settings.journal_max_mb, settings.journal_max_days)


PROCESS = Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PROCESS.forked)
