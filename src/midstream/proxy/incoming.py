"""A request as it comes in: its parts, the pieces of its body, and whether its client is still there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from midstream.proxy.faults import ClientLeftError, RefusedRequestError
from midstream.proxy.headers import Headers, check_framing, value_of
from midstream.proxy.request_copy import LONGEST_COPY, RequestCopy

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

PIECE_S = 60.0
"""How long a client may take from one piece of its body to the next."""


class IncomingRequest:
    """One request of a client. Raises RefusedRequestError for one that is not to be passed on."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.raw_path: bytes = scope["raw_path"]
        self.query: bytes = scope["query_string"]
        self.headers: Headers = scope["headers"]
        self.scheme: str = scope["scheme"]
        client: Any = scope.get("client")
        self.client = str(client[0]) if client else ""
        if not self.raw_path.startswith(b"/") or self.method == "CONNECT":
            raise RefusedRequestError(
                400, "Only requests with a path are passed on; this is no forward proxy.", "bad_target"
            )
        upgrade = value_of(self.headers, b"upgrade") or b""
        if b"websocket" in upgrade.lower():
            raise RefusedRequestError(
                501, "WebSockets are not passed on; connect to the model server itself.", "no_websocket"
            )
        self.has_body = check_framing(self.headers, scope["http_version"])
        self._receive = receive
        self._first: list[bytes] = []
        self._is_complete = False
        self._received = asyncio.Event()
        is_plain = value_of(self.headers, b"content-encoding") is None
        self.copy = RequestCopy(wanted=self.has_body and is_plain and self.method == "POST")

    def header(self, name: bytes) -> str | None:
        """The value of a header as text."""
        value = value_of(self.headers, name)
        return None if value is None else value.decode("latin-1")

    async def whole(self) -> None:
        """Wait for the whole body, which `body` then gives: for a request whose route depends on it.

        Raises RefusedRequestError for one that is longer than what is kept.
        """
        pieces = []
        async for piece in self._arriving():
            pieces.append(piece)
            if not self.copy.is_open:
                raise RefusedRequestError(
                    413,
                    f"A body longer than {LONGEST_COPY >> 20} MiB cannot be routed by its model; "
                    "use a route by path.",
                    "too_long_to_route",
                )
        self._first = pieces
        self.copy.complete()

    async def body(self) -> AsyncIterator[bytes]:
        """The body in pieces, no faster than they are taken.

        Raises ClientLeftError, or RefusedRequestError for a client that is too slow.
        """
        while self._first:
            yield self._first.pop(0)
        async for piece in self._arriving():
            yield piece
        self.copy.complete()
        self.received()

    async def _arriving(self) -> AsyncIterator[bytes]:
        while self.has_body and not self._is_complete:
            try:
                message = await asyncio.wait_for(self._receive(), PIECE_S)
            except (asyncio.TimeoutError, TimeoutError):
                raise RefusedRequestError(
                    408, f"The body of the request did not go on for {PIECE_S:g} s.", "slow_request"
                ) from None
            if message["type"] == "http.disconnect":
                raise ClientLeftError
            self._is_complete = not message.get("more_body", False)
            piece = message.get("body", b"")
            self.copy.add(piece)
            if piece:
                yield piece

    def received(self) -> None:
        """The body is complete, or the upstream wants no more of it."""
        self.copy.drop()
        self._received.set()

    async def client_left(self) -> None:
        """Return when the client has left, which can be known once its body is here."""
        await self._received.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
