"""The streams that are open now, and the watcher that notices a freeze while it lasts.

One daemon thread serves the whole process. It starts with the first open stream, sleeps until the earliest moment at
which a stream can freeze, looks at the streams whose moment it is and at no other, parks when nothing is open and ends
soon after. Streams that are dropped without being closed
are handed to it from the garbage collector, where no lock may be taken and nothing may be recorded.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Protocol

from midstream._support.internal_errors import report_internal_error
from midstream.runtime.schedule import Schedule

EXITS = 3
"""How often the exit function moves to the last place: a provider is set early, and CPython keeps each place left."""
LINGER_S = 0.5
"""How long the watcher stays parked for the next stream before it ends."""
FROZEN_TICK_S = 1.0
"""How often the time spent frozen is counted while a freeze lasts."""
IDLE_TICK_S = 5.0
"""How often a stream is looked at that can do nothing just now, such as one in its tail."""
REST_S = 0.01
REST_PER_STREAM_S = 1e-5
LONGEST_REST_S = 0.1
"""How long the watcher sleeps at least, so that streams whose moments lie close together cost one waking: 10 ms, and a
tenth of a second from ten thousand streams on."""
MANY_NEW = 1024
LONGEST_SLEEP_S = 3600.0
STALL_S = 0.25
"""How late the watcher must be for the process to count as having stood still; a busy machine stays well below."""
STALL_FRESH_S = 0.05


class Watched(Protocol):
    """An open stream as the roster knows it."""

    def check(self, now: float) -> float | None:
        """Notice a freeze that is due; say when to look again, or None if there is nothing to look for."""

    def abandoned(self) -> None:
        """End a stream that was dropped without being closed."""

    def interrupted(self) -> None:
        """End a stream that the process leaves open at its exit."""

    def disown(self) -> None:
        """Forget the stream without a record: it belongs to the parent of this process."""


class Roster:
    """The open streams of one process. Adding and removing take no lock: one dictionary operation each."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        threaded: bool = True,
        at_exit: Callable[[], object] | None = None,
    ) -> None:
        self.clock = clock
        self._at_exit = at_exit or self.close
        self._threaded = threaded
        self._open: dict[int, Watched] = {}
        self._new: deque[tuple[int, float | None]] = deque()
        self._inbox: SimpleQueue[Watched | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._starts = 0
        self._wakes_at = float("inf")
        self._stall = (0.0, float("-inf"))

    def add(self, stream: Watched, freezes_by: float | None) -> None:
        """Take in a stream that cannot freeze before `freezes_by` (None: never)."""
        key = id(stream)
        self._open[key] = stream
        if not self._threaded:
            return
        self._new.append((key, freezes_by))  # by number: it shall not keep alive what has ended
        if self._thread is None:
            self._start()
        elif (freezes_by is not None and freezes_by < self._wakes_at) or len(self._new) > MANY_NEW:
            self._inbox.put(None)

    def remove(self, stream: Watched) -> bool:
        """Strike off a stream that has ended; False if it was off the list already."""
        return self._open.pop(id(stream), None) is not None

    def abandon(self, stream: Watched) -> None:
        """Hand over a dropped stream. Safe in the garbage collector: the queue is reentrant, and that is all."""
        self._inbox.put(stream)

    def __iter__(self) -> Iterator[Watched]:
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def check(self, now: float) -> float | None:
        """Look at every open stream; say when to look again, or None if no stream can freeze."""
        soonest: float | None = None
        for stream in list(self._open.values()):
            again = stream.check(now)
            if again is not None and (soonest is None or again < soonest):
                soonest = again
        return soonest

    def stalled_since(self, now: float) -> float | None:
        """Since when the whole process stood still, if it did until just now.

        The watcher sleeps on a timer. If it comes late, or is due and has not come, nobody in this process got to run:
        the machine slept, the process was stopped, or some extension kept the interpreter to itself.
        """
        if now - self._wakes_at > STALL_S:
            return self._wakes_at
        since, until = self._stall
        return since if now - until <= STALL_FRESH_S else None

    def drain(self) -> None:
        """End the dropped streams that were handed over."""
        while True:
            try:
                stream = self._inbox.get_nowait()
            except Empty:
                return
            if stream is not None:
                stream.abandoned()

    def close(self) -> None:
        """End whatever is still open: the process exits."""
        self.drain()
        for stream in list(self._open.values()):
            stream.interrupted()

    def forked(self) -> None:
        """Start over in a forked child: the streams, the thread and the lock are the parent's."""
        for stream in list(self._open.values()):
            stream.disown()
        self._open = {}
        self._new = deque()
        self._inbox = SimpleQueue()
        self._starting = threading.Lock()
        self._thread = None

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            if self._starts < EXITS:
                # Registered last, so that it runs before the metric providers' own exit functions.
                atexit.unregister(self._at_exit)
                atexit.register(self._at_exit)
            self._starts += 1
            self._wakes_at = LONGEST_SLEEP_S + self.clock()
            thread = threading.Thread(target=self._run, name="midstream-watcher", daemon=True)
            try:
                thread.start()
            except RuntimeError as exc:  # the interpreter is shutting down, or out of threads
                report_internal_error("watcher", exc)
            else:
                self._thread = thread

    def _run(self) -> None:
        parked = False
        schedule = Schedule()
        while True:
            self._wakes_at = float("inf")  # awake: whoever opens a stream now leaves a note
            again = self._look(schedule, self.clock())
            if self._open:
                parked = False
            elif parked and self._end():
                return
            else:
                parked = True
            self._sleep(again, parked=parked)

    def _look(self, schedule: Schedule, now: float) -> float | None:
        """Look at the streams that are due, new ones included; say when the next one is."""
        while self._new:
            key, freezes_by = self._new.popleft()
            schedule.put(key, now if freezes_by is None else freezes_by)
        for key in schedule.due(now):
            stream = self._open.get(key)
            if stream is None:
                continue
            try:
                again = stream.check(now)
            except Exception as exc:  # noqa: BLE001 - the watcher must outlive a fault in one stream
                report_internal_error("watcher", exc)
                again = now + FROZEN_TICK_S
            schedule.put(key, now + IDLE_TICK_S if again is None else max(again, now + REST_S))
        return schedule.next(self._open)

    def _sleep(self, again: float | None, *, parked: bool) -> None:
        now = self.clock()
        until = now + (LINGER_S if parked else LONGEST_SLEEP_S)
        if again is not None and again < until:
            rest = min(LONGEST_REST_S, max(REST_S, REST_PER_STREAM_S * len(self._open)))
            until = max(again, now + rest)
        self._wakes_at = until
        try:
            stream = self._inbox.get(timeout=max(0.0, until - now))
        except Empty:
            woke = self.clock()
            if woke - until > STALL_S:
                self._stall = (until, woke)
            return
        if stream is not None:
            stream.abandoned()

    def _end(self) -> bool:
        with self._starting:
            if self._open or not self._inbox.empty():
                return False
            self._thread = None
            return True
