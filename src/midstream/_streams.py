"""The hot path: what stands between the caller and the chunks, sync and async side by side.

Per chunk it reads the clock twice, says so to the session, and passes the chunk on as it came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from midstream._chunks import NOTHING, Reader, read_model
from midstream._guard import trouble
from midstream._session import CAUGHT_UP_S, Session
from midstream._tracker import Tracker


def _amiss(session: Session, now: float, exc: Exception) -> None:
    """Our own failures stop here. The chunk counts as one without output, whatever it was."""
    trouble("chunk reader", exc)
    if session.waiting:
        session.chunk(NOTHING, now)


class SyncChunks(Iterator[Any]):
    """Yields what `source` yields. `hide` names chunks that are there only because we asked for them."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_hide",
        "_long_s",
        "_next",
        "_read",
        "_session",
        "_tracker",
        "source",
    )

    def __init__(
        self,
        source: Iterator[Any],
        tracker: Tracker,
        read: Reader,
        clock: Callable[[], float],
        hide: Callable[[Any], bool] | None = None,
    ) -> None:
        self.source = source
        self._next = source.__next__
        self._tracker = tracker
        self._session = tracker.session
        self._read = read
        self._long_s = tracker.attribution.long_s
        self._clock = clock
        self._hide = hide

    def __iter__(self) -> SyncChunks:
        return self

    def __next__(self) -> Any:
        session = self._session
        if session.busy:
            return self._next()
        clock = self._clock
        session.asked = asked = clock()
        session.busy = True
        try:
            chunk = self._next()
        except StopIteration:
            self._tracker.exhausted(clock())
            raise
        except BaseException as exc:
            self._tracker.failed(exc, clock())
            raise
        now = clock()
        try:
            reading = self._read(chunk)
            last = session.last_event
            if now - last >= self._long_s:
                signal = self._tracker.long_wait(reading, now)
            elif reading is session.steady:
                session.last_event = now
                session.busy = False
                session.content_chunks += 1
                wait = now - asked
                session.waited += wait
                if wait > CAUGHT_UP_S:
                    session.caught_up = now
                if now - last > session.max_gap or asked - last > session.max_hold:  # type: ignore[operator]
                    session.stretch(asked - last, wait)
                return chunk
            else:
                signal = session.chunk(reading, now)
            if session.unnamed:
                session.name(read_model(chunk))
            if signal is not None:
                self._tracker.signal(signal, now)
        except Exception as exc:  # noqa: BLE001 - a chunk may be anything at all
            _amiss(session, now, exc)
        if self._hide is not None and self._hide(chunk):
            return self.__next__()
        return chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def __del__(self) -> None:
        self._tracker.dropped()


class AsyncChunks(AsyncIterator[Any]):
    """The same for an async source. The source is awaited in the caller's own task, never in another."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_hide",
        "_long_s",
        "_next",
        "_read",
        "_session",
        "_tracker",
        "source",
    )

    def __init__(
        self,
        source: AsyncIterator[Any],
        tracker: Tracker,
        read: Reader,
        clock: Callable[[], float],
        hide: Callable[[Any], bool] | None = None,
    ) -> None:
        self.source = source
        self._next = source.__anext__
        self._tracker = tracker
        self._session = tracker.session
        self._read = read
        self._long_s = tracker.attribution.long_s
        self._clock = clock
        self._hide = hide

    def __aiter__(self) -> AsyncChunks:
        return self

    async def __anext__(self) -> Any:
        session = self._session
        if session.busy:
            return await self._next()
        clock = self._clock
        session.asked = asked = clock()
        session.busy = True
        try:
            chunk = await self._next()
        except StopAsyncIteration:
            self._tracker.exhausted(clock())
            raise
        except BaseException as exc:
            self._tracker.failed(exc, clock())
            raise
        now = clock()
        try:
            reading = self._read(chunk)
            last = session.last_event
            if now - last >= self._long_s:
                signal = self._tracker.long_wait(reading, now)
            elif reading is session.steady:
                session.last_event = now
                session.busy = False
                session.content_chunks += 1
                wait = now - asked
                session.waited += wait
                if wait > CAUGHT_UP_S:
                    session.caught_up = now
                if now - last > session.max_gap or asked - last > session.max_hold:  # type: ignore[operator]
                    session.stretch(asked - last, wait)
                return chunk
            else:
                signal = session.chunk(reading, now)
            if session.unnamed:
                session.name(read_model(chunk))
            if signal is not None:
                self._tracker.signal(signal, now)
        except Exception as exc:  # noqa: BLE001 - a chunk may be anything at all
            _amiss(session, now, exc)
        if self._hide is not None and self._hide(chunk):
            return await self.__anext__()
        return chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def __del__(self) -> None:
        self._tracker.dropped()
