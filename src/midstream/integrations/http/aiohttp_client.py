"""aiohttp's own client: where its responses pass, and what stands between a body and its reader.

A body is read through `response.content`, by any of its methods; a proxy in its place observes each of them.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import wrapt

from midstream._support.internal_errors import report_internal_error
from midstream.attribution.tcp_info import WireClock, wire_clock_of
from midstream.integrations.ending import aiohttp_timeout, loop_end
from midstream.integrations.http.following import Sending, observer_for, on_failure, sending
from midstream.integrations.http.observer import BodyObserver
from midstream.integrations.http.requests import Exchange, is_to_be_read
from midstream.integrations.patching import Original, Patches, bind, bound

T = TypeVar("T")

if TYPE_CHECKING:
    _Proxy = wrapt.ObjectProxy[Any]
else:
    _Proxy = wrapt.ObjectProxy  # before wrapt 2 it takes no parameter


def client_types(library: Any) -> tuple[type, ...]:
    """The classes of this library whose instances can be monitored."""
    return (library.ClientSession,)


def patch(library: Any, patches: Patches) -> None:
    """Have the responses of this library pass here."""
    patches.wrap(library.ClientSession, "_request", _request)
    patches.wrap(library.ClientResponse, "close", _closing)
    patches.wrap(library.ClientResponse, "release", _closing)


def _request(original: Original) -> Original:
    call = bound(original)

    async def request(session: Any, /, *args: Any, **kwargs: Any) -> Any:
        ours = sending(session)
        if ours is None:
            return await call(session, *args, **kwargs)
        try:
            response = await call(session, *args, **kwargs)
        except BaseException as exc:
            _on_failure(ours, session, args, kwargs, exc)
            raise
        finally:
            ours.active = False
        _observe(ours, response, kwargs)
        return response

    return request


def _closing(original: Original) -> Original:
    def close(response: Any, /, *args: Any, **kwargs: Any) -> Any:
        content = getattr(response, "content", None)
        if type(content) is ObservedReader:
            content.over()
        return bind(original, response)(*args, **kwargs)

    return close


def _observe(request: Sending, response: Any, kwargs: dict[str, Any]) -> None:
    try:
        content_type = response.headers.get("Content-Type", "")
        if response.method != "POST" or not is_to_be_read(response.status, content_type):
            return
        exchange = Exchange(
            method=response.method,
            url=response.url,
            status=response.status,
            content_type=content_type,
            content_encoding=response.headers.get("Content-Encoding", ""),
            body=lambda: _body(kwargs),
        )
        observer = observer_for(
            request,
            exchange,
            lambda clock: _wire(response, clock),
            on_loop=True,
            stall=lambda monitor: (loop_end(monitor, lambda: _abort(response)), aiohttp_timeout()),
        )
        if observer is not None:
            response.content = ObservedReader(response.content, observer)
    except Exception as exc:  # noqa: BLE001 - the response is read as it would be without us
        report_internal_error("response", exc)


def _body(kwargs: dict[str, Any]) -> Any:
    return kwargs.get("json") if kwargs.get("json") is not None else kwargs.get("data")


def _on_failure(
    request: Sending, session: Any, args: Any, kwargs: dict[str, Any], exc: BaseException
) -> None:
    def exchange() -> Exchange | None:
        method, url = (*args, kwargs.get("method"), kwargs.get("str_or_url"))[:2]
        try:
            url = session._build_url(url)
        except (TypeError, ValueError):  # it was the URL that failed
            return None
        status = getattr(exc, "status", 0) if _is_refusal(exc) else 0
        return Exchange(method=str(method), url=url, status=status, body=lambda: _body(kwargs))

    on_failure(request, exchange, exc)


def _is_refusal(exc: BaseException) -> bool:
    """Whether this is what a session raises that was asked to raise for a status."""
    return any(kind.__name__ == "ClientResponseError" for kind in type(exc).__mro__)


def _abort(response: Any) -> None:
    """Drop the connection, unless the response is complete and has given it back."""
    transport = getattr(response.connection, "transport", None)
    if transport is not None:
        transport.abort()


def _wire(response: Any, clock: Callable[[], float]) -> WireClock | None:
    transport = getattr(response.connection, "transport", None)
    socket = None if transport is None else transport.get_extra_info("socket")
    return wire_clock_of(socket, clock, response.headers)


class ObservedReader(_Proxy):
    """A body's reader that passes everything on, and observes what is read."""

    def __init__(self, reader: Any, observer: BodyObserver) -> None:
        super().__init__(reader)
        self._self_observer = observer

    def over(self) -> None:
        """The response is closed or released."""
        try:
            self._self_observer.closed(sys.exc_info()[1])
        except Exception as exc:  # noqa: BLE001 - the connection is closed all the same
            report_internal_error("close", exc)

    def __del__(self) -> None:
        self._self_observer.tracker.dropped()

    # Reading

    async def readany(self) -> bytes:
        """What has come, or the next to come."""
        return await self._self_read(self.__wrapped__.readany())

    async def read(self, n: int = -1) -> bytes:
        """At most `n` bytes; all if `n` is negative."""
        if n >= 0:
            return await self._self_read(self.__wrapped__.read(n), end=n > 0)
        blocks = []
        while block := await self.readany():
            blocks.append(block)
        return b"".join(blocks)

    async def readline(self, **kwargs: Any) -> bytes:
        """One line."""
        return await self._self_read(self.__wrapped__.readline(**kwargs))

    async def readuntil(self, *args: Any, **kwargs: Any) -> bytes:
        """Everything up to a separator."""
        return await self._self_read(self.__wrapped__.readuntil(*args, **kwargs))

    async def readexactly(self, n: int) -> bytes:
        """Just `n` bytes."""
        return await self._self_read(self.__wrapped__.readexactly(n), end=False)

    async def readchunk(self) -> tuple[bytes, bool]:
        """One piece as it was sent, and whether an HTTP chunk ends with it."""
        chunk: tuple[bytes, bool] = await self._self_wait(self.__wrapped__.readchunk())
        self._self_came(chunk[0], end=not chunk[1])
        return chunk

    def read_nowait(self, n: int = -1) -> bytes:
        """What has come."""
        self._self_observer.asked()
        piece: bytes = self.__wrapped__.read_nowait(n)
        self._self_came(piece, end=False)
        return piece

    def __aiter__(self) -> Any:
        return type(self.__wrapped__.__aiter__())(self.readline)

    def iter_chunked(self, n: int) -> Any:
        """Pieces of at most `n` bytes."""
        return type(self.__wrapped__.iter_chunked(n))(lambda: self.read(n))

    def iter_any(self) -> Any:
        """Pieces as they come."""
        return type(self.__wrapped__.iter_any())(self.readany)

    def iter_chunks(self) -> Any:
        """Pieces as they were sent."""
        return type(self.__wrapped__.iter_chunks())(self)

    async def _self_read(self, reading: Awaitable[bytes], *, end: bool = True) -> bytes:
        piece = await self._self_wait(reading)
        self._self_came(piece, end=end)
        return piece

    async def _self_wait(self, reading: Awaitable[T]) -> T:
        observer = self._self_observer
        observer.asked()
        try:
            return await reading
        except BaseException as exc:
            observer.failed(exc)
            raise

    def _self_came(self, piece: bytes, *, end: bool) -> None:
        if piece or not end:
            self._self_observer.arrived(piece)
        else:
            self._self_observer.exhausted()
