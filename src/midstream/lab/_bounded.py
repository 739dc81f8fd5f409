"""What a server of the lab takes from its clients: so many connections, so much time and so many bytes for a request.

On a loopback address it answers loopback hosts only, and no web page of another site, so that neither a page whose name
was rebound to 127.0.0.1 nor a script elsewhere can use it. Refusals have the shape of OpenAI's errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

from midstream._support.asgi_server import send_error
from midstream._support.http_hosts import AllowedHosts

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        self._hosts = AllowedHosts(host, allow_hosts)

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
        refusal = self._hosts.refusal(headers.get("host"), headers.get("origin"))
        if refusal is not None:
            raise RequestRefusedError(403, refusal)


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
    await send_error(send, refusal.status, str(refusal), "invalid_request_error", refusal.status)
