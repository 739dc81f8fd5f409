"""Soak: many callers for a while, who leave their streams in every way there is; then, what is left of it.

    python -m benchmarks.soak [--minutes 3] [--threads 50] [--tasks 500] [--segments 6]

A server in another process answers each call by the number in its model's name, and counts. Traffic comes in segments;
between two of them everything comes to rest and is counted: memory, threads, file descriptors, callbacks, open streams.
From the second segment on nothing may grow. At the end each number must have exactly one record, in hooks, in metrics
and in the journal, and none may be left out. Exit status: 0 it held, 1 it did not.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import contextlib
import gc
import logging
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from openai import AsyncOpenAI, OpenAI
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

import midstream
from benchmarks.soak_server import BEHAVIOURS, MOST, server
from midstream._support.lifecycle import MOVES, Stage, parts
from midstream.journal import flush, read
from midstream.lab.apart import serve_apart
from midstream.runtime.monitor import PROCESS
from midstream.stream.model import StreamRecord

FREEZE_AFTER_S = 1.0
MESSAGES: Any = [{"role": "user", "content": "hi"}]
WAYS = (
    "read",
    "read",
    "read",
    "read",
    "close",
    "drop",
    "leave",
    "raise",
    "respond",
    "helper",
    "unparsed",
    "cancel",
)
"""How callers leave a stream. Whom nobody can cancel, a thread, reads to the end instead."""
REST_S = 20.0
NOISE_BLOCKS, NOISE_MB = 5000, 20
"""What caches of the interpreter and of libraries may take after the first segment. A record is several blocks."""
SDKS_OWN = ("asynchronous generator is already running", "async generator already executing")
"""What Python says when an async stream is dropped: the SDK's generators are closed twice, with us and without."""


class Stop(Exception):  # noqa: N818 - what a caller has is no error of ours
    """The caller's own exception."""


class Traffic:
    """What callers did, and what the hooks heard."""

    def __init__(self) -> None:
        self.numbers = count()
        self.recorded = bytearray(MOST)
        self.unparsed = bytearray(MOST)
        self.outcomes: Counter[str] = Counter()
        self.freezes = 0
        self.surprises: Counter[str] = Counter()
        self.sdks_own = 0
        self.stopping = threading.Event()

    def ended(self, record: StreamRecord) -> None:
        """Count a record by the number of its stream."""
        self.recorded[int(record.request_model.partition("-")[2])] += 1
        self.outcomes[record.outcome.value] += 1

    def froze(self, _: midstream.Freeze) -> None:
        """Count a freeze."""
        self.freezes += 1

    def unheard(self, exc: BaseException | None) -> None:
        """Count an exception that nobody could catch."""
        if any(words in str(exc) for words in SDKS_OWN):
            self.sdks_own += 1
        else:
            self.surprises[f"{type(exc).__name__}: {exc}"] += 1

    def next(self) -> tuple[int, dict[str, Any], str, random.Random]:
        """Give the next call: its number, its request, the way it will be left, and dice of its own."""
        number = next(self.numbers)
        dice = random.Random(~number)
        request = {"model": f"{dice.choice(BEHAVIOURS)}-{number}", "messages": MESSAGES, "stream": True}
        return number, request, dice.choice(WAYS), dice


def expected(exc: BaseException) -> bool:
    """Whether the server or the caller meant this to happen."""
    return isinstance(exc, Stop) or type(exc).__name__ in {
        "APIError",
        "APIConnectionError",
        "RemoteProtocolError",
    }


def ask(client: OpenAI, traffic: Traffic) -> None:  # noqa: PLR0912 - a way out is a branch
    """One stream of the sync client, left in one of the ways there are."""
    number, request, way, dice = traffic.next()
    chat, most = client.chat.completions, dice.randrange(1, 8)
    if way == "unparsed":
        traffic.unparsed[number] = 1
        raw = chat.with_raw_response.create(**request)
        raw.http_response.close()
        return
    if way == "helper":
        with client.chat.completions.stream(model=request["model"], messages=MESSAGES) as events:
            for n, _ in enumerate(events):
                if n == most:
                    break
        return
    stream = chat.create(**request)
    if way in {"read", "cancel"}:
        for _ in stream:
            pass
    elif way in {"leave", "raise"}:
        with stream:
            for n, _ in enumerate(stream):
                if n == most:
                    break
            if way == "raise":
                raise Stop
    else:
        for n, _ in enumerate(stream):
            if n == most:
                break
        if way == "close":
            stream.close()
        elif way == "respond":
            stream.response.close()


async def ask_async(client: AsyncOpenAI, traffic: Traffic) -> None:
    """The same for the async client."""
    number, request, way, dice = traffic.next()
    chat, most = client.chat.completions, dice.randrange(1, 8)
    if way == "unparsed":
        traffic.unparsed[number] = 1
        raw = await chat.with_raw_response.create(**request)
        await raw.http_response.aclose()
        return
    if way == "helper":
        async with client.chat.completions.stream(model=request["model"], messages=MESSAGES) as events:
            n = 0
            async for _ in events:
                n += 1
                if n > most:
                    break
        return
    stream = await chat.create(**request)
    if way == "cancel":
        reading = asyncio.ensure_future(_read(stream, 10_000))
        await asyncio.wait([reading], timeout=dice.uniform(0.0, 4.0))
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    elif way == "read":
        await _read(stream, 10_000)
    elif way in {"leave", "raise"}:
        async with stream:
            await _read(stream, most)
            if way == "raise":
                raise Stop
    else:
        await _read(stream, most)
        if way == "close":
            await stream.close()
        elif way == "respond":
            await stream.response.aclose()


async def _read(stream: Any, most: int) -> None:
    n = 0
    async for _ in stream:
        n += 1
        if n > most:
            return


@dataclass(frozen=True)
class Rest:
    """What there is while nothing happens."""

    streams: int
    records: int
    memory_mb: float
    blocks: int
    threads: int
    descriptors: int
    callbacks: int
    open: int


class Soak:
    """Callers of both kinds, and what they share."""

    def __init__(self, base_url: str, journal: Path, threads: int, tasks: int, *, bare: bool) -> None:
        self.traffic = Traffic()
        self.threads = threads
        self.tasks = tasks
        self.base_url = base_url
        self.registry = CollectorRegistry()
        self.provider = MeterProvider(
            [PrometheusMetricReader(registry=self.registry)], shutdown_on_exit=False
        )
        settings: dict[str, Any] = {
            "freeze_after_s": FREEZE_AFTER_S,
            "on_freeze": self.traffic.froze,
            "on_end": self.traffic.ended,
            "meter_provider": self.provider,
            "journal": journal,
        }
        made: dict[str, Any] = {"api_key": "none", "base_url": base_url, "max_retries": 0, "timeout": 60}
        self.client, self.async_client = OpenAI(**made), AsyncOpenAI(**made)
        if not bare:
            midstream.monitor(self.client, **settings)
            midstream.monitor(self.async_client, **settings)
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda _, context: self.traffic.unheard(context.get("exception")))
        sys.unraisablehook = lambda unraisable: self.traffic.unheard(unraisable.exc_value)
        self.looping = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.looping.start()

    def segment(self, seconds: float) -> None:
        """Let everybody stream for so long, and then come to rest."""
        self.traffic.stopping.clear()
        workers = [threading.Thread(target=self._thread) for _ in range(self.threads)]
        for worker in workers:
            worker.start()
        tasks = asyncio.run_coroutine_threadsafe(self._tasks(), self.loop)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(1.0)
            generate_latest(self.registry)
        self.traffic.stopping.set()
        tasks.result()
        for worker in workers:
            worker.join()

    def rest(self) -> Rest:
        """Wait until nothing is open any more, close what clients keep, and count what is left."""
        until = time.monotonic() + REST_S
        while time.monotonic() < until:
            gc.collect()
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), self.loop).result()
            named = [thread.name for thread in threading.enumerate()]
            if not midstream.streams() and not any(name.startswith("midstream-") for name in named):
                break
        flush(10.0)
        self.client._client._transport.close()
        asyncio.run_coroutine_threadsafe(self.async_client._client._transport.aclose(), self.loop).result()
        gc.collect()
        return Rest(
            streams=sum(self.server_saw()),
            records=sum(self.traffic.recorded),
            memory_mb=round(_resident_mb(), 1),
            blocks=sys.getallocatedblocks(),
            threads=threading.active_count(),
            descriptors=len(os.listdir("/proc/self/fd")),
            callbacks=len(self.loop._scheduled) + len(self.loop._ready) + atexit._ncallbacks(),  # type: ignore[attr-defined]
            open=len(PROCESS.roster) + len(midstream.streams()),
        )

    def server_saw(self) -> bytes:
        """How often the server began a stream of each number."""
        with urlopen(f"{self.base_url}/seen", timeout=30) as response:  # noqa: S310 - our own server
            return bytes(response.read())

    def close(self) -> None:
        """Let go of clients and loop."""
        self.client.close()
        asyncio.run_coroutine_threadsafe(self.async_client.close(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.looping.join()
        self.loop.close()

    def _thread(self) -> None:
        while not self.traffic.stopping.is_set():
            try:
                ask(self.client, self.traffic)
            except Exception as exc:  # noqa: BLE001, PERF203 - what nobody meant to happen is told at the end
                self._caught(exc)

    async def _tasks(self) -> None:
        async def caller() -> None:
            while not self.traffic.stopping.is_set():
                try:
                    await ask_async(self.async_client, self.traffic)
                except Exception as exc:  # noqa: BLE001, PERF203
                    self._caught(exc)

        await asyncio.gather(*(caller() for _ in range(self.tasks)))

    def _caught(self, exc: Exception) -> None:
        if not expected(exc):
            self.traffic.surprises[f"{type(exc).__name__}: {exc}"] += 1


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def counted(registry: CollectorRegistry) -> int:
    """How many streams the metrics say have ended."""
    return round(sum(_values(registry, "stream_ended_total")))


def _values(registry: CollectorRegistry, name: str) -> Iterator[float]:
    for family in registry.collect():
        for sample in family.samples:
            if sample.name == name:
                yield sample.value


def verdicts(soak: Soak, rests: list[Rest], rows: int) -> list[tuple[str, bool]]:
    """What must have held, and whether it did."""
    traffic, seen = soak.traffic, soak.server_saw()
    first, last = rests[1], rests[-1]
    due = bytes(one - other for one, other in zip(seen, traffic.unparsed, strict=True))
    missing = sum(one > other for one, other in zip(due, traffic.recorded, strict=True))
    doubled = sum(one < other for one, other in zip(due, traffic.recorded, strict=True))
    streams = max(1, last.streams - first.streams)
    grown = last.blocks - first.blocks
    return [
        (f"{missing} records missing, {doubled} too many, of {sum(due)}", missing == doubled == 0),
        (f"{counted(soak.registry)} counted by metrics", counted(soak.registry) == sum(due)),
        (f"{rows} rows in the journal", rows == sum(due)),
        (f"{sum(traffic.surprises.values())} exceptions that nobody meant", not traffic.surprises),
        (
            f"{grown:+,} blocks of memory for the {streams:,} streams after the first segment",
            grown < max(NOISE_BLOCKS, streams / 20),
        ),
        (
            f"{last.memory_mb - first.memory_mb:+.1f} MB after the first segment",
            last.memory_mb - first.memory_mb < NOISE_MB,
        ),
        (f"{last.threads - first.threads:+d} threads", last.threads <= first.threads),
        (
            f"{last.descriptors - first.descriptors:+d} file descriptors",
            last.descriptors <= first.descriptors,
        ),
        (
            f"{last.callbacks - first.callbacks:+d} callbacks; {MOVES} may be places that the exit function left",
            last.callbacks <= first.callbacks + MOVES,
        ),
        (f"{last.open} streams still open", last.open == 0),
    ]


def main(argv: list[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=3.0, help="of traffic in all (%(default)s)")
    parser.add_argument("--threads", type=int, default=50, help="callers of the sync client (%(default)s)")
    parser.add_argument("--tasks", type=int, default=500, help="callers of the async client (%(default)s)")
    parser.add_argument("--segments", type=int, default=6, help="with a rest after each (%(default)s)")
    parser.add_argument("--bare", action="store_true", help="without the monitor, to see what grows anyway")
    given = parser.parse_args(argv)
    if given.segments < 2:
        parser.error("growth is what comes after the first segment; there must be two at least")
    logging.getLogger("midstream").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, serve_apart(server) as base_url:
        journal = Path(folder) / "streams.db"
        soak = Soak(base_url, journal, given.threads, given.tasks, bare=given.bare)
        rests = [soak.rest()]
        print("  ".join(f"{name:>11}" for name in Rest.__dataclass_fields__), flush=True)
        _show(rests[0])
        for _ in range(given.segments):
            soak.segment(given.minutes * 60 / given.segments)
            rests.append(soak.rest())
            _show(rests[-1])
        found = [] if given.bare else verdicts(soak, rests, len(read(journal).records))
        soak.close()
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in sorted(soak.traffic.outcomes.items()))
    print(f"\n{outcomes}; {soak.traffic.freezes} freezes told; {len(parts(Stage.JOURNALS))} journal writers")
    print(f"{soak.traffic.sdks_own} times Python said that a dropped stream of the SDK was closed twice")
    for what, surprise in soak.traffic.surprises.most_common(5):
        print(f"{surprise} x {what}")
    for sentence, held in found:
        print(f"{'held  ' if held else 'FAILED'}  {sentence}")
    return 0 if all(held for _, held in found) else 1


def _show(rest: Rest) -> None:
    print("  ".join(f"{value:>11,}" for value in astuple(rest)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
