"""The emulated vLLM, asked as the real one was: eight monitored clients, and what their records say.

    python -m benchmarks.reality_live [--speed 1]

Prints the table of `docs/lab-reality.md` that holds the records against the recording. Takes 25 seconds.
"""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from midstream import StreamRecord, monitor
from midstream.lab.apart import serve_apart
from midstream.lab.emulation import Emulated, emulator
from midstream.lab.fitting import fit_profile
from midstream.lab.observed import ObservedLoad, ObservedStream, read_load

LOADS = Path(__file__).parent.parent / "tests" / "recordings" / "load"
FREEZE_AFTER_S = 2.0
APART_S = 0.02
"""The recorded clients arrive in an order that decides who is preempted: a slow machine shall not change it."""


def observed(name: str = "over8") -> ObservedLoad:
    """Return a recorded load."""
    return read_load(LOADS / f"{name}.jsonl")


def emulated(speed: float, **flags: Any) -> Emulated:
    """Return the server, its hardware fitted to the two loads in which nothing froze."""
    hardware = fit_profile([observed("roomy"), observed("cap4_active")])
    return Emulated("vllm", {"block_size": 128, **flags}, hardware, "tiny", speed)


def records(load: ObservedLoad, server: Emulated) -> list[StreamRecord]:
    """Let a client for each recorded stream ask when its own did, and return their records in that order."""
    with serve_apart(partial(emulator, server)) as base_url:
        return asyncio.run(_ask(load, base_url, server.speed))


async def _ask(load: ObservedLoad, base_url: str, speed: float) -> list[StreamRecord]:
    found: dict[int, StreamRecord] = {}
    complete = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ended(number: int, record: StreamRecord) -> None:
        found[number] = record
        if len(found) == len(load.streams):
            loop.call_soon_threadsafe(complete.set)

    async with DefaultAsyncHttpxClient(trust_env=False) as http:
        client = AsyncOpenAI(base_url=base_url, api_key="none", http_client=http, max_retries=0)
        await _warm(
            client
        )  # before any is monitored: a client shares parts with those that are derived from it
        clients = [
            monitor(
                client.with_options(max_retries=0),
                freeze_after_s=FREEZE_AFTER_S / speed,
                on_end=partial(ended, stream.id),
            )
            for stream in load.streams
        ]
        moments, last = [], loop.time()
        began = last
        for stream in load.streams:
            last = max(began + stream.start_s / speed, last + APART_S)
            moments.append(last)
        await asyncio.gather(*map(_read, clients, load.streams, moments))
        await complete.wait()
    return [found[stream.id] for stream in load.streams]


async def _warm(client: AsyncOpenAI) -> None:
    """Do once what only a first call takes."""
    first = await client.chat.completions.create(model="tiny", messages=[], max_tokens=1, stream=True)
    async for _ in first:
        pass


async def _read(client: AsyncOpenAI, stream: ObservedStream, moment: float) -> None:
    await asyncio.sleep(moment - asyncio.get_running_loop().time())
    chunks = await client.chat.completions.create(
        model="tiny",
        messages=[],
        max_tokens=stream.answer_tokens,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True, "emulate": {"prompt_tokens": stream.prompt_tokens}},
    )
    async for _ in chunks:
        pass


def wall_s(found: list[StreamRecord]) -> float:
    """Return what passed from the first call to the last chunk."""
    ends = [record.started_at + record.duration_s for record in found]
    return max(ends) - min(record.started_at for record in found)


def table(speed: float) -> str:
    """Return recording and records, stream by stream, as a Markdown table."""
    load = observed()
    found = records(load, emulated(speed, num_gpu_blocks=28))
    rows = [
        (
            "| stream | longest gap, recorded | by `monitor()` | freezes, recorded | by `monitor()` "
            "| done after, recorded | by `monitor()` |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for stream, record in zip(load.streams, found, strict=True):
        cells = (
            str(stream.id),
            f"{stream.longest_gap_s:.1f} s",
            f"{(record.max_gap_s or 0.0) * speed:.1f} s",
            str(_freezes(stream)),
            str(record.freezes),
            f"{stream.end_s - stream.start_s:.1f} s",
            f"{record.duration_s * speed:.1f} s",
        )
        rows.append(f"| {' | '.join(cells)} |")
    rows += [
        "",
        f"All done after {load.wall_s:.1f} s, recorded, and {wall_s(found) * speed:.1f} s, emulated.",
    ]
    return "\n".join(rows)


def _freezes(stream: ObservedStream) -> int:
    return sum(b - a >= FREEZE_AFTER_S for a, b in zip(stream.times_s, stream.times_s[1:], strict=False))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--speed", type=float, default=1.0)
    print(table(parser.parse_args().speed))


if __name__ == "__main__":
    main()
