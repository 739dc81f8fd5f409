"""The streams that are open now, and the watcher that notices a freeze while it lasts.

One daemon thread serves the whole process. It starts with the first open stream, sleeps until the earliest moment at
which a stream can freeze, looks at the streams whose moment it is and at no other, parks when nothing is open and ends
soon after. While streams are open it wakes twice a second at least: how late it is shows whether this process gets to
run. Streams that are dropped without being closed are handed to it from the garbage collector, where no lock may be
taken and nothing may be recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Protocol

from midstream._support.idle import notify_idle
from midstream._support.internal_errors import OnceLog, report_internal_error
from midstream._support.lifecycle import Worker, run_exit_before_others
from midstream.runtime.schedule import Schedule

LINGER_S = 0.5
"""How long the watcher stays parked for the next stream before it ends."""
FROZEN_TICK_S = 1.0
"""How often the time spent frozen is counted while a freeze lasts."""
IDLE_TICK_S = 5.0
"""How often a stream is looked at that can do nothing just now, such as one in its tail."""
REST_S = 0.01
REST_PER_STREAM_S = 5e-5
LONGEST_REST_S = 0.1
"""How long the watcher sleeps at least, so that streams whose moments lie close together cost one waking: 10 ms, and a
tenth of a second from two thousand streams on."""
MANY_NEW = 1024
LONGEST_SLEEP_S = 3600.0
PULSE_S = 0.5
"""How long the watcher sleeps at most while streams are open, so that it notices when nothing gets to run."""
STALL_S = 0.25
"""How late the watcher must be for the process to count as having stood still; a busy machine stays well below."""
MOST_STANDSTILLS = 64
"""How many standstills of the process are remembered."""
SETTLE_S = 0.05
"""How soon the watcher wakes after it was late: only once it wakes in time is the process known to run again."""


class WatchedStream(Protocol):
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

    def __init__(self, clock: Callable[[], float], *, threaded: bool = True) -> None:
        self.clock = clock
        self._threaded = threaded
        self._open: dict[int, WatchedStream] = {}
        self._new: deque[tuple[int, float | None]] = deque()
        self._inbox: SimpleQueue[WatchedStream | None] = SimpleQueue()
        self._worker = Worker("midstream-watcher", self._run)
        self._wakes_at = float("inf")
        self._stalled_from: float | None = None
        self._ran_at = clock()  # when the watcher last ran before it was late
        self._stood_still: deque[tuple[float, float]] = deque(maxlen=MOST_STANDSTILLS)
        self._log = OnceLog()

    def add(self, stream: WatchedStream, freezes_by: float | None) -> None:
        """Take in a stream that cannot freeze before `freezes_by` (None: never)."""
        key = id(stream)
        self._open[key] = stream
        if not self._threaded:
            return
        self._new.append((key, freezes_by))  # by number: it shall not keep alive what has ended
        if self._worker.thread is None:
            self._start()
        elif (freezes_by is not None and freezes_by < self._wakes_at) or len(self._new) > MANY_NEW:
            self._inbox.put(None)

    def remove(self, stream: WatchedStream) -> None:
        """Strike off a stream that has ended."""
        if self._open.pop(id(stream), None) is not None and not self._open:
            notify_idle()

    def __contains__(self, stream: object) -> bool:
        return self._open.get(id(stream)) is stream

    def abandon(self, stream: WatchedStream) -> None:
        """Hand over a dropped stream. Safe in the garbage collector: the queue is reentrant, and that is all."""
        self._inbox.put(stream)

    def __iter__(self) -> Iterator[WatchedStream]:
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
        """Since when this process has not got to run, as far as is known; None if it does.

        The watcher sleeps on a timer. If it is late, or is due and has not come, no thread of this process got to run
        in time: the machine slept, the process was stopped, or others kept the interpreter or the processor to
        themselves. That ends with the first time that it wakes when it should.
        """
        wakes_at = self._wakes_at
        if self._stalled_from is None and now - wakes_at > STALL_S:
            return wakes_at
        return self._stalled_from

    def stood_still_during(self, since: float, until: float) -> float:
        """For how many of these seconds the process may not have run: at most `PULSE_S` more than it did not.

        It may have stopped at any moment after the watcher last ran, of which the watcher learns when it is late.
        """
        known = list(self._stood_still)
        if self.stalled_since(until) is not None:
            known.append((self._ran_at, until))
        return sum(max(0.0, min(end, until) - max(start, since)) for start, end in known)

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
        self._worker.start_over()
        self._stalled_from = None

    def _start(self) -> None:
        def prepare() -> None:
            run_exit_before_others()
            self._wakes_at = LONGEST_SLEEP_S + self.clock()
            self._stalled_from = None

        if not self._worker.start(prepare):  # the interpreter is shutting down, or out of threads
            self._log.warn(
                "start", "no thread could be started for the watcher; freezes are noticed when they end"
            )

    def _run(self) -> None:
        parked = False
        schedule = Schedule()
        while True:
            self._wakes_at = float("inf")  # awake: a stream that is opened now leaves a note
            again = self._look(schedule, self.clock())
            if self._open:
                parked = False
            elif parked and self._worker.end_if(lambda: not self._open and self._inbox.empty()):
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
        if self._stalled_from is None:
            self._ran_at = now
        until = now + (LINGER_S if parked else LONGEST_SLEEP_S)
        if again is not None and again < until:
            rest = min(LONGEST_REST_S, max(REST_S, REST_PER_STREAM_S * len(self._open)))
            until = max(again, now + rest)
        if self._open:
            until = min(until, now + (PULSE_S if self._stalled_from is None else SETTLE_S))
        self._wakes_at = until
        try:
            stream = self._inbox.get(timeout=max(0.0, until - now))
        except Empty:
            if self.clock() - until <= STALL_S:
                if self._stalled_from is not None:
                    self._stood_still.append((self._ran_at, self.clock()))
                self._stalled_from = None
            elif self._stalled_from is None:
                self._stalled_from = until
            return
        if stream is not None:
            stream.abandoned()
