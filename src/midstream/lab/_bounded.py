"""What a server of the lab takes from its clients: so many connections, so much time and so many bytes for a request.

On a loopback address it answers loopback hosts only, and no web page of another site, so that neither a page whose name
was rebound to 127.0.0.1 nor a script elsewhere can use it. Refusals have the shape of OpenAI's errors.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from midstream._support.http_hosts import host_of, is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_CONNECTIONS = 200
"""Open at the same time, or half of what the process may open. One more closes the oldest that is idle."""
IDLE_S = 10.0
"""How long a connection may stay open without a whole request, at least; twice as long at most."""
MAX_BODY_BYTES = 8 * 2**20
BODY_S = 30.0
"""How long a client may take to send the body of its request."""


class RequestRefusedError(Exception):
    """A request that is not answered: with which status, and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BoundedApplication:
    """An application that sees only requests from allowed hosts and origins, with a whole body of bounded size."""

    def __init__(self, app: ASGIApp, host: str, allow_hosts: Collection[str] = ()) -> None:
        self._app = app
        self._allowed = {name.lower().rstrip(".") for name in allow_hosts} | {host.lower()}
        self._any_host = "*" in self._allowed or not (is_loopback(host) or allow_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self._check(headers)
            body = await asyncio.wait_for(_body(receive, headers), BODY_S)
            if body is not None:
                await self._app(scope, _again(body, receive), sending)
        except RequestRefusedError as refusal:
            await _refuse(send, refusal)
        except (asyncio.TimeoutError, TimeoutError):
            if not started:
                await _refuse(send, RequestRefusedError(408, "The request took too long to arrive."))
        except Exception as error:  # noqa: BLE001 - a client must not be able to print a traceback
            if not started:
                kind = type(error).__name__
                await _refuse(send, RequestRefusedError(500, f"The request cannot be answered ({kind})."))

    def _check(self, headers: dict[str, str]) -> None:
        host = host_of(headers.get("host", "localhost"))
        if not self._is_allowed(host):
            raise RequestRefusedError(403, "This host name is not answered here; see --allow-host.")
        origin = headers.get("origin")
        if origin is not None:
            try:
                page = host_of(urlsplit(origin).netloc)
            except ValueError:
                page = None
            if page is None or not (page == host or (not self._any_host and self._is_allowed(page))):
                raise RequestRefusedError(
                    403, "Pages of other sites are not answered here; see --allow-host."
                )

    def _is_allowed(self, host: str | None) -> bool:
        return self._any_host or (host is not None and (host in self._allowed or is_loopback(host)))


async def _body(receive: Receive, headers: dict[str, str]) -> bytes | None:
    """Return the whole body; None if the client has left. Raises RequestRefusedError for one that is too long."""
    too_long = RequestRefusedError(413, f"The request body is longer than {MAX_BODY_BYTES >> 20} MiB.")
    length = headers.get("content-length", "0")
    if len(length) > len(str(MAX_BODY_BYTES)) or int(length) > MAX_BODY_BYTES:
        raise too_long
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise too_long
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what gives the body once, and then whatever else comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _refuse(send: Send, refusal: RequestRefusedError) -> None:
    error = {"message": str(refusal), "type": "invalid_request_error", "param": None, "code": refusal.status}
    body = json.dumps({"error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class BoundedProtocol(H11Protocol):
    """A connection that is closed when no request comes, or when there are too many connections."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn calls it
        """Begin, and close the oldest idle connection if this is one too many."""
        super().connection_made(transport)
        self._was_idle = True
        self._opened_at = self.loop.time()
        self._check_again()
        open_ = [each for each in self.connections if isinstance(each, BoundedProtocol)]
        if len(open_) > max_connections():
            idle = [each for each in open_ if each.is_idle and each is not self] or [self]
            min(idle, key=lambda each: each._opened_at).transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._check.cancel()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _check_again(self) -> None:
        self._check = self.loop.call_later(IDLE_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.is_idle and self._was_idle:
            self.transport.close()
            return
        self._was_idle = self.is_idle
        self._check_again()


def max_connections() -> int:
    """Return how many connections may be open: MAX_CONNECTIONS, or half of what the process may open."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return MAX_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MAX_CONNECTIONS, soft // 2) if soft > 0 else MAX_CONNECTIONS
