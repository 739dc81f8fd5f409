"""What the transport door costs: per event over bare HTTP iteration, beside what the SDK's door adds over the SDK.

    python -m benchmarks.transport [--rounds N] [--events N] [--json FILE]

Whatever is compared is read in turns in one process, in an order that changes every round; the figure is the median of
the differences to the bare reading of the same round. The server answers from memory, one event a piece as servers
flush them, or 4 KiB a piece as a network brings them under load. The reader takes every line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAI

from benchmarks.overhead import recording
from midstream import monitor
from midstream.testing import DONE, finish, http_library, role, text, usage

URL = "http://127.0.0.1/v1/chat/completions"
BODY = {"model": "m", "messages": [], "stream": True, "max_tokens": 10_000}
KINDS = ("sync", "async")
REQUESTS = 100
"""Responses without events in a round. Each is timed beside its bare counterpart, and their median counts: what is
looked for is a hundredth of what a request takes."""


def pieces_of(events: int, size: int | None) -> list[bytes]:
    """The body of an answer, an event a piece or in pieces of a size."""
    frames = [role(), *[text("word ")] * events, finish(), usage(9, events), DONE]
    if size is None:
        return [frame.encode() for frame in frames]
    whole = "".join(frames).encode()
    return [whole[at : at + size] for at in range(0, len(whole), size)]


def http_client(kind: str, pieces: list[bytes], content_type: str = "text/event-stream") -> Any:
    """An HTTP client whose server answers from memory."""
    http = http_library()

    class Body(http.SyncByteStream, http.AsyncByteStream):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Iterator[bytes]:
            yield from pieces

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

    transport = http.MockTransport(
        lambda _: http.Response(200, headers={"content-type": content_type}, stream=Body())
    )
    return (http.Client if kind == "sync" else http.AsyncClient)(transport=transport)


def sdk(kind: str, client: Any) -> Any:
    """The openai SDK on top of an HTTP client."""
    return (OpenAI if kind == "sync" else AsyncOpenAI)(api_key="none", http_client=client)


# Reading: seconds for one whole stream


def lines(client: Any) -> float:
    """Read every line of a response."""
    began = time.perf_counter()
    with client.stream("POST", URL, json=BODY) as response:
        for _ in response.iter_lines():
            pass
    return time.perf_counter() - began


async def lines_async(client: Any) -> float:
    """Read every line of a response on an event loop."""
    began = time.perf_counter()
    async with client.stream("POST", URL, json=BODY) as response:
        async for _ in response.aiter_lines():
            pass
    return time.perf_counter() - began


def chunks(client: Any) -> float:
    """Read every chunk of the SDK's stream."""
    began = time.perf_counter()
    for _ in client.chat.completions.create(**BODY):
        pass
    return time.perf_counter() - began


async def chunks_async(client: Any) -> float:
    """Read every chunk of the SDK's stream on an event loop."""
    began = time.perf_counter()
    async for _ in await client.chat.completions.create(**BODY):
        pass
    return time.perf_counter() - began


def request(client: Any) -> float:
    """Make a request that is answered without events."""
    began = time.perf_counter()
    client.post(URL, json=BODY)
    return time.perf_counter() - began


async def request_async(client: Any) -> float:
    """Make a request that is answered without events, on an event loop."""
    began = time.perf_counter()
    await client.post(URL, json=BODY)
    return time.perf_counter() - began


def compared(
    kind: str,
    read: Callable[[Any], Any],
    bare: Any,
    ours: Any,
    *,
    rounds: int,
    per: int = 1,
    times_each: int = 1,
) -> dict[str, float]:
    """Read both in turns; microseconds per event (or request): bare, and what we add, with its quartiles.

    A round is the median of `times_each` readings of either.
    """
    loop = asyncio.new_event_loop() if kind == "async" else None

    def once(client: Any) -> float:
        return float(read(client) if loop is None else loop.run_until_complete(read(client)))

    for client in (bare, ours):
        once(client)
    times: list[tuple[float, float]] = []
    for _ in range(rounds):
        took: dict[int, list[float]] = {id(bare): [], id(ours): []}
        for _ in range(times_each):
            for client in random.sample([bare, ours], 2):
                took[id(client)].append(once(client))
        times.append((statistics.median(took[id(bare)]), statistics.median(took[id(ours)])))
    if loop is not None:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    added = [(mine - alone) / per * 1e6 for alone, mine in times]
    low, middle, high = statistics.quantiles(added, n=4)
    return {
        "bare_us": statistics.median(alone for alone, _ in times) / per * 1e6,
        "added_us": middle,
        "added_low_us": low,
        "added_high_us": high,
    }


def measured(rounds: int, events: int) -> dict[str, dict[str, float]]:
    """Every comparison, by its name."""
    found = {}
    for kind in KINDS:
        asynchronous = kind == "async"
        line_reader, chunk_reader = (lines_async, chunks_async) if asynchronous else (lines, chunks)
        for name, size in (("an event a piece", None), ("4 KiB a piece", 4096)):
            pieces = pieces_of(events, size)
            found[f"transport door, {kind}, {name}"] = compared(
                kind,
                line_reader,
                http_client(kind, pieces),
                monitor(http_client(kind, pieces), meter_provider=recording()),
                rounds=rounds,
                per=events,
            )
            found[f"SDK door, {kind}, {name}"] = compared(
                kind,
                chunk_reader,
                sdk(kind, http_client(kind, pieces)),
                monitor(sdk(kind, http_client(kind, pieces)), meter_provider=recording()),
                rounds=rounds,
                per=events,
            )
        found[f"no event stream, {kind}, a request"] = compared(
            kind,
            request_async if asynchronous else request,
            http_client(kind, [b"{}"], "application/json"),
            monitor(http_client(kind, [b"{}"], "application/json"), meter_provider=recording()),
            rounds=rounds,
            times_each=REQUESTS,
        )
    return found


def main(arguments: list[str]) -> int:
    """Measure, print the table, and write it if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    found = measured(options.rounds, options.events)
    print(f"{'µs per event or request':<46} {'bare':>8} {'added':>8}   quartiles")
    for name, row in found.items():
        print(
            f"{name:<46} {row['bare_us']:>8.2f} {row['added_us']:>8.2f}   "
            f"{row['added_low_us']:.2f} to {row['added_high_us']:.2f}"
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
