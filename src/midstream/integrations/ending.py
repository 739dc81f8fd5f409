"""The stall timeout in each library: what ends the read in progress, and the timeout error of that library."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from midstream.attribution.tcp_info import connection_of
from midstream.runtime.monitor import Monitor
from midstream.runtime.stall import CallEnd, ReadEnd, SocketEnd, StepEnd
from midstream.stream.stalled import LibraryTimeout

_INNER = ("response", "_response", "http_response", "raw_response", "_raw_stream", "raw", "resp", "fp", "_fp")
"""Where streams of all kinds keep the response that they read."""
_DEEPEST = 4


def response_end(monitor: Monitor, response: Any, *, on_loop: bool) -> ReadEnd | None:
    """How a read of this httpx response is ended."""
    if monitor.stall_limits is None:
        return None
    connection = connection_of(response)
    loop = _running_loop() if on_loop else None
    if connection is not None:
        return SocketEnd(connection, loop)
    return None if loop is None else StepEnd(loop)


def socket_end(monitor: Monitor, connection: Any) -> ReadEnd | None:
    """How a read of this socket is ended."""
    return None if monitor.stall_limits is None or connection is None else SocketEnd(connection)


def loop_end(monitor: Monitor, end: Callable[[], object]) -> ReadEnd | None:
    """How a read is ended by something that is called on the loop that runs here."""
    return None if monitor.stall_limits is None else CallEnd(end, asyncio.get_running_loop())


def stream_end(monitor: Monitor, stream: Any, *, on_loop: bool) -> ReadEnd | None:
    """How a read of a stream of unknown make is ended, if there is a way that can be found."""
    if monitor.stall_limits is None:
        return None
    loop = _running_loop() if on_loop else None
    if loop is not None:
        return StepEnd(loop)
    connection = _socket_in(stream, _DEEPEST)
    if connection is not None:
        return SocketEnd(connection)
    cancel = getattr(stream, "cancel", None)  # a call of gRPC: the one who waits for it gets an error
    return CallEnd(cancel) if callable(cancel) else None


def sdk_timeout(stream: Any) -> LibraryTimeout | None:
    """The timeout error of the SDK that made this stream: the openai SDK's, or that of one made by the same tool.

    In the middle of a stream most versions pass on the HTTP library's instead, so that callers expect that one.
    """
    package = sys.modules.get(type(stream).__module__.partition(".")[0])
    kind = getattr(package, "APITimeoutError", None)
    http = http_timeout(stream.response)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return http
    beneath = None if http is None else http.kind
    return LibraryTimeout(kind, {"request": stream.response.request}, takes_message=False, beneath=beneath)


def http_timeout(response: Any) -> LibraryTimeout | None:
    """The read timeout of the HTTP library (httpx, httpx2, requests) that made this response."""
    package = sys.modules.get(type(response).__module__.partition(".")[0])
    kind = getattr(package, "ReadTimeout", None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return None
    return LibraryTimeout(kind, {"request": response.request})


def aiohttp_timeout() -> LibraryTimeout:
    """The read timeout of aiohttp."""
    library = sys.modules["aiohttp"]
    return LibraryTimeout(getattr(library, "SocketTimeoutError", library.ServerTimeoutError), {})


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # trio's, or one that runs later
        return None


def _socket_in(obj: Any, deep: int) -> Any:
    """The socket that serves this object alone, looked for where responses have it."""
    if hasattr(obj, "extensions"):
        return connection_of(obj)
    for way in (("_connection", "sock"), ("raw", "_sock")):  # urllib3's responses; the file of a socket
        found = obj
        for name in way:
            found = getattr(found, name, None)
        if hasattr(found, "shutdown"):
            return found
    if deep:
        for name in _INNER:
            inner = getattr(obj, name, None)
            found = None if inner is None or callable(inner) else _socket_in(inner, deep - 1)
            if found is not None:
                return found
    return None
