"""Event loops of several makes, one after the other, and several tasks around one stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from benchmarks.wire import Script, WireServer
from openai import AsyncOpenAI

from midstream.testing import DONE, Collected, collect, finish, text
from support.harness import ASK

FROZEN: Script = [(0.05, text("a")), (0.1, text("b")), (0.8, text("c")), (0.8, finish()), (0.8, DONE)]
QUICK: Script = [(0.0, text("a")), (0.01, text("b")), (0.01, finish()), (0.01, DONE)]


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer(FROZEN) as wire:
        yield wire


def client_of(server: WireServer) -> tuple[AsyncOpenAI, Collected]:
    client = AsyncOpenAI(api_key="none", base_url=server.base_url, max_retries=0)
    return client, collect(client, freeze_after_s=0.3)


async def read(client: AsyncOpenAI) -> int:
    return len([chunk async for chunk in await client.chat.completions.create(**ASK, stream=True)])


def on_asyncio(use: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(use())


def on_uvloop(use: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()
    try:
        return loop.run_until_complete(use())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def on_trio(use: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return pytest.importorskip("trio").run(use)


LOOPS = pytest.mark.parametrize("run", [on_asyncio, on_uvloop, on_trio])
# On trio the SDK's own generators are said to be left unexhausted, with us and without.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'openai:ResourceWarning")


@LOOPS
def test_freeze_is_seen_on_every_loop(run: Callable[..., Any], server: WireServer) -> None:
    """The same figures on asyncio, uvloop and trio, and the freeze is told while it lasts."""
    client, seen = client_of(server)

    async def use() -> int:
        async with client:
            return await read(client)

    assert run(use) == 4
    record = seen.record
    sent = server.exchanges[0].sent
    assert (record.outcome, record.freezes, record.chunks) == ("completed", 1, 4)
    assert record.max_gap_s == pytest.approx(sent[2] - sent[1], abs=0.15)
    assert len(seen.freezes) == 1


@LOOPS
def test_cancelled_on_every_loop(run: Callable[..., Any], server: WireServer) -> None:
    """A time limit of the loop's own in the middle of a freeze is a cancellation, with the wait as open gap."""
    client, seen = client_of(server)

    async def use() -> None:
        async with client:
            if run is on_trio:
                trio = pytest.importorskip("trio")
                with trio.move_on_after(0.6):
                    await read(client)
            else:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(read(client), 0.6)

    run(use)
    record = seen.record
    assert (record.outcome, record.freezes, record.max_gap_open) == ("cancelled", 1, True)
    assert record.max_gap_s == pytest.approx(0.5, abs=0.2)


@LOOPS
def test_many_loops_after_one_another(run: Callable[..., Any]) -> None:
    """A program may run a new loop for each question; each leaves one record and nothing behind."""
    with WireServer(QUICK) as server:
        records: list[Any] = []
        for _ in range(20):
            client, seen = client_of(server)

            async def use(client: AsyncOpenAI = client) -> int:
                async with client:
                    return await read(client)

            assert run(use) == 3
            records.append(seen.record)

    assert {(record.outcome, record.chunks, record.freezes) for record in records} == {("completed", 3, 0)}
    assert seen.streams() == ()


def test_closed_by_another_task_between_two_chunks(server: WireServer) -> None:
    """Whoever closes the stream ends it; the reader finds it closed."""
    client, seen = client_of(server)

    async def use() -> None:
        async with client:
            stream = await client.chat.completions.create(**ASK, stream=True)
            await stream.__anext__()
            await asyncio.ensure_future(stream.close())

    asyncio.run(use())
    assert (seen.record.outcome, seen.record.chunks) == ("left_early", 1)


def test_reader_that_another_task_cancels(server: WireServer) -> None:
    """Cancelling the task that waits in the freeze ends the stream as cancelled, whoever does it."""
    client, seen = client_of(server)

    async def use() -> None:
        async with client:
            reader = asyncio.ensure_future(read(client))
            await asyncio.sleep(0.6)  # the freeze is the server's, in real time
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader

    asyncio.run(use())
    assert (seen.record.outcome, seen.record.freezes, seen.record.max_gap_open) == ("cancelled", 1, True)


def test_stream_handed_from_task_to_task(server: WireServer) -> None:
    """Each chunk may be awaited by a task of its own; it is one stream all the same."""
    client, seen = client_of(server)

    async def use() -> int:
        async with client:
            stream = await client.chat.completions.create(**ASK, stream=True)
            count = 0
            while True:
                try:
                    await asyncio.ensure_future(stream.__anext__())
                except StopAsyncIteration:
                    return count
                count += 1

    assert asyncio.run(use()) == 4
    assert (seen.record.outcome, seen.record.freezes) == ("completed", 1)
