"""A program that is too busy to take what came is not a frozen server, and a frozen server is found all the same."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from midstream.stream.model import StreamRecord
from midstream.testing import collect
from support.harness import ASK
from support.steady_server import steady_server

FREEZE_AFTER_S = 1.2
STEP_S = 0.5
"""How long each turn of the loop takes while the program is busy: a chunk needs about three of them."""


def on_asyncio(use: Coroutine[Any, Any, None]) -> None:
    asyncio.run(use)


def on_uvloop(use: Coroutine[Any, Any, None]) -> None:
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(use)
    finally:
        loop.close()


LOOPS = pytest.mark.parametrize("run", [on_asyncio, on_uvloop])


def read_while_busy(
    run: Callable[[Coroutine[Any, Any, None]], None], base_url: str, streams: int, busy_s: float
) -> tuple[list[StreamRecord], list[float]]:
    """Read so many streams on a loop whose turns are long for a while; their records, and the announced freezes."""
    client = AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0)
    seen = collect(client, freeze_after_s=FREEZE_AFTER_S)

    async def one() -> None:
        async for _ in await client.chat.completions.create(**ASK, stream=True):
            pass

    async def use() -> None:
        tasks = [asyncio.ensure_future(one()) for _ in range(streams)]
        await asyncio.sleep(0.8)
        until = time.monotonic() + busy_s
        while time.monotonic() < until:
            time.sleep(STEP_S)  # noqa: ASYNC251 - the program is busy, turn after turn
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        await client.close()

    run(use())
    seen.flush()
    return seen.records, [freeze.gap_s for freeze in seen.freezes]


@LOOPS
@pytest.mark.parametrize("streams", [1, 50])
def test_loop_that_is_busy_turn_after_turn_is_no_freeze(run: Any, streams: int) -> None:
    """The server sends all the while. None of the blocks is its gap, not the last one alone."""
    with steady_server(0.2, 30) as base_url:
        records, announced = read_while_busy(run, base_url, streams, 4.0)

    assert len(records) == streams
    assert announced == []
    assert {(record.freezes, record.hidden) for record in records} == {(0, 0)}
    assert max(record.max_gap_s or 0.0 for record in records) < FREEZE_AFTER_S
    assert max(record.wire_gap_s or 0.0 for record in records) < FREEZE_AFTER_S
    assert min(record.loop_blocked_s or 0.0 for record in records) > 2.0


@LOOPS
def test_frozen_server_behind_a_busy_loop_is_found_with_its_length(run: Any) -> None:
    """The connection shows that nothing came for 6 s, though the loop is busy for most of that time."""
    with steady_server(0.2, 20, pause_at=8, pause_s=6.0) as base_url:
        (record,), announced = read_while_busy(run, base_url, 1, 5.0)

    assert record.freezes + record.hidden == 1
    assert record.wire_gap_s == pytest.approx(6.2, abs=1.0)
    assert len(announced) == 1


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_thread_that_keeps_the_interpreter_to_itself_is_no_freeze(kind: str) -> None:
    """Calls into C of a second each, one after the other, leave the others a moment in between."""
    stop = threading.Event()

    def keep() -> None:
        time.sleep(0.8)
        until = time.monotonic() + 4.0
        while time.monotonic() < until and not stop.is_set():
            sum(range(20_000_000))

    hog = threading.Thread(target=keep)
    with steady_server(0.2, 30) as base_url:
        client: Any = (OpenAI if kind == "sync" else AsyncOpenAI)(api_key="none", base_url=base_url)
        seen = collect(client, freeze_after_s=FREEZE_AFTER_S)

        async def read() -> None:
            async for _ in await client.chat.completions.create(**ASK, stream=True):
                pass
            await client.close()

        hog.start()
        try:
            if kind == "sync":
                for _ in client.chat.completions.create(**ASK, stream=True):
                    pass
                client.close()
            else:
                asyncio.run(read())
        finally:
            stop.set()
            hog.join()
        seen.flush()

    assert (seen.record.freezes, seen.record.hidden) == (0, 0)
