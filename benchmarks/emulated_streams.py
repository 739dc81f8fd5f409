"""How many streams the emulated server holds on this machine, and how fast the simulator is.

    python -m benchmarks.emulated_streams [--streams 100,200,400,800]

Every stream gets a token each 50 ms (20 a second) from a server in a process of its own; clients of bare sockets in
this process note when each event came. Late is what a token came after it was due. Takes about a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from urllib.parse import urlsplit

from midstream._support.statistics import nearest_rank
from midstream.lab.admission import engine
from midstream.lab.apart import serve_apart
from midstream.lab.emulation import Emulated, emulator
from midstream.lab.hardware import PROFILES, HardwareProfile
from midstream.lab.simulator import simulate
from midstream.lab.workload import closed_loop, fixed, lognormal_by, pairs

STEP_S = 0.05
TOKENS = 160
ROOM = {"num_gpu_blocks": 1_000_000, "max_num_seqs": 100_000, "max_num_batched_tokens": 1_000_000}


@dataclass(frozen=True, slots=True)
class Held:
    """What came of so many streams: events a second, and how much longer than a step their gaps were."""

    streams: int
    events_per_s: float
    late_median_ms: float
    late_p99_ms: float
    merged: float
    """The share of tokens that came in one chunk with others, since the server was late."""


def hold(streams: int) -> Held:
    """Serve that many streams at once."""
    hardware = HardwareProfile("20 tokens a second", STEP_S, 0.0, 0.0, 0.0)
    with serve_apart(partial(emulator, Emulated("vllm", ROOM, hardware))) as base_url:
        return asyncio.run(_hold(urlsplit(base_url).port or 0, streams))


async def _hold(port: int, streams: int) -> Held:
    began = time.monotonic()
    times = await asyncio.gather(*(_stream(port) for _ in range(streams)))
    seconds = time.monotonic() - began
    late = sorted(1000 * (b - a - STEP_S) for each in times for a, b in pairwise(each))
    chunks = sum(len(each) for each in times)
    merged = 1 - chunks / (streams * TOKENS)
    return Held(streams, chunks / seconds, nearest_rank(late, 0.5), nearest_rank(late, 0.99), merged)


async def _stream(port: int) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"messages": [], "stream": True, "emulate": {"answer_tokens": TOKENS}}).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%s" % (len(body), body)
    )
    times: list[float] = []
    while True:
        line = await reader.readline()
        if b'"content":"' in line and b'"role"' not in line:
            times.append(time.monotonic())
        if b"[DONE]" in line or not line:
            writer.close()
            return times


def simulated(requests: int = 10_000) -> str:
    """Return how fast the simulator plays an overloaded vLLM."""
    lengths = pairs(0, requests, fixed(200), lognormal_by(mean=1000, p95=3000, most=16384))
    began = time.perf_counter()
    run = simulate(engine("vllm"), closed_loop(32, lengths), PROFILES["l4"])
    seconds = time.perf_counter() - began
    return (
        f"{requests:,} requests of 1,000 tokens in {seconds:.1f} s: {requests / seconds:,.0f} requests and "
        f"{run.events / seconds:,.0f} events a second, for {run.steps:,} steps of the engine and "
        f"{run.duration_s / 3600:.1f} hours of virtual time"
    )


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", default="100,200,400,800")
    print("| streams | events a second | late, median | late, p99 | merged |")
    print("|---|---|---|---|---|")
    for count in parser.parse_args().streams.split(","):
        held = hold(int(count))
        print(
            f"| {held.streams} | {held.events_per_s:,.0f} | {held.late_median_ms:.1f} ms | {held.late_p99_ms:.1f} ms "
            f"| {held.merged:.1%} |"
        )
    print(f"\nThe simulator: {simulated()}.")


if __name__ == "__main__":
    main()
