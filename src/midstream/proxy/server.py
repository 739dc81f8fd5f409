"""Runs the proxy on a socket until it is told to end: what happens to connections, and to open streams at the end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import uvicorn

from midstream._support.asgi_server import BoundedProtocol, error_body
from midstream.proxy.application import ProxyApplication
from midstream.proxy.connections import Connections

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

MOST_CONNECTIONS = 10_000
"""Of clients, at the same time, unless the process may open fewer files."""
IDLE_S = 60.0
"""How long a client's connection may stay open without a whole request, at least; twice as long at most."""
MAX_HEAD_BYTES = 64 * 1024
_UNSENT_BYTES = 16 * 1024
"""Bytes that wait for a slow client in this process, and as many in the kernel, before the upstream has to wait."""
_TCP_NOTSENT_LOWAT = 25
"""Linux's number; Python has no name for it before 3.13."""


class ProxyProtocol(BoundedProtocol):
    """A client's connection: little is kept for a client that does not read, and an answer is never cut silently."""

    most_connections = MOST_CONNECTIONS
    idle_s = IDLE_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn calls it
        """Begin."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_UNSENT_BYTES)
        connection = transport.get_extra_info("socket")
        if sys.platform == "linux" and connection is not None:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        self.app: ASGIApp = _CuttingApplication(self.app, lambda: _reset_at_close(connection))

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP in the shape of OpenAI's errors, and close the connection."""
        body = error_body("The request is not valid HTTP.", "invalid_request_error", "bad_http")
        head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
        self.transport.write(b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body))
        self.transport.close()


class _CuttingApplication:
    """Resets the connection of an HTTP/1.0 client whose answer is cut: for it a close is the end of the answer."""

    def __init__(self, app: ASGIApp, reset: Callable[[], None]) -> None:
        self._app = app
        self._reset = reset

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_whole = False

        async def sending(message: Any) -> None:
            nonlocal is_whole
            is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        if scope["http_version"] != "1.0":
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, sending)
        if not is_whole:
            self._reset()


def _reset_at_close(connection: Any) -> None:
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")


class ProxyServer(uvicorn.Server):
    """Ends with SIGTERM or SIGINT, in the main thread, or with `stop()`.

    SIGTERM: no new connections; open streams go on for `drain_s` and are then cut. SIGINT, or a second SIGTERM: they
    are cut at once. `connections` are closed at the end, and `ended_by` is the signal.
    """

    def __init__(
        self,
        app: ProxyApplication,
        connections: Connections,
        *,
        drain_s: float,
        takes_signals: bool = True,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=ProxyProtocol,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=drain_s,  # type: ignore[arg-type]  # asyncio takes fractions as well
                timeout_keep_alive=int(IDLE_S),
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                backlog=4096,
            )
        )
        self._upstreams = connections
        self._takes_signals = takes_signals
        self.ready = threading.Event()
        self.ended_by: int | None = None

    def run_on(self, listener: socket.socket) -> None:
        """Serve on this socket until the end, in an event loop of its own."""
        try:
            asyncio.run(self._serve_on(listener))
        finally:
            self.ready.set()

    def stop(self, *, drain: bool) -> None:
        """End, from any thread: after open streams, or at once."""
        if not drain or self.should_exit:
            self.config.timeout_graceful_shutdown = 0
            self.force_exit = True
        self.should_exit = True

    async def _serve_on(self, listener: socket.socket) -> None:
        try:
            await self.serve(sockets=[listener])
        finally:
            for task in list(self.server_state.tasks):
                task.cancel()
            await asyncio.gather(*self.server_state.tasks, return_exceptions=True)
            for connection in list(self.server_state.connections):
                connection.transport.close()
            await self._upstreams.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals for as long as it serves; uvicorn would raise them again at the end."""
        if not self._takes_signals or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self._on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _on_signal(self, number: int, _frame: object) -> None:
        self.end(number)

    def end(self, number: int) -> None:
        """End as this signal ends it, from any thread."""
        self.ended_by = self.ended_by or number
        self.stop(drain=number == signal.SIGTERM)


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Bind a listening socket; `shared` lets others of this program bind the same port. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(
        (str(address[0]), port),
        family=family,
        backlog=4096,
        reuse_port=shared,
        dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
    )


def allow_open_files() -> None:
    """Raise the soft limit of open files to the hard one: each stream takes two."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
