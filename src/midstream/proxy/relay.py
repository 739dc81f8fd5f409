"""Passes the body of an answer on to the client, piece by piece, no faster than the client takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream.proxy.connections import UpstreamAnswer, UpstreamBroke
from midstream.stream.stalled import StreamStalled

if TYPE_CHECKING:
    from starlette.types import Send


async def relay(answer: UpstreamAnswer, send: Send) -> bool:
    """Pass every piece on. Returns whether the answer came to its end."""
    try:
        async for piece in answer.pieces():
            answer.passed(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    except (UpstreamBroke, StreamStalled):
        return False
    return True
