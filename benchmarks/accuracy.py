"""The truth table: what each way of measuring finds of a gap whose true length is known.

    python -m benchmarks.accuracy [--rounds N] [--only WORD] [--json FILE]

A server in another process plays a script and notes, beside the stream, when each frame left. One client reads it, and
on that same stream three things are measured side by side: our record, the three-line loop that times the chunks as the
caller gets them, and the official OpenTelemetry instrumentation.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import multiprocessing
import ssl
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader

from benchmarks.certificate import make_certificate
from benchmarks.wire import CUT, Script, WireServer
from midstream.testing import DONE, PING, chunk, collect, finish, frame, role, text, usage

FREEZE_AFTER_S = 1.0
STEP_S = 0.05
FREEZE_S = 2.0


def steady(begin: float, count: int) -> list[tuple[float, str]]:
    return [(begin + STEP_S * n, text("word ")) for n in range(count)]


END = [finish(), usage(9, 40), DONE]


def answer(freeze_s: float = FREEZE_S, during: list[tuple[float, str]] | None = None) -> Script:
    """A second of words, a silence, a second of words, the end."""
    again = 0.05 + 19 * STEP_S + freeze_s
    frames = [*steady(0.05, 20), *(during or []), *steady(again, 20)]
    return [*frames, *((again + 20 * STEP_S, data) for data in END)]


FROZEN_FROM = 0.05 + 19 * STEP_S
SLOW = [*((0.05 + 0.3 * n, text("word ")) for n in range(20)), *((6.0, data) for data in END)]
"""A chunk each 0.3 s."""


def every(seconds: float, data: str) -> list[tuple[float, str]]:
    return [(FROZEN_FROM + seconds * n, data) for n in range(1, int(FREEZE_S / seconds))]


def tool(arguments: str, **function: str) -> str:
    return chunk({"tool_calls": [{"index": 0, "function": {"arguments": arguments, **function}}]})


@dataclass(frozen=True)
class Condition:
    """One way for a stream and its reader to be. `busy` is what the caller does after each chunk, by its number."""

    name: str
    script: Script = field(default_factory=answer)
    busy: Callable[[int], float] = lambda _: 0.0
    block: tuple[float, float] | None = None
    """When the loop is blocked, and for how long each time."""
    turns: int = 1
    """How often it is blocked in a row, with one turn of the loop in between."""
    hog: bool = False
    tls: bool = False
    streams: int = 1
    end: str = "read"
    kinds: tuple[str, ...] = ("sync", "async")
    first: int = 0
    """The first frame of output, where others come before it."""


def is_output(data: str) -> bool:
    return '"content": "word' in data or ("tool_calls" in data and 'finish_reason": null' in data)


CONDITIONS = [
    Condition("prompt reader"),
    Condition("prompt reader, no freeze", answer(STEP_S)),
    Condition("slow consumer, 0.2 s a chunk", busy=lambda _: 0.2),
    Condition("slow consumer, no freeze", answer(STEP_S), busy=lambda _: 0.2),
    Condition("busy for the first part of the freeze", busy=lambda n: 1.5 if n == 20 else 0.0),
    Condition("busy for all of the freeze and longer", busy=lambda n: 2.6 if n == 20 else 0.0),
    Condition("busy before the freeze and into it", busy=lambda n: 1.5 if n == 10 else 0.0),
    Condition("loop blocked before the freeze", block=(0.3, 0.5), kinds=("async",)),
    Condition("loop blocked within the freeze", block=(1.5, 1.0), kinds=("async",)),
    Condition("loop blocked past the end of the freeze", block=(2.2, 1.4), kinds=("async",)),
    Condition("loop blocked during all of it", block=(0.6, 3.0), kinds=("async",)),
    Condition("loop blocked during steady sending", answer(STEP_S), block=(0.5, 1.3), kinds=("async",)),
    Condition("loop busy for eight turns in a row, no freeze", SLOW, block=(0.5, 0.5), turns=8, kinds=("async",)),
    Condition(
        "50 streams, loop busy for eight turns in a row, no freeze", SLOW, block=(0.5, 0.5), turns=8, streams=50,
        kinds=("async",),
    ),
    Condition("a thread that hogs the interpreter", hog=True),
    Condition("a thread that hogs it, no freeze", answer(STEP_S), hog=True),
    Condition("keep-alive comments during the freeze", answer(during=every(0.3, PING))),
    Condition("ping data frames during it", answer(during=every(0.3, "event: ping\n" + frame({"type": "ping"})))),
    Condition(
        "busy during a freeze with comments", answer(during=every(0.3, PING)), busy=lambda n: 2.6 if n == 20 else 0
    ),
    Condition("role chunk early, long prefill", [(0.05, role()), *((1.5 + at, data) for at, data in answer())]),
    Condition("usage tail late", [*answer()[:-2], (6.0, usage(9, 40)), (6.0, DONE)]),
    Condition(
        "tool call withheld",
        [*steady(0.05, 10), (0.6, tool("", name="f")), (0.6 + FREEZE_S, tool("x" * 9000)), (2.7, finish("tool_calls")),
         (2.7, DONE)],
    ),
    Condition("TLS", tls=True),
    Condition("TLS, busy for all of the freeze and longer", tls=True, busy=lambda n: 2.6 if n == 20 else 0.0),
    Condition("200 streams at once", streams=200),
    Condition("freeze that ends in a cancel", answer(60), end="cancel", kinds=("async",)),
    Condition("freeze that ends in a timeout", answer(60), end="timeout"),
    Condition("freeze that ends in a broken connection", [*steady(0.05, 20), (FROZEN_FROM + FREEZE_S, CUT)]),
    Condition("freeze that ends in a close", answer(60), end="close", kinds=("sync",)),
]  # fmt: skip


@dataclass
class Measured:
    """One stream as each method saw it, and as it was. Seconds; None where a method says nothing."""

    truth: float
    max_gap: float | None
    wire_gap: float | None
    freezes: int
    hidden: int
    loop: float | None
    otel: float | None

    @property
    def best(self) -> float | None:
        return self.max_gap if self.wire_gap is None else self.wire_gap


# The server, in a process of its own


def _serve(script: Script, tls: tuple[str, str] | None, pipe: Any) -> None:
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
    with WireServer(script, tls=context) as wire:
        pipe.send(wire.base_url)
        pipe.recv()
        pipe.send([exchange.sent for exchange in wire.exchanges])


@contextlib.contextmanager
def served(
    script: Script, tls: tuple[str, str] | None
) -> Iterator[tuple[str, Callable[[], list[list[float]]]]]:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(script, tls, theirs), daemon=True
    )
    server.start()
    theirs.close()
    base_url = ours.recv()

    def sent() -> list[list[float]]:
        ours.send("done")
        times: list[list[float]] = ours.recv()
        return times

    try:
        yield base_url, sent
    finally:
        server.join(timeout=5)
        server.kill()


def truth(script: Script, sent: list[float], ended: float) -> float:
    """The longest silence between two frames of output, or after the last one if no finish came."""
    moments = [moment for moment, (_, data) in zip(sent, script, strict=False) if is_output(data)]
    finished = any('"finish_reason": "' in data for _, data in script[: len(sent)])
    if not finished:
        moments.append(ended)
    return max(later - earlier for earlier, later in pairwise(moments))


# The readers


class Loop:
    """The three-line loop: `now - last` where the caller handles chunks."""

    def __init__(self) -> None:
        self.longest: float | None = None
        self.last: float | None = None

    def chunk(self, seen: Any) -> None:
        if not (seen.choices and (seen.choices[0].delta.content or seen.choices[0].delta.tool_calls)):
            return
        now = time.monotonic()
        if self.last is not None:
            self.longest = max(self.longest or 0.0, now - self.last)
        self.last = now


def read_sync(client: OpenAI, condition: Condition, loop: Loop) -> None:
    with client.chat.completions.create(model="m", messages=[], stream=True) as stream:
        for outputs, seen in enumerate(stream, 1):
            loop.chunk(seen)
            busy = condition.busy(outputs)
            if busy:
                time.sleep(busy)
            if condition.end == "close" and outputs == 20:
                threading.Timer(FREEZE_S, stream.response.close).start()
                time.sleep(FREEZE_S)
                return


async def read_async(client: AsyncOpenAI, condition: Condition, loop: Loop) -> None:
    async with await client.chat.completions.create(model="m", messages=[], stream=True) as stream:
        outputs = 0
        async for seen in stream:
            loop.chunk(seen)
            outputs += 1
            busy = condition.busy(outputs)
            if busy:
                await asyncio.sleep(busy)


async def run_async(client: AsyncOpenAI, condition: Condition, loop: Loop) -> None:
    reading: list[Awaitable[None]] = [
        read_async(client, condition, loop if n == 0 else Loop()) for n in range(condition.streams)
    ]
    if condition.block is not None:
        begin, length = condition.block
        asyncio.get_running_loop().call_later(begin, block, length, condition.turns)
    together = asyncio.gather(*reading)
    with contextlib.suppress(asyncio.TimeoutError, openai.APIError):
        await asyncio.wait_for(together, FROZEN_FROM + FREEZE_S if condition.end == "cancel" else 120)
    await client.close()


def block(length: float, turns: int) -> None:
    """Block the loop that this is called on, and again in each of its next turns."""
    time.sleep(length)
    if turns > 1:
        asyncio.get_running_loop().call_soon(block, length, turns - 1)


def hog(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(1000))


def measure(condition: Condition, kind: str, tls: tuple[str, str]) -> Measured:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    OpenAIInstrumentor().instrument(meter_provider=provider)
    stop = threading.Event()
    if condition.hog:
        threading.Thread(target=hog, args=(stop,), daemon=True).start()
    try:
        with served(condition.script, tls if condition.tls else None) as (base_url, sent):
            options: dict[str, Any] = {"api_key": "none", "base_url": base_url, "max_retries": 0}
            if condition.end == "timeout":
                options["timeout"] = FREEZE_S
            verify = not condition.tls
            loop = Loop()
            if kind == "sync":
                client: Any = OpenAI(
                    **options, http_client=http_client(OpenAI, verify, options.get("timeout"))
                )
                seen = collect(client, freeze_after_s=FREEZE_AFTER_S)
                threads = [
                    threading.Thread(target=attempt, args=(client, condition, loop if n == 0 else Loop()))
                    for n in range(condition.streams)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                client.close()
            else:
                client = AsyncOpenAI(
                    **options, http_client=http_client(AsyncOpenAI, verify, options.get("timeout"))
                )
                seen = collect(client, freeze_after_s=FREEZE_AFTER_S)
                asyncio.run(run_async(client, condition, loop))
            seen.flush()
            worst = max(
                seen.records, key=lambda record: abs((record.wire_gap_s or record.max_gap_s or 0) - FREEZE_S)
            )
            truths = [truth(condition.script, times, times[0] - 0.05 + worst.duration_s) for times in sent()]
            true = min(truths, key=lambda value: abs(value - (worst.wire_gap_s or worst.max_gap_s or 0)))
    finally:
        stop.set()
        OpenAIInstrumentor().uninstrument()
    return Measured(
        true,
        worst.max_gap_s,
        worst.wire_gap_s,
        worst.freezes,
        worst.hidden,
        loop.longest,
        otel_longest(reader),
    )


def attempt(client: OpenAI, condition: Condition, loop: Loop) -> None:
    with contextlib.suppress(openai.APIError):
        read_sync(client, condition, loop)


def http_client(sdk: Any, verify: bool, timeout: float | None) -> Any:
    kind = openai.DefaultHttpxClient if sdk is OpenAI else openai.DefaultAsyncHttpxClient
    return kind(verify=verify, timeout=timeout or 600)


def otel_longest(reader: InMemoryMetricReader) -> float | None:
    data = reader.get_metrics_data()
    if data is None:
        return None
    points = [
        point.max
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "gen_ai.client.operation.time_per_output_chunk"
        for point in metric.data.data_points
        if isinstance(point, HistogramDataPoint)
    ]
    return max(points, default=None)


# The table


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def main(argv: list[str]) -> int:
    """Measure every condition, print the table, and judge it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only conditions whose name contains this")
    parser.add_argument("--json", type=Path, help="write every measurement here as well")
    options = parser.parse_args(argv)
    logging.getLogger("midstream").setLevel(logging.ERROR)
    rows: list[dict[str, Any]] = []
    print(
        "| condition | kind | truth | max_gap | wire_gap | best is off by | three-line loop | OTel | freezes, hidden |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        tls = make_certificate(Path(folder))
        for condition in CONDITIONS:
            if options.only not in condition.name:
                continue
            for kind in condition.kinds:
                rounds = [measure(condition, kind, tls) for _ in range(options.rounds)]
                rounds.sort(key=lambda m: abs((m.best or 0.0) - m.truth))
                middle = rounds[len(rounds) // 2]
                off = abs((middle.best or 0.0) - middle.truth)
                rows.append({"condition": condition.name, "kind": kind, "off": off, **vars(middle)})
                print(
                    f"| {condition.name} | {kind} | {middle.truth:.3f} | {shown(middle.max_gap)} | "
                    f"{shown(middle.wire_gap)} | {off * 1000:.0f} ms | {shown(middle.loop)} | {shown(middle.otel)} | "
                    f"{middle.freezes}, {middle.hidden} |",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    summarise(rows)
    return 0


def summarise(rows: list[dict[str, Any]]) -> None:
    def wrong(name: str) -> int:
        return sum(row[name] is None or abs(row[name] - row["truth"]) > 0.25 for row in rows)

    print()
    print(
        f"best estimate: off by {max(row['off'] for row in rows) * 1000:.0f} ms at worst, "
        f"{statistics.median(row['off'] for row in rows) * 1000:.0f} ms in the median"
    )
    missed = [
        f"{row['condition']} ({row['kind']})"
        for row in rows
        if row["truth"] >= FREEZE_AFTER_S and not row["freezes"] + row["hidden"]
    ]
    false = [
        f"{row['condition']} ({row['kind']})"
        for row in rows
        if row["truth"] < FREEZE_AFTER_S and row["freezes"] + row["hidden"]
    ]
    print(f"missed freezes: {missed or 'none'}; false freezes: {false or 'none'}")
    print(
        f"wrong by more than 0.25 s, of {len(rows)}: three-line loop {wrong('loop')}, OTel {wrong('otel')}, "
        f"max_gap {wrong('max_gap')}, wire_gap {wrong('wire_gap')}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
