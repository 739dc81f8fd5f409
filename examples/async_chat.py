"""Several answers at once, and a look at all of them while they are being written.

OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_API_KEY=none OPENAI_MODEL=my-model python async_chat.py
"""

from __future__ import annotations

import asyncio
import os

from openai import AsyncOpenAI

from midstream import StreamRecord, monitor, streams

MODEL = os.environ.get("OPENAI_MODEL", "my-model")
QUESTIONS = ("What is a queue?", "What is a cache?", "What is a stream?")


def show(record: StreamRecord) -> None:
    """Print how a stream ended. Hooks run on a thread of their own, so that the event loop does not wait for them."""
    print(f"{record.outcome}: longest gap {record.max_gap_s} s, longest hold {record.max_hold_s} s")


client = monitor(AsyncOpenAI(), on_end=show)


async def ask(question: str) -> int:
    """Ask, and count the characters of the answer."""
    stream = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": question}], stream=True
    )
    length = 0
    async for chunk in stream:
        if chunk.choices:
            length += len(chunk.choices[0].delta.content or "")
    return length


async def watch() -> None:
    """Print every open stream, the longest open gap first, until cancelled."""
    while True:
        for stream in streams():
            mark = "FROZEN" if stream.frozen else stream.state
            print(
                f"{stream.request_model}: {mark}, {stream.chunks} chunks, silent for {stream.open_gap_s:.1f} s"
            )
        await asyncio.sleep(1.0)


async def main() -> None:
    """Ask everything at once."""
    watcher = asyncio.create_task(watch())
    lengths = await asyncio.gather(*map(ask, QUESTIONS))
    watcher.cancel()
    print(f"{len(lengths)} answers, {sum(lengths)} characters")


asyncio.run(main())
