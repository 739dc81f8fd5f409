"""One table of exits, run against both clients: however a stream ends, there is exactly one record, at once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from midstream.testing import CUT, DONE, SILENCE, ManualClock, Script, finish, frame, role, text
from support.harness import Answer, Client, a_client, stream_of

# Content at 1 s and 2 s, then silence until 10 s: every exit that leaves at a chunk leaves at 2 s.
ANSWER: Script = [
    (0.5, role()),
    (1, text("a")),
    (2, text("b")),
    (10, text("c")),
    (10.5, finish()),
    (10.5, DONE),
]


class Stop(Exception):
    """The caller's own exception."""


async def exhausted(client: Client, clock: ManualClock) -> None:
    async for _ in await stream_of(client):
        pass


async def left_by_break_and_dropped(client: Client, clock: ManualClock) -> None:
    stream = await stream_of(client)
    await take(stream, 3)
    del stream
    clock.advance(500)
    await collect_garbage()


async def closed(client: Client, clock: ManualClock) -> None:
    stream = await stream_of(client)
    await take(stream, 3)
    clock.advance(1)
    await stream.close()


async def closed_twice(client: Client, clock: ManualClock) -> None:
    stream = await stream_of(client)
    await take(stream, 3)
    await stream.close()
    clock.advance(1)
    await stream.close()


async def closed_by_its_other_name(client: Client, clock: ManualClock) -> None:
    stream = await stream_of(client)
    await take(stream, 3)
    if hasattr(stream.raw, "aclose"):
        await stream.raw.aclose()
    else:
        await stream.close()


async def left_by_the_context_manager(client: Client, clock: ManualClock) -> None:
    async with await stream_of(client) as stream:
        await take(stream, 3)


async def raised_in_the_callers_body(client: Client, clock: ManualClock) -> None:
    with pytest.raises(Stop):
        async with await stream_of(client) as stream:
            await take(stream, 3)
            raise Stop


async def cancelled_in_the_callers_body(client: Client, clock: ManualClock) -> None:
    with pytest.raises(asyncio.CancelledError):
        async with await stream_of(client) as stream:
            await take(stream, 3)
            raise asyncio.CancelledError


async def closed_by_its_response(client: Client, clock: ManualClock) -> None:
    stream = await stream_of(client)
    await take(stream, 3)
    await stream.close_response()


async def left_by_the_helper(client: Client, clock: ManualClock) -> None:
    async with client.helper() as events:
        async for event in events:
            if event.type == "content.delta" and event.snapshot == "ab":
                break


async def read_by_the_helper(client: Client, clock: ManualClock) -> None:
    async with client.helper() as events:
        async for _ in events:
            pass


async def left_after_the_finish(client: Client, clock: ManualClock) -> None:
    async with await stream_of(client) as stream:
        await take(stream, 5)


async def never_read_and_dropped(client: Client, clock: ManualClock) -> None:
    stream = await stream_of(client)
    del stream
    clock.advance(500)
    await collect_garbage()


async def never_read_and_closed(client: Client, clock: ManualClock) -> None:
    async with await stream_of(client):
        pass


async def thrown_into_a_generator_around_it(client: Client, clock: ManualClock) -> None:
    async def around() -> Any:
        async with await stream_of(client) as stream:
            async for chunk in stream:
                yield chunk

    outer = around()
    for _ in range(3):
        await outer.__anext__()
    await outer.aclose()


async def left_open_at_exit(client: Client, clock: ManualClock) -> None:
    stream = await stream_of(client)
    await take(stream, 3)
    clock.advance(500)
    client.seen.process.at_exit(1.0)
    del stream


async def raw_parsed_and_read(client: Client, clock: ManualClock) -> None:
    raw = await client.raw()
    assert raw.headers["content-type"] == "text/event-stream"
    assert raw.parse() is raw.parse()
    async for _ in Answer(raw.parse()):
        pass


async def streaming_response_parsed_and_left(client: Client, clock: ManualClock) -> None:
    async with client.streaming_response() as stream:
        await take(stream, 3)


async def failed_on_the_way(client: Client, clock: ManualClock) -> None:
    with pytest.raises(Exception, match=r".*") as caught:
        async for _ in await stream_of(client):
            pass
    client.caught = caught.value


@dataclass(frozen=True)
class Exit:
    """One way out, and what its record must say."""

    leave: Callable[[Client, ManualClock], Any]
    outcome: str
    max_gap_s: float | None
    gap_open: bool = False
    duration_s: float = 2.0
    error_type: str | None = None
    script: Script = tuple(ANSWER)


ERROR_EVENT = frame({"error": {"message": "boom", "code": 500}})
BROKEN_FRAME = "data: : keepalive\n\n"


def ends(moment: float, data: str) -> Script:
    return [*ANSWER[:3], (moment, data)]


EXITS = [
    Exit(exhausted, "completed", 8.0, duration_s=10.5),
    Exit(left_by_break_and_dropped, "left_early", 1.0),
    Exit(closed, "left_early", 1.0, duration_s=3.0),
    Exit(closed_twice, "left_early", 1.0),
    Exit(closed_by_its_other_name, "left_early", 1.0),
    Exit(left_by_the_context_manager, "left_early", 1.0),
    Exit(raised_in_the_callers_body, "left_early", 1.0),
    Exit(cancelled_in_the_callers_body, "cancelled", 1.0),
    Exit(closed_by_its_response, "left_early", 1.0),
    Exit(left_by_the_helper, "left_early", 1.0),
    Exit(read_by_the_helper, "completed", 8.0, duration_s=10.5),
    Exit(left_after_the_finish, "completed", 8.0, duration_s=10.5),
    Exit(never_read_and_dropped, "unread", None, duration_s=0.0),
    Exit(never_read_and_closed, "unread", None, duration_s=0.0),
    Exit(thrown_into_a_generator_around_it, "left_early", 1.0),
    Exit(left_open_at_exit, "left_early", 1.0),
    Exit(raw_parsed_and_read, "completed", 8.0, duration_s=10.5),
    Exit(streaming_response_parsed_and_left, "left_early", 1.0),
    Exit(failed_on_the_way, "timeout", 5.0, True, 7.0, "timeout", ends(7, SILENCE)),
    Exit(failed_on_the_way, "error", 5.0, True, 7.0, "APIConnectionError", ends(7, CUT)),
    Exit(failed_on_the_way, "error", 5.0, True, 7.0, "APIError", ends(7, ERROR_EVENT)),
    Exit(failed_on_the_way, "error", 5.0, True, 7.0, "JSONDecodeError", ends(7, BROKEN_FRAME)),
    Exit(exhausted, "no_finish", 5.0, True, 7.0, None, ends(7, "")),
    Exit(exhausted, "empty", None, duration_s=0.0, script=()),
]


def name(exit_: Exit) -> str:
    return f"{exit_.leave.__name__}-{exit_.error_type or exit_.outcome}"


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("exit_", EXITS, ids=name)
def test_every_exit_leaves_exactly_one_record(exit_: Exit, kind: str) -> None:
    """Whatever the exit, sync and async alike, there is one record with its outcome, and nothing stays open."""
    clock = ManualClock()
    client = a_client(kind, exit_.script, clock)

    asyncio.run(leave(exit_, client, clock))

    record = client.seen.record
    assert record.outcome == exit_.outcome
    assert record.error_type == exit_.error_type
    assert record.max_gap_s == (None if exit_.max_gap_s is None else pytest.approx(exit_.max_gap_s))
    assert record.max_gap_open == exit_.gap_open
    assert record.duration_s == pytest.approx(exit_.duration_s)
    assert record.waited_s + record.held_s == pytest.approx(record.duration_s)
    assert client.seen.streams() == ()


async def leave(exit_: Exit, client: Client, clock: ManualClock) -> None:
    await exit_.leave(client, clock)
    await collect_garbage()


async def take(stream: Answer, count: int) -> None:
    for _ in range(count):
        await stream.__anext__()


async def collect_garbage() -> None:
    gc.collect()
    await asyncio.sleep(0)
    gc.collect()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_cancelled_while_waiting_counts_the_wait(kind: str) -> None:
    """The exception that cancels the caller's wait ends the stream as cancelled, with that wait as its open gap."""
    clock = ManualClock()
    client = a_client(kind, [*ANSWER[:3], (9, "cancel")], clock)

    with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
        asyncio.run(leave(Exit(exhausted, "", None), client, clock))

    record = client.seen.record
    assert (record.outcome, record.error_type) == ("cancelled", client.cancellation.__name__)
    assert (record.max_gap_s, record.max_gap_open) == (7.0, True)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("reason", "outcome", "error_type"), [("abort", "error", "abort"), ("stop", "completed", None)]
)
def test_cancelled_after_the_finish_is_what_the_finish_said(
    kind: str, reason: str, outcome: str, error_type: str | None
) -> None:
    """A server that gave up has failed, whatever the caller did in the tail."""
    clock = ManualClock()
    client = a_client(kind, [(1, role()), (2, text("a")), (3, finish(reason)), (9, "cancel")], clock)

    with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
        asyncio.run(leave(Exit(exhausted, "", None), client, clock))

    assert (client.seen.record.outcome, client.seen.record.error_type) == (outcome, error_type)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_raw_response_that_is_never_parsed_leaves_no_record(kind: str) -> None:
    """Without a stream there is nothing to follow, and nothing stays open."""
    clock = ManualClock()
    client = a_client(kind, ANSWER, clock)

    async def ask() -> None:
        raw = await client.raw()
        assert raw.status_code == 200
        del raw
        await collect_garbage()

    asyncio.run(ask())

    assert (client.seen.records, client.seen.streams()) == ([], ())


def test_table_of_exits_is_what_the_closing_of_a_stream_can_be() -> None:
    """The table reaches every outcome that a stream can have."""
    assert {exit_.outcome for exit_ in EXITS} | {"cancelled"} == {
        "completed", "no_finish", "left_early", "cancelled", "timeout", "error", "empty", "unread",
    }  # fmt: skip
