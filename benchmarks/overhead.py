"""What the monitor costs per chunk and holds per chunk, over the bare SDK in the same run.

    python -m benchmarks.overhead [--rounds N] [--chunks N]

Rounds come in pairs, bare and monitored, one right after the other; the figure is the median of the paired differences,
so that what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from openai import AsyncOpenAI, OpenAI
from opentelemetry.sdk.metrics import MeterProvider

from midstream import monitor
from midstream.testing import DONE, finish, http_library, text

WARM = 200


def body(chunks: int) -> bytes:
    return (text("word ") * chunks + finish() + DONE).encode()


def client(kind: str, payload: bytes, *, monitored: bool) -> Any:
    """A client whose server answers from memory, in pieces as a network would bring them."""
    http = http_library()
    pieces = [payload[at : at + 4096] for at in range(0, len(payload), 4096)]

    class Body(http.SyncByteStream, http.AsyncByteStream):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Iterator[bytes]:
            yield from pieces

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

    def answer(_: Any) -> Any:
        return http.Response(200, headers={"content-type": "text/event-stream"}, stream=Body())

    transport = http.MockTransport(answer)
    made: Any
    if kind == "sync":
        made = OpenAI(api_key="none", http_client=http.Client(transport=transport))
    else:
        made = AsyncOpenAI(api_key="none", http_client=http.AsyncClient(transport=transport))
    return monitor(made, meter_provider=MeterProvider()) if monitored else made


def read(kind: str, sdk: Any, at_chunk: Callable[[int], object] | None = None) -> float:
    """Read one stream; seconds from its first chunk to its end."""
    if kind == "sync":
        stream = sdk.chat.completions.create(model="m", messages=[], stream=True)
        next(stream)
        began = time.perf_counter()
        for number, _ in enumerate(stream):
            if at_chunk is not None:
                at_chunk(number)
        return time.perf_counter() - began

    async def aread() -> float:
        stream = await sdk.chat.completions.create(model="m", messages=[], stream=True)
        await stream.__anext__()
        began = time.perf_counter()
        number = 0
        async for _ in stream:
            if at_chunk is not None:
                at_chunk(number)
            number += 1
        return time.perf_counter() - began

    return asyncio.run(aread())


def time_per_chunk(kind: str, rounds: int, chunks: int) -> tuple[float, float]:
    """Microseconds per chunk: of the bare SDK, and what the monitor adds; medians of paired rounds."""
    payload = body(chunks)
    bare, monitored = client(kind, payload, monitored=False), client(kind, payload, monitored=True)
    read(kind, bare), read(kind, monitored)
    plain, added = [], []
    for number in range(rounds):
        gc.collect()
        pair = [bare, monitored] if number % 2 == 0 else [monitored, bare]
        seconds = {id(sdk): read(kind, sdk) for sdk in pair}
        plain.append(seconds[id(bare)])
        added.append(seconds[id(monitored)] - seconds[id(bare)])
    return statistics.median(plain) / chunks * 1e6, statistics.median(added) / chunks * 1e6


def held_per_chunk(kind: str, chunks: int, *, monitored: bool) -> float:
    """Bytes that are still held for each chunk read so far, in the middle of a stream."""
    sdk = client(kind, body(chunks), monitored=monitored)
    read(kind, sdk)
    held: dict[int, int] = {}

    def look(number: int) -> None:
        if number in {WARM, chunks - 2}:
            gc.collect()
            held[number] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    read(kind, sdk, look)
    tracemalloc.stop()
    return (held[chunks - 2] - held[WARM]) / (chunks - 2 - WARM)


def main(argv: list[str]) -> int:
    """Measure both clients and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--chunks", type=int, default=3000)
    options = parser.parse_args(argv)
    print(
        "| client | bare SDK, µs a chunk | monitor adds, µs | share | bare holds, bytes a chunk | monitor adds, bytes |"
    )
    print("|---|---|---|---|---|---|")
    for kind in ("sync", "async"):
        bare, added = time_per_chunk(kind, options.rounds, options.chunks)
        held = held_per_chunk(kind, options.chunks, monitored=False)
        more = held_per_chunk(kind, options.chunks, monitored=True) - held
        print(
            f"| {kind} | {bare:.1f} | {added:.2f} | {added / bare:.1%} | {held:.1f} | {more:.1f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
