"""Ten thousand streams open at once in one process, each with a chunk a second: our share of a core, and the scrape.

    python -m benchmarks.scale [--streams N] [--phases N] [--json FILE]

Three processes hold as many streams: bare ones, monitored ones, and ones with a generator in between that only passes
chunks on, which is the least that anything in Python can cost there. They are driven in turns, in real time, and what
each used of a core is compared; the watcher's part is read from its thread's own clock. The streams have the SDK's
shape and chunks of its making, but do not parse: the SDK alone would need more than half a core for ten thousand chunks
a second. The scrape is that of the Prometheus exporter while all streams are open.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.floor import apassing
from benchmarks.overhead import SHORT, Parsed, body, client, opening
from midstream import monitor

KINDS = ("bare", "passing", "monitored")
GATES = 100
"""The streams' chunks are spread over the second in this many groups."""
WARM_S = 1
PHASE_S = 1
"""Together well below the threshold of a freeze: the other processes' streams are silent meanwhile."""
SCRAPES = 15


@dataclass(frozen=True)
class Share:
    """Medians: percent of one core used by the bare streams, by what is on top of them, and by the watcher alone."""

    streams: int
    bare_percent: float
    passing_percent: float
    monitor_percent: float
    watcher_percent: float
    scrape_ms: float
    scrape_bare_ms: float
    """Without open streams."""


# The driven process


class Gates:
    """Lets each group of streams have a chunk once a second, one group after the other."""

    def __init__(self) -> None:
        self._waiting: list[list[asyncio.Future[None]]] = [[] for _ in range(GATES)]
        self.passed = 0

    async def wait(self, group: int) -> None:
        gate = asyncio.get_running_loop().create_future()
        self._waiting[group].append(gate)
        await gate

    def open(self, group: int) -> None:
        waiting, self._waiting[group] = self._waiting[group], []
        self.passed += len(waiting)
        for gate in waiting:
            if not gate.done():
                gate.set_result(None)

    async def drive(self, seconds: float) -> None:
        """Open the gates in turn, in real time."""
        began = time.monotonic()
        for turn in range(int(seconds * GATES)):
            await asyncio.sleep(max(0.0, began + turn / GATES - time.monotonic()))
            self.open(turn % GATES)


async def chunks(gates: Gates, group: int, parsed: Sequence[Any]) -> AsyncIterator[Any]:
    """The role and a few words at once, then a word whenever the gate opens."""
    for chunk in parsed:
        yield chunk
    while True:
        await gates.wait(group)
        yield parsed[-1]


async def read(stream: Any) -> None:
    async for chunk in stream:
        _ = chunk.choices and chunk.choices[0].delta.content


def watcher_s() -> float:
    """CPU seconds that our watcher has used so far; 0.0 where there is none."""
    for thread in threading.enumerate():
        if thread.name == "midstream-watcher" and thread.ident is not None:
            return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return 0.0


async def serve(streams: int, kind: str) -> None:
    """Open the streams; then do what each line on standard input says, and answer with a line."""
    logging.getLogger("midstream").setLevel(logging.ERROR)  # the silence while the other is driven is no news
    gates = Gates()
    parsed = list(opening(client("sync", body(SHORT)))())[:SHORT]
    registry = CollectorRegistry()
    provider = MeterProvider(metric_readers=[PrometheusMetricReader(registry=registry)])
    reading = []
    for number in range(streams):
        stream = Parsed("async", ())
        stream._iterator = chunks(gates, number % GATES, parsed)
        if kind == "passing":
            stream._iterator = apassing(stream._iterator)
        if kind == "monitored":
            monitor(stream, meter_provider=provider)
        reading.append(asyncio.create_task(read(stream)))
    await gates.drive(WARM_S)
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    while True:
        line = (await asyncio.to_thread(sys.stdin.readline)).strip()
        if line == "drive":
            await gates.drive(WARM_S)
            passed, cpu, watched = gates.passed, time.process_time(), watcher_s()
            began = time.monotonic()
            await gates.drive(PHASE_S)
            took = time.monotonic() - began
            said: Any = {
                "cpu": (time.process_time() - cpu) / took,
                "watcher": (watcher_s() - watched) / took,
                "chunks": (gates.passed - passed) / took,
            }
        elif line == "scrape":
            times = []
            for _ in range(SCRAPES):
                start = time.perf_counter()
                generate_latest(registry)
                times.append(time.perf_counter() - start)
            said = statistics.median(times)
        else:
            break
        print(json.dumps(said), flush=True)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


class Driven:
    """A process with many open streams."""

    def __init__(self, streams: int, kind: str) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "benchmarks.scale", "--serve", kind, "--streams", str(streams),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def ready(self) -> None:
        if self._deliver() != "ready":
            raise SystemExit("the process with the streams ended early")

    def ask(self, what: str) -> Any:
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        return json.loads(self._deliver())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _deliver(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def measure(streams: int, phases: int) -> Share:
    """Drive the processes in turns."""
    driven = {kind: Driven(streams, kind) for kind in KINDS}
    try:
        for each in driven.values():
            each.ready()
        rounds = []
        for _ in range(phases):
            rounds.append({kind: each.ask("drive") for kind, each in driven.items()})
            if min(one["chunks"] for one in rounds[-1].values()) < 0.97 * streams:
                print("This machine cannot give every stream a chunk a second.", file=sys.stderr)
        scrape, nothing = driven["monitored"].ask("scrape"), driven["bare"].ask("scrape")
    finally:
        for each in driven.values():
            each.close()

    def on_top(kind: str) -> float:
        differences: list[float] = [one[kind]["cpu"] - one["bare"]["cpu"] for one in rounds]
        return statistics.median(differences) * 100

    return Share(
        streams,
        statistics.median(one["bare"]["cpu"] for one in rounds) * 100,
        on_top("passing"),
        on_top("monitored"),
        statistics.median(one["monitored"]["watcher"] for one in rounds) * 100,
        scrape * 1000,
        nothing * 1000,
    )


def table(share: Share) -> str:
    """What a core is used for, and the scrape."""
    each = share.monitor_percent / 100 / share.streams * 1e6
    return "\n".join(
        [
            f"| {share.streams:,} streams, a chunk a second each | |",
            "|---|---|",
            f"| the event loop with the bare streams, of one core | {share.bare_percent:.1f} % |",
            f"| a generator that only passes chunks on adds | {share.passing_percent:.1f} % |",
            f"| monitor adds, of one core | {share.monitor_percent:.1f} % ({each:.1f} µs a chunk) |",
            f"| its watcher's part of that | {share.watcher_percent:.2f} % |",
            f"| scrape by the Prometheus exporter | {share.scrape_ms:.1f} ms |",
        ]
    )


def main(argv: list[str]) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--phases", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.serve is not None:
        asyncio.run(serve(options.streams, options.serve))
        return 0
    share = measure(options.streams, options.phases)
    print(table(share))
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(share), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
