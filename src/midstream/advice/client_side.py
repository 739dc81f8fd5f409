"""A cap that clients keep by themselves: programs for callers who cannot configure their server."""

from __future__ import annotations

_ASYNC = """\
import asyncio
from openai import AsyncOpenAI

client = AsyncOpenAI()
at_once = asyncio.Semaphore({cap})

async def answer(messages, **options):
    async with at_once:  # held until the answer is read to its end, not only until it begins
        async for chunk in await client.chat.completions.create(messages=messages, stream=True, **options):
            yield chunk
"""

_THREADS = """\
import threading
from openai import OpenAI

client = OpenAI()
at_once = threading.BoundedSemaphore({cap})

def answer(messages, **options):
    with at_once:  # held until the answer is read to its end, not only until it begins
        yield from client.chat.completions.create(messages=messages, stream=True, **options)
"""


def async_program(cap: int) -> str:
    """Return a program for asyncio that keeps at most `cap` streams open in its process."""
    return _ASYNC.format(cap=cap)


def threaded_program(cap: int) -> str:
    """Return a program for threads that keeps at most `cap` streams open in its process."""
    return _THREADS.format(cap=cap)
