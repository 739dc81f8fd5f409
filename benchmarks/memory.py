"""What the monitor holds: bytes per chunk read, and bytes per open stream, over the bare SDK.

    python -m benchmarks.memory [--streams N] [--json FILE]

Counted by tracemalloc, as a slope: between two points of one stream, and between two numbers of open streams.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.overhead import KINDS, body, client, held_per_chunk, opening

CHUNKS = 3000
READ = 10
"""Chunks that are read of each open stream before it is counted: it has told all that it ever tells by then."""
SOME = 50


@dataclass(frozen=True)
class Held:
    """Bytes held by the bare SDK, and by the monitor on top of it."""

    sdk_per_chunk: float
    monitor_per_chunk: float
    sdk_per_stream: float
    monitor_per_stream: float


def measure(kind: str, streams: int) -> Held:
    """Measure one kind of client."""
    payload = body(CHUNKS)
    per_chunk = [
        held_per_chunk(kind, opening(client(kind, payload, monitored=monitored)), CHUNKS)
        for monitored in (False, True)
    ]
    per_stream = [held_per_stream(kind, streams, monitored=monitored) for monitored in (False, True)]
    return Held(per_chunk[0], per_chunk[1] - per_chunk[0], per_stream[0], per_stream[1] - per_stream[0])


def held_per_stream(kind: str, streams: int, *, monitored: bool) -> float:
    """Bytes that each open stream holds, everything that belongs to it included."""
    sdk = client(kind, body(100), monitored=monitored)
    opens = opening(sdk)

    async def aopened() -> Any:
        stream = await opens()
        reading = aiter(stream)
        for _ in range(READ):
            await anext(reading)
        return stream, reading

    def opened() -> Any:
        stream = opens()
        reading = iter(stream)
        for _ in range(READ):
            next(reading)
        return stream, reading

    def all_open() -> Iterator[Any]:
        for _ in range(streams):
            yield opened() if kind == "sync" else loop.run_until_complete(aopened())

    loop = asyncio.new_event_loop()
    kept: list[Any] = [None] * streams
    seen: list[int] = []
    tracemalloc.start()
    for number, pair in enumerate(all_open()):
        kept[number] = pair
        del pair
        if number in {SOME - 1, streams - 1}:
            gc.collect()
            seen.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    for stream, _ in kept:
        if kind == "sync":
            stream.close()
        else:
            loop.run_until_complete(stream.close())
    kept.clear()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    return (seen[1] - seen[0]) / (streams - SOME)


def table(measured: dict[str, Held]) -> str:
    """One row a kind of client."""
    rows = [
        "| bytes held | SDK, per chunk | monitor adds | SDK, per open stream | monitor adds |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| {kind} | {held.sdk_per_chunk:.1f} | {held.monitor_per_chunk + 0.0:.1f} | {held.sdk_per_stream:,.0f} "
        f"| {held.monitor_per_stream:,.0f} |"
        for kind, held in measured.items()
    ]
    return "\n".join(rows)


def main(argv: list[str]) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    measured = {kind: measure(kind, options.streams) for kind in KINDS}
    print(table(measured))
    if options.json is not None:
        options.json.write_text(json.dumps({kind: asdict(held) for kind, held in measured.items()}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
