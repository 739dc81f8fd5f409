"""Passes the body of an answer on to the client, piece by piece, no faster than the client takes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

from midstream.proxy.connections import UpstreamAnswer, UpstreamBroke
from midstream.proxy.events import COMMENT, EventBoundary, stall_event
from midstream.stream.stalled import StreamStalled

if TYPE_CHECKING:
    from starlette.types import Send


async def relay(answer: UpstreamAnswer, send: Send, *, keep_alive_s: float | None = None) -> bool:
    """Pass every piece on. Returns whether the answer came to an end that the client may take for one.

    A stream that the stall timeout ends gets an error in its protocol. `keep_alive_s`: whenever the
    upstream has sent nothing for so many seconds, a comment is sent to the client; None is never.
    """
    boundary = EventBoundary(answer.content_type) if answer.may_be_written_to else None
    comments = boundary is not None and keep_alive_s is not None and answer.is_event_stream
    pieces = answer.pieces()
    try:
        if comments and boundary is not None and keep_alive_s is not None:
            pieces = _with_comments(pieces, boundary, keep_alive_s, send)
        async for piece in pieces:
            answer.passed(piece)
            if boundary is not None:
                boundary.passed(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    except StreamStalled as stalled:
        if boundary is None or not boundary.is_here:
            return False
        event = stall_event(answer.path, answer.content_type, stalled, answer.events)
        await send({"type": "http.response.body", "body": event, "more_body": True})
    except UpstreamBroke:
        return False
    return True


async def _with_comments(
    pieces: AsyncIterator[bytes], boundary: EventBoundary, every_s: float, send: Send
) -> AsyncIterator[bytes]:
    """The pieces, with a comment sent beside them whenever none came for so long."""
    waiting: asyncio.Future[bytes] | None = None
    try:
        while True:
            waiting = asyncio.ensure_future(anext(pieces))
            while not (await asyncio.wait({waiting}, timeout=every_s))[0]:
                if boundary.is_here:
                    await send({"type": "http.response.body", "body": COMMENT, "more_body": True})
            try:
                piece = waiting.result()
            except StopAsyncIteration:
                return
            yield piece
    finally:
        if waiting is not None and not waiting.done():
            waiting.cancel()
            with suppress(asyncio.CancelledError, Exception):  # the observer has had it
                await waiting
