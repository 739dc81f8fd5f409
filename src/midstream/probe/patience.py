"""Reads a stream to its end, and gives it up when no output came for too long, whatever else came.

The client's own timeout begins anew with each byte, and comments (`: ping`) or empty events are bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from midstream.stream.chunks import read_any

GRACE_S = 1.0
"""The client's own timeout, which says that nothing at all came, comes first."""


class NoOutputError(Exception):
    """The stream went on, and nothing that a user could read was in it."""


async def read_out(answer: AsyncIterator[object], patience_s: float) -> None:
    """Read every chunk. Raises NoOutputError once there was no output, and no end of it, for `patience_s` seconds."""
    loop = asyncio.get_running_loop()
    heard = loop.time()

    async def read() -> None:
        nonlocal heard
        async for chunk in answer:
            said = read_any(chunk)
            if said.phase is not None or said.finishes:
                heard = loop.time()

    reading = asyncio.create_task(read())
    try:
        while not reading.done():
            left_s = heard + patience_s + GRACE_S - loop.time()
            if left_s <= 0:
                raise NoOutputError
            await asyncio.wait({reading}, timeout=left_s)
        reading.result()
    finally:
        if not reading.done():
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.exception()  # what cancelling brought about is nobody's concern
