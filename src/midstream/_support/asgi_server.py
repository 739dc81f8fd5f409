"""What the servers of this program share: bounds on their connections, errors in OpenAI's shape, and a quiet log.

It needs uvicorn, so only what serves imports it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

if TYPE_CHECKING:
    from starlette.types import Send

MAX_CONNECTIONS = 200
"""Open at the same time, or half of what the process may open. One more closes the oldest that is idle."""
IDLE_S = 10.0
"""How long a connection may stay open without a whole request, at least; twice as long at most."""

_ROUTINE = {
    "ASGI callable returned without completing response.",
    "ASGI callable returned without starting response.",
    "Cancel %s running task(s), timeout graceful shutdown exceeded",
    "Invalid HTTP request received.",
    "Unsupported upgrade request.",
}
_ROUTINE_START = "No supported WebSocket library"


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Leave out answers that were cut, which applications do on purpose, and requests that are none."""
    return record.msg not in _ROUTINE and not str(record.msg).startswith(_ROUTINE_START)


logging.getLogger("uvicorn.error").addFilter(_is_worth_logging)


def error_body(message: str, kind: str, code: str | int | None) -> bytes:
    """Return an error in the shape of OpenAI's."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


async def send_error(send: Send, status: int, message: str, kind: str, code: str | int | None) -> None:
    """Answer with an error in the shape of OpenAI's, and close the connection."""
    body = error_body(message, kind, code)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class BoundedProtocol(H11Protocol):
    """A connection that is closed when no request comes, or when there are too many connections."""

    most_connections = MAX_CONNECTIONS
    idle_s = IDLE_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn calls it
        """Begin, and close the oldest idle connection if this is one too many."""
        super().connection_made(transport)
        self._was_idle = True
        self._opened_at = self.loop.time()
        self._check_again()
        open_ = [each for each in self.connections if isinstance(each, BoundedProtocol)]
        if len(open_) > max_connections(self.most_connections):
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
        self._check = self.loop.call_later(self.idle_s, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.is_idle and self._was_idle:
            self.transport.close()
            return
        self._was_idle = self.is_idle
        self._check_again()


def max_connections(most: int) -> int:
    """Return how many connections may be open: so many, or half of what the process may open."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return most
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(most, soft // 2) if soft > 0 else most
