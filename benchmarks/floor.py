"""What the least that could stand between the SDK and the caller costs per chunk: the floor that midstream is above.

    python -m benchmarks.floor [--rounds N] [--chunks N]

Each is a generator in the place where midstream is, tried in turns with the bare SDK and midstream.
"""

# ruff: noqa: PLR1730 - a call of max() would cost more than all the rest

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from benchmarks.overhead import KINDS, SHORT, Open, Variant, body, client, compare, opening, sdk_variants


def passing(source: Iterator[Any]) -> Iterator[Any]:
    yield from source


async def apassing(source: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for chunk in source:
        yield chunk


def timing(source: Iterator[Any]) -> Iterator[Any]:
    longest_wait = longest_hold = 0.0
    asked = time.monotonic()
    for chunk in source:
        now = time.monotonic()
        if now - asked > longest_wait:
            longest_wait = now - asked
        yield chunk
        asked = time.monotonic()
        if asked - now > longest_hold:
            longest_hold = asked - now


async def atiming(source: AsyncIterator[Any]) -> AsyncIterator[Any]:
    longest_wait = longest_hold = 0.0
    asked = time.monotonic()
    async for chunk in source:
        now = time.monotonic()
        if now - asked > longest_wait:
            longest_wait = now - asked
        yield chunk
        asked = time.monotonic()
        if asked - now > longest_hold:
            longest_hold = asked - now


def says_more(chunk: Any) -> bool:
    """Whether a chunk is plain text of the only choice, and nothing else."""
    choices = chunk.choices
    if len(choices) != 1 or chunk.usage is not None:
        return False
    choice = choices[0]
    delta = choice.delta
    return bool(delta.content) and choice.finish_reason is None and delta.tool_calls is None


def looking(source: Iterator[Any]) -> Iterator[Any]:
    longest_wait = longest_hold = 0.0
    asked = last = time.monotonic()
    for chunk in source:
        now = time.monotonic()
        if says_more(chunk):
            if now - last > longest_wait:
                longest_wait = now - last
            last = now
        yield chunk
        asked = time.monotonic()
        if asked - now > longest_hold:
            longest_hold = asked - now


async def alooking(source: AsyncIterator[Any]) -> AsyncIterator[Any]:
    longest_wait = longest_hold = 0.0
    asked = last = time.monotonic()
    async for chunk in source:
        now = time.monotonic()
        if says_more(chunk):
            if now - last > longest_wait:
                longest_wait = now - last
            last = now
        yield chunk
        asked = time.monotonic()
        if asked - now > longest_hold:
            longest_hold = asked - now


LEAST: dict[str, dict[str, Callable[[Any], Any]]] = {
    "a generator that passes chunks on": {"sync": passing, "async": apassing},
    "the same with two clock reads, the longest wait and the longest hold": {
        "sync": timing,
        "async": atiming,
    },
    "the same, and a look at what the chunk says": {"sync": looking, "async": alooking},
}


def variants(chunks: int) -> list[Variant]:
    """The bare SDK, the three-line loop and midstream, and what is less than it."""

    def opens(between: dict[str, Callable[[Any], Any]], length: int) -> dict[str, Open]:
        payload = body(length)

        def put(stream: Any, kind: str) -> Any:
            stream._iterator = between[kind](stream._iterator)
            return stream

        def sync(open_: Open) -> Open:
            return lambda: put(open_(), "sync")

        def later(open_: Open) -> Open:
            async def opened() -> Any:
                return put(await open_(), "async")

            return opened

        return {
            "sync": sync(opening(client("sync", payload))),
            "async": later(opening(client("async", payload))),
        }

    least = [Variant(name, opens(way, chunks), warm=opens(way, SHORT)) for name, way in LEAST.items()]
    return [*sdk_variants(chunks), *least]


def main(argv: list[str]) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--chunks", type=int, default=250)
    options = parser.parse_args(argv)
    costs = {kind: compare(kind, variants(options.chunks), options.rounds) for kind in KINDS}
    print("| between the SDK's iterator and the caller | sync, µs | async, µs |")
    print("|---|---|---|")
    for name in (*LEAST, "three-line loop", "midstream"):
        print(f"| {name} | {' | '.join(f'{costs[kind][name].chunk_us:.1f}' for kind in KINDS)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
