"""Stands between the byte stream of an httpx response and its reader. httpx and httpx2 have the same shape.

The classes are made from the library's own, which is not imported here: a response checks that its stream is one.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any

from midstream._support.internal_errors import report_internal_error
from midstream.integrations.http.observer import BodyObserver


class Pieces:
    """One pass over a byte stream. The observer holds the session, and this is what the reader holds."""

    __slots__ = ("_next", "_observer")

    def __init__(self, source: Iterator[bytes], observer: BodyObserver) -> None:
        self._next = source.__next__
        self._observer = observer

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        observer = self._observer
        observer.asked()
        try:
            piece = self._next()
        except StopIteration:
            observer.exhausted()
            raise
        except BaseException as exc:
            observer.failed(exc)
            raise
        observer.arrived(piece)
        return piece


class AsyncPieces:
    """The same for an async byte stream, which is awaited in the reader's own task."""

    __slots__ = ("_next", "_observer")

    def __init__(self, source: AsyncIterator[bytes], observer: BodyObserver) -> None:
        self._next: Callable[[], Awaitable[bytes]] = observer.tracker.endable(source).__anext__
        self._observer = observer

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        observer = self._observer
        observer.asked()
        try:
            piece = await self._next()
        except StopAsyncIteration:
            observer.exhausted()
            raise
        except BaseException as exc:
            observer.failed(exc)
            raise
        observer.arrived(piece)
        return piece


class _ObservedStream:
    """What both kinds have in common: the library's byte stream, and the end of ours when it is closed or dropped."""

    _midstream: tuple[Any, BodyObserver]

    def _over(self) -> None:
        try:
            self._midstream[1].closed(sys.exc_info()[1])
        except Exception as exc:  # noqa: BLE001 - the connection is closed all the same
            report_internal_error("close", exc)

    def __getattr__(self, name: str) -> Any:
        if name == "_midstream":
            raise AttributeError(name)
        return getattr(self._midstream[0], name)

    def __del__(self) -> None:
        if "_midstream" in vars(self):
            self._midstream[1].tracker.dropped()


@lru_cache(maxsize=8)
def observed_kinds(sync_base: type, async_base: type) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The classes of observed byte streams for one library, from its own two."""

    class ObservedByteStream(_ObservedStream, sync_base):  # type: ignore[misc]
        """A sync byte stream."""

        def __init__(self, inner: Any, observer: BodyObserver) -> None:
            self._midstream = (inner, observer)

        def __iter__(self) -> Iterator[bytes]:
            inner, observer = self._midstream
            return Pieces(iter(inner), observer)

        def close(self) -> None:
            self._over()
            self._midstream[0].close()

    class ObservedAsyncByteStream(_ObservedStream, async_base):  # type: ignore[misc]
        """An async byte stream."""

        def __init__(self, inner: Any, observer: BodyObserver) -> None:
            self._midstream = (inner, observer)

        def __aiter__(self) -> AsyncIterator[bytes]:
            inner, observer = self._midstream
            return AsyncPieces(aiter(inner), observer)

        async def aclose(self) -> None:
            self._over()
            await self._midstream[0].aclose()

    return ObservedByteStream, ObservedAsyncByteStream


class ObservedDecoder:
    """A content decoder of the library's, whose output is observed."""

    def __init__(self, decoder: Any, observer: BodyObserver) -> None:
        self._decoder = decoder
        self._observer = observer

    def decode(self, data: bytes) -> Any:
        """Decode as the library does."""
        return self._seen(self._decoder.decode(data))

    def flush(self) -> Any:
        """End the decoding as the library does."""
        return self._seen(self._decoder.flush())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def _seen(self, data: Any) -> Any:
        """Observe what was decoded: bytes in httpx, an iterator over bytes in httpx2."""
        if isinstance(data, bytes):
            self._observe(data)
            return data
        return self._each(data)

    def _each(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            self._observe(part)
            yield part

    def _observe(self, data: bytes) -> None:
        if data:
            try:
                self._observer.decoded(data)
            except Exception as exc:  # noqa: BLE001 - the reader gets what was decoded
                report_internal_error("decoder", exc)
