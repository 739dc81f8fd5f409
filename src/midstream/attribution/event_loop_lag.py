"""Notices when an event loop was too busy to do anything else, by a light callback that comes late then.

One heartbeat serves a loop while monitored streams are open on it. It is a timer of the loop's own: it keeps no loop
alive, belongs to no task, and is cancelled with the last stream.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable

BEAT_S = 0.05
LATE_S = 0.05
"""A beat this late means that the loop was blocked; half of what people notice."""
SETTLED_S = 0.1
"""How long after a block, or after the process stood still, a chunk has nothing to do with it any more."""
FRESH_S = 0.02
"""A block that ended this recently ended just before what happens now."""


class Heartbeat:
    """The pulse of one event loop. Moments in seconds on `clock`, the monitor's."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_handle",
        "_loop",
        "_streams",
        "beat",
        "blocked_from",
        "blocked_until",
        "is_responsive",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop = weakref.ref(loop)
        self._clock = clock
        self._streams = 0
        self._handle: asyncio.TimerHandle | None = None
        self.beat = clock()
        self.blocked_from = self.beat
        self.blocked_until = self.beat
        self.is_responsive = self._is_responsive
        """Whether the loop has not been blocked for a while; one bound method for all streams."""

    def join(self) -> None:
        """A stream opens on this loop. Call it on the loop."""
        self._streams += 1
        if self._handle is None:
            self.beat = self._clock()
            self._arm()

    def leave(self) -> None:
        """A stream of this loop has ended. The timer goes with the last one: at once on the loop, else a beat later."""
        self._streams -= 1
        if self._streams == 0 and self._handle is not None and _running_loop() is self._loop():
            self._handle.cancel()
            self._handle = None

    def blocked_since(self, now: float) -> float | None:
        """Since when the loop was blocked, if it was until just now; the earliest moment that can have begun."""
        if now - self.beat > BEAT_S + LATE_S:
            return self.beat  # the block is over only now, and the late beat still to come
        if now - self.blocked_until <= FRESH_S and self.blocked_until > self.blocked_from:
            return self.blocked_from
        return None

    def _is_responsive(self, now: float) -> bool:
        return now - self.beat <= BEAT_S + LATE_S and now - self.blocked_until > SETTLED_S

    def blocked_at(self, now: float) -> bool:
        """Whether the loop is blocked at this moment, as seen from another thread."""
        return self._handle is not None and now - self.beat > BEAT_S + 2 * LATE_S

    def _arm(self) -> None:
        loop = self._loop()
        self._handle = None if loop is None or loop.is_closed() else loop.call_later(BEAT_S, self._on_beat)

    def _on_beat(self) -> None:
        now = self._clock()
        if now - self.beat > BEAT_S + LATE_S:
            self.blocked_from, self.blocked_until = self.beat, now
        self.beat = now
        if self._streams > 0:
            self._arm()
        else:
            self._handle = None


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
