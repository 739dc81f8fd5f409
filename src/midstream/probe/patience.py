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


class TooLongError(Exception):
    """The stream did not end though its length was limited; `seconds` is how long it was read."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{seconds:g} s")
        self.seconds = seconds


async def read_out(
    answer: AsyncIterator[object], patience_s: float, longest_s: float, most_chunks: int
) -> None:
    """Read every chunk.

    Raises NoOutputError once there was no output, and no end of it, for `patience_s` seconds, and TooLongError for a
    stream that goes on for more than `longest_s` seconds, or `most_chunks` pieces.
    """
    loop = asyncio.get_running_loop()
    heard = began = loop.time()

    async def read() -> None:
        nonlocal heard
        number = 0
        async for chunk in answer:
            number += 1
            if number > most_chunks:
                raise TooLongError(loop.time() - began)
            said = read_any(chunk)
            if said.phase is not None or said.finishes:
                heard = loop.time()

    reading = asyncio.create_task(read())
    try:
        while not reading.done():
            left_s = heard + patience_s + GRACE_S - loop.time()
            if left_s <= 0:
                raise NoOutputError
            if loop.time() - began >= longest_s:
                raise TooLongError(longest_s)
            await asyncio.wait({reading}, timeout=min(left_s, max(0.0, began + longest_s - loop.time())))
        reading.result()
    finally:
        if not reading.done():
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.exception()  # what cancelling raised is of no interest
