"""What the monitor costs: per chunk, per stream and per scrape, over the bare SDK and over a bare iterator.

    python -m benchmarks.overhead [--rounds N] [--chunks N] [--json FILE]

Whatever is compared is read in turns in one process, in an order that changes every round; the figure is the median of
the differences to the bare reading of the same round, so that what else the machine does falls on all of them. The
server answers from memory. The caller takes the text of every chunk, as callers do.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAI
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from midstream import monitor
from midstream.testing import DONE, finish, http_library, role, text, usage

KINDS = ("sync", "async")
WARM = 200
SHORT = 5
TIDY = 10
"""Rounds after which garbage is collected: nobody shall find that of another, nor caches that are always cold."""
PREEMPTED = 10
"""A chunk that took this many times the median met the machine's scheduler, and is left out."""


# Something to read


def body(chunks: int) -> bytes:
    """The answer: chunks of text, the finish, the usage, and the end."""
    return (role() + text("word ") * chunks + finish() + usage(9, chunks) + DONE).encode()


def client(kind: str, payload: bytes, *, monitored: bool = False) -> Any:
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
    return monitor(made, meter_provider=recording()) if monitored else made


def recording() -> MeterProvider:
    """A meter provider that really keeps what it is given."""
    return MeterProvider(metric_readers=[InMemoryMetricReader()])


class Parsed:
    """A stream in the SDK's shape that does no work at all: its chunks were parsed long ago."""

    def __init__(self, kind: str, chunks: Sequence[Any]) -> None:
        http = http_library()
        self.response = http.Response(200, stream=http.ByteStream(b""))
        self.response.request = http.Request("POST", "http://localhost/v1/chat/completions", json={})
        self._iterator: Any = _now(chunks) if kind == "sync" else _later(chunks)

    def __iter__(self) -> Iterator[Any]:
        yield from self._iterator

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for chunk in self._iterator:
            yield chunk


Parsed.__module__ = "openai"  # its chunks are to be read as the SDK's own


def _now(chunks: Sequence[Any]) -> Iterator[Any]:
    yield from chunks


async def _later(chunks: Sequence[Any]) -> AsyncIterator[Any]:
    for chunk in chunks:
        yield chunk


# Reading it


@dataclass(frozen=True)
class Timed:
    """One stream read to its end, in seconds: until it was open, per chunk, and from its last chunk to its end."""

    open_s: float
    chunk_s: float
    end_s: float


Open = Callable[[], Any]
"""Opens a stream; for an async one, gives what is to be awaited."""


def opening(sdk: Any) -> Open:
    """Make the call that opens a stream."""
    return lambda: sdk.chat.completions.create(model="m", messages=[], stream=True, max_tokens=10_000)


def read(open_: Open, *, loop: bool = False) -> Timed:
    """Read a stream; `loop` has the caller time its chunks by itself, in three lines."""
    clock = time.perf_counter
    stamps: list[float] = []
    stamp = stamps.append
    began = clock()
    stream = open_()
    opened = clock()
    if loop:
        last, longest = clock(), 0.0
        for chunk in stream:
            now = clock()
            longest = max(longest, now - last)
            last = now
            _ = chunk.choices and chunk.choices[0].delta.content
            stamp(clock())
    else:
        for chunk in stream:
            _ = chunk.choices and chunk.choices[0].delta.content
            stamp(clock())
    return _timed(began, opened, stamps, clock())


async def aread(open_: Open, *, loop: bool = False) -> Timed:
    """The same for an async stream."""
    clock = time.perf_counter
    stamps: list[float] = []
    stamp = stamps.append
    began = clock()
    stream = await open_()
    opened = clock()
    if loop:
        last, longest = clock(), 0.0
        async for chunk in stream:
            now = clock()
            longest = max(longest, now - last)
            last = now
            _ = chunk.choices and chunk.choices[0].delta.content
            stamp(clock())
    else:
        async for chunk in stream:
            _ = chunk.choices and chunk.choices[0].delta.content
            stamp(clock())
    return _timed(began, opened, stamps, clock())


def _timed(began: float, opened: float, stamps: list[float], ended: float) -> Timed:
    # The first chunks and the last ones (finish, usage) are those of a stream, not of its chunks.
    steps = [later - earlier for earlier, later in pairwise(stamps[3:-2])]
    if not steps:
        steps = [0.0]
    limit = PREEMPTED * statistics.median(steps)
    kept = [step for step in steps if step <= limit]
    return Timed(opened - began, statistics.fmean(kept), ended - stamps[-1])


# Comparing


@dataclass
class Variant:
    """One way of reading: what opens its stream, sync and async, and what has to happen around it."""

    name: str
    opens: dict[str, Open]
    loop: bool = False
    on: Callable[[], object] = lambda: None
    off: Callable[[], object] = lambda: None
    warm: dict[str, Open] = field(default_factory=dict)
    """Opens a stream to be read before each measured one."""


@dataclass(frozen=True)
class Cost:
    """What a variant adds to the first of its comparison, in microseconds; of the first, what it costs itself."""

    chunk_us: float
    chunk_low_us: float
    chunk_high_us: float
    open_us: float
    end_us: float


def compare(kind: str, variants: Sequence[Variant], rounds: int) -> dict[str, Cost]:
    """Read each variant once a round; the first is what the others are compared with."""
    runner = asyncio.new_event_loop()
    try:

        def one(variant: Variant) -> Timed:
            def go(open_: Open) -> Timed:
                if kind == "sync":
                    return read(open_, loop=variant.loop)
                return runner.run_until_complete(aread(open_, loop=variant.loop))

            variant.on()
            try:
                if kind in variant.warm:
                    go(variant.warm[kind])
                return go(variant.opens[kind])
            finally:
                variant.off()

        for variant in variants:
            one(variant)
        gc.collect()
        gc.freeze()
        seen: dict[str, list[Timed]] = {variant.name: [] for variant in variants}
        order = list(variants)
        shuffle = random.Random(1).shuffle
        for round_ in range(rounds):
            shuffle(order)
            if round_ % TIDY == 0:
                gc.collect()
            for variant in order:
                seen[variant.name].append(one(variant))
        gc.unfreeze()
    finally:
        runner.run_until_complete(asyncio.sleep(0))  # lets go of what the SDK's last streams left behind
        runner.run_until_complete(runner.shutdown_asyncgens())
        runner.close()
    first = variants[0].name
    nothing = [Timed(0, 0, 0)] * rounds
    return {name: _cost(times, nothing if name == first else seen[first]) for name, times in seen.items()}


def _cost(times: list[Timed], base: list[Timed]) -> Cost:
    def differences(part: Callable[[Timed], float]) -> list[float]:
        return [(part(a) - part(b)) * 1e6 for a, b in zip(times, base, strict=True)]

    chunk = differences(lambda timed: timed.chunk_s)
    low, _, high = statistics.quantiles(chunk, n=4) if len(chunk) > 1 else chunk * 3
    # What lies between two quartiles is the scatter of single rounds; that of the median is smaller by far.
    error = (high - low) / len(chunk) ** 0.5
    middle = statistics.median(chunk)
    return Cost(
        middle,
        middle - error,
        middle + error,
        statistics.median(differences(lambda timed: timed.open_s)),
        statistics.median(differences(lambda timed: timed.end_s)),
    )


def sdk_variants(chunks: int) -> list[Variant]:
    """The bare SDK, the three-line loop over it, and the monitor on it."""
    payload, short = body(chunks), body(SHORT)

    def opens(payload: bytes, *, monitored: bool) -> dict[str, Open]:
        return {kind: opening(client(kind, payload, monitored=monitored)) for kind in KINDS}

    bare, warm = opens(payload, monitored=False), opens(short, monitored=False)
    return [
        Variant("bare", bare, warm=warm),
        Variant("three-line loop", bare, loop=True, warm=warm),
        Variant("midstream", opens(payload, monitored=True), warm=opens(short, monitored=True)),
    ]


def iterator_variants(chunks: int) -> list[Variant]:
    """The same three over an iterator that costs next to nothing."""
    parsed = list(opening(client("sync", body(chunks)))())
    provider = recording()

    def opens(*, monitored: bool) -> dict[str, Open]:
        def sync() -> Any:
            made = Parsed("sync", parsed)
            return monitor(made, meter_provider=provider) if monitored else made

        async def later() -> Any:
            made = Parsed("async", parsed)
            return monitor(made, meter_provider=provider) if monitored else made

        return {"sync": sync, "async": later}

    bare = opens(monitored=False)
    return [
        Variant("bare", bare),
        Variant("three-line loop", bare, loop=True),
        Variant("midstream", opens(monitored=True)),
    ]


# Memory


def held_per_chunk(kind: str, open_: Open, chunks: int) -> float:
    """Bytes that are still held for each chunk read so far, in the middle of a stream."""
    held: dict[int, int] = {}

    def look(number: int) -> None:
        if number in {WARM, chunks - 2}:
            gc.collect()
            held[number] = tracemalloc.get_traced_memory()[0]

    async def aread_all() -> None:
        number = 0
        async for _ in await open_():
            look(number)
            number += 1

    def read_all() -> None:
        for number, _ in enumerate(open_()):
            look(number)

    tracemalloc.start()
    if kind == "sync":
        read_all()
    else:
        asyncio.run(aread_all())
    tracemalloc.stop()
    return (held[chunks - 2] - held[WARM]) / (chunks - 2 - WARM)


# The table


def measure(rounds: int, chunks: int) -> dict[str, dict[str, dict[str, Cost]]]:
    """Costs by what is read (the SDK's stream, an iterator, a short stream), by kind of client, by variant."""
    return {
        "sdk": {kind: compare(kind, sdk_variants(chunks), rounds) for kind in KINDS},
        "iterator": {kind: compare(kind, iterator_variants(chunks), rounds) for kind in KINDS},
        "stream": {kind: compare(kind, sdk_variants(SHORT), rounds * 4) for kind in KINDS},
    }


def table(measured: dict[str, dict[str, dict[str, Cost]]]) -> str:
    """Both tables: per chunk, and per stream."""
    rows = [
        "| per chunk | bare, µs | three-line loop adds | midstream adds | share |",
        "|---|---|---|---|---|",
    ]
    for what, title in (("sdk", "the SDK's stream"), ("iterator", "a bare iterator")):
        for kind in KINDS:
            costs = measured[what][kind]
            bare, loop, ours = costs["bare"], costs["three-line loop"], costs["midstream"]
            share = f"{ours.chunk_us / bare.chunk_us:.1%}" if what == "sdk" else ""
            rows.append(
                f"| {title}, {kind} | {bare.chunk_us:.2f} | {loop.chunk_us:.2f} "
                f"| {ours.chunk_us:.2f} (± {ours.chunk_high_us - ours.chunk_us:.2f}) | {share} |"
            )
    rows += [
        "",
        f"| per stream of {SHORT} chunks | to open it, µs | midstream adds | to end it, µs | midstream adds |",
        "|---|---|---|---|---|",
    ]
    for kind in KINDS:
        costs = measured["stream"][kind]
        bare, ours = costs["bare"], costs["midstream"]
        rows.append(
            f"| {kind} | {bare.open_us:.0f} | {ours.open_us:.0f} | {bare.end_us:.0f} | {ours.end_us:.0f} |"
        )
    return "\n".join(rows)


def main(argv: list[str]) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--chunks", type=int, default=250)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    measured = measure(options.rounds, options.chunks)
    print(table(measured))
    if options.json is not None:
        plain = {
            what: {
                kind: {name: asdict(cost) for name, cost in costs.items()} for kind, costs in kinds.items()
            }
            for what, kinds in measured.items()
        }
        options.json.write_text(json.dumps(plain, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
