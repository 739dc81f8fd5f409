"""Event loop lag: since when an event loop has been too busy to deliver what has come for it.

One heartbeat serves a loop while monitored streams are open on it. Its timer notices when the loop was blocked. From
then on it counts the turns of the loop: what the kernel had received takes a few turns to reach the program, so only
after several quick turns in a row is the loop responsive again. Blocks that follow one another are thus one busy time.

The timer keeps no loop alive, belongs to no task, and is cancelled with the last stream.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable

BEAT_S = 0.05
LATE_S = 0.05
"""A beat this late means that the loop was blocked; half of what people notice."""
TURNS = 6
"""Within how many turns of a loop data gets from the kernel to the program: three with httpx on asyncio, doubled."""


class Heartbeat:
    """The lag of one event loop. Moments in seconds on `clock`, the monitor's."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_handle",
        "_left",
        "_loop",
        "_recent",
        "_streams",
        "beat",
        "busy_from",
        "is_responsive",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop = weakref.ref(loop)
        self._clock = clock
        self._streams = 0
        self._handle: asyncio.TimerHandle | None = None
        self._left = 0
        self._recent: deque[float] = deque(maxlen=TURNS)
        self.beat = clock()
        self.busy_from: float | None = None
        """Since when the loop has not been responsive; None while it is, as far as the last beat shows."""
        self.is_responsive = self._is_responsive
        """Whether the loop delivers at once what comes; one bound method for all streams."""

    def join(self) -> None:
        """A stream opens on this loop. Call it on the loop."""
        self._streams += 1
        if self._handle is None:
            self.beat = self._clock()
            self._arm()

    def leave(self) -> None:
        """A stream of this loop has ended. The timer goes with the last one: at once on the loop, else a beat later."""
        self._streams -= 1
        if self._streams <= 0 and self._handle is not None and _running_loop() is self._loop():
            self._handle.cancel()
            self._handle = None

    def busy_since(self, now: float) -> float | None:
        """Since when the loop has been too busy to deliver what came, called on the loop; None if it is responsive."""
        if self.busy_from is not None:
            return self.busy_from
        return self.beat if now - self.beat > BEAT_S + LATE_S else None  # the late beat is still to come

    def busy_at(self, now: float) -> float | None:
        """The same as seen from another thread at this moment, which the loop may be about to answer."""
        if self.busy_from is not None:
            return self.busy_from
        late = self._handle is not None and now - self.beat > BEAT_S + 2 * LATE_S
        return self.beat if late else None

    def delivered(self, moment: float) -> bool:
        """Whether the loop has made enough turns since `moment` to have delivered what had come by then."""
        recent = self._recent
        return len(recent) == TURNS and recent[0] > moment

    def _is_responsive(self, now: float) -> bool:
        return self.busy_from is None and now - self.beat <= BEAT_S + LATE_S

    def _arm(self) -> None:
        loop = self._loop()
        self._handle = None if loop is None or loop.is_closed() else loop.call_later(BEAT_S, self._on_beat)

    def _on_beat(self) -> None:
        now, before = self._clock(), self.beat
        self.beat = now
        if now - before > BEAT_S + LATE_S:
            self._on_block(before)
        if self._streams > 0:
            self._arm()
        else:
            self._handle = None

    def _on_block(self, since: float) -> None:
        self._left = TURNS
        loop = self._loop()
        if self.busy_from is None and loop is not None:
            self.busy_from = since
            self._recent.clear()
            loop.call_soon(self._on_turn)

    def _on_turn(self) -> None:
        now, before = self._clock(), self.beat
        self.beat = now
        self._recent.append(now)
        self._left = TURNS if now - before > BEAT_S + LATE_S else self._left - 1
        loop = self._loop()
        if self._left > 0 and self._streams > 0 and loop is not None:
            loop.call_soon(self._on_turn)
        else:
            self.busy_from = None


_HEARTBEATS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Heartbeat] = weakref.WeakKeyDictionary()


def heartbeat(clock: Callable[[], float]) -> Heartbeat | None:
    """The heartbeat of the running event loop, joined; None where none of asyncio's kind runs (under trio, say)."""
    loop = _running_loop()
    if loop is None:
        return None
    pulse = _HEARTBEATS.get(loop)
    if pulse is None:
        pulse = _HEARTBEATS[loop] = Heartbeat(loop, clock)
    pulse.join()
    return pulse


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
