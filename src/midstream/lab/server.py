"""Runs an ASGI application on a port of this machine for as long as a `with` block lasts."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from midstream._support.asgi_server import BoundedProtocol
from midstream.lab._bounded import BoundedApplication

if TYPE_CHECKING:
    from starlette.types import ASGIApp


@contextmanager
def serve(
    app: ASGIApp, *, host: str = "127.0.0.1", port: int = 0, allow_hosts: Collection[str] = ()
) -> Iterator[str]:
    """Serve `app` in a background thread, and give the base URL for an OpenAI client (`http://host:port/v1`).

    Port 0 takes a free one. `allow_hosts` are host names that are answered beside loopback ones. On the way out open
    streams are cut; everything is gone when the block has ended. Raises OSError when the address cannot be had.
    """
    with _listen(host, port) as listener:
        config = uvicorn.Config(
            BoundedApplication(app, host, allow_hosts),
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=16 * 1024,
        )
        server = _ThreadedServer(config)
        # A daemon, so that a caller who never leaves the block cannot hold the interpreter at exit.
        thread = threading.Thread(target=server.run_on, args=(listener,), name="midstream-lab", daemon=True)
        thread.start()
        try:
            server.ready.wait()
            yield _base_url(listener)
        finally:
            server.should_exit = True
            thread.join()


class _ThreadedServer(uvicorn.Server):
    """A uvicorn server that signals when it is up, and does not wait for streams when it goes down."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    def run_on(self, listener: socket.socket) -> None:
        try:
            asyncio.run(self.serve(sockets=[listener]))
        finally:
            self.ready.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.close()
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server((str(address[0]), port), family=family)


def _base_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"
