"""Whose silence it was: over real sockets with the truth beside them, and by hand where a machine must not sleep."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import pytest
from benchmarks.wire import Script, WireServer
from openai import AsyncOpenAI, OpenAI

from midstream.attribution.event_loop_lag import BEAT_S, heartbeat
from midstream.attribution.rule import Attribution
from midstream.attribution.shared_freezes import shared
from midstream.stream.chunks import TEXT
from midstream.stream.freezes import suspect
from midstream.stream.model import Call
from midstream.stream.session import Session
from midstream.testing import DONE, PING, Collected, ManualClock, collect, finish, text, usage
from support.harness import ASK, a_client
from support.waiting import until

KINDS = pytest.mark.parametrize("kind", ["sync", "async"])
BEFORE: Script = [(0.05 * n, text("word ")) for n in range(1, 11)]
AFTER: Script = [(1.5 + 0.05 * n, text("word ")) for n in range(1, 21)]
END: Script = [(2.6, finish()), (2.6, DONE)]
FROZEN: Script = [*BEFORE, *AFTER, *END]  # silent from 0.5 s to 1.55 s
SMOOTH: Script = [(0.05 * n, text("word ")) for n in range(1, 31)] + [(1.6, finish()), (1.6, DONE)]


def stream_over(
    kind: str, script: Script, busy: dict[int, float], block: tuple[float, float] | None = None
) -> Collected:
    """Read `script` from a real server; the caller is busy for so many seconds after his n-th chunk."""
    with WireServer(script) as wire:
        client: Any = (OpenAI if kind == "sync" else AsyncOpenAI)(api_key="none", base_url=wire.base_url)
        seen = collect(client, freeze_after_s=0.6)

        def read() -> None:
            for number, _ in enumerate(client.chat.completions.create(**ASK, stream=True), 1):
                time.sleep(busy.get(number, busy.get(0, 0.0)))  # the caller's own work
            client.close()

        async def aread() -> None:
            if block is not None:
                asyncio.get_running_loop().call_later(block[0], time.sleep, block[1])
            number = 0
            async for _ in await client.chat.completions.create(**ASK, stream=True):
                number += 1
                await asyncio.sleep(busy.get(number, busy.get(0, 0.0)))
            await client.close()

        if kind == "sync":
            read()
        else:
            asyncio.run(aread())
        seen.flush()
        return seen


@KINDS
def test_freeze_while_the_caller_is_busy_is_hidden_and_measured(kind: str) -> None:
    """The caller never waits for it, so it is no gap of his; the connection shows it in full."""
    seen = stream_over(kind, FROZEN, {10: 1.4})

    record = seen.record
    assert record.max_gap_s == pytest.approx(0.05, abs=0.15)
    assert record.wire_gap_s == pytest.approx(1.05, abs=0.15)
    assert (record.freezes, record.hidden) == (0, 1)
    (freeze,) = seen.freezes
    assert freeze.hidden
    assert freeze.gap_s == pytest.approx(1.05, abs=0.2)


@KINDS
def test_freeze_behind_a_slow_consumer_is_found(kind: str) -> None:
    """A caller who takes a chunk every 0.1 s is always behind, and waits for nothing."""
    record = stream_over(kind, FROZEN, {0: 0.1}).record

    assert record.freezes == 0
    assert record.wire_gap_s == pytest.approx(1.05, abs=0.15)
    assert record.hidden == 1


@KINDS
def test_slow_consumer_of_a_smooth_server_sees_no_freeze(kind: str) -> None:
    """The caller's own time is a hold and no gap, on the wire neither."""
    record = stream_over(kind, SMOOTH, {0: 0.08, 5: 1.0}).record

    assert (record.freezes, record.hidden) == (0, 0)
    assert record.max_hold_s == pytest.approx(1.0, abs=0.25)
    assert record.max_gap_s == pytest.approx(0, abs=0.3)
    assert record.wire_gap_s == pytest.approx(0, abs=0.5)


@pytest.mark.parametrize("block", [(0.3, 1.0), (0.1, 1.4)])
def test_blocked_loop_is_no_freeze(block: tuple[float, float]) -> None:
    """Chunks came all the while; the loop was not there to take them."""
    record = stream_over("async", SMOOTH, {}, block).record

    assert (record.freezes, record.hidden) == (0, 0)
    assert record.max_gap_s == pytest.approx(0, abs=0.4)
    assert record.loop_blocked_s == pytest.approx(block[1], abs=0.4)


def test_sync_stream_read_on_a_loops_thread_keeps_its_freeze() -> None:
    """A notebook does so: the wait for the server blocks the loop, and is the server's silence all the same."""
    with WireServer(FROZEN) as wire:
        client = OpenAI(api_key="none", base_url=wire.base_url)
        seen = collect(client, freeze_after_s=0.6)

        async def read() -> None:
            for _ in client.chat.completions.create(**ASK, stream=True):
                await asyncio.sleep(0)
            client.close()

        asyncio.run(read())
        seen.flush()

    assert seen.record.max_gap_s == pytest.approx(1.05, abs=0.15)
    assert (seen.record.freezes, seen.record.hidden, seen.record.loop_blocked_s) == (1, 0, 0.0)


def test_loop_that_blocks_in_the_middle_of_a_silence_takes_nothing_off() -> None:
    """When it came back there was still nothing to read, so the server was silent throughout."""
    record = stream_over("async", FROZEN, {}, (0.8, 0.5)).record

    assert record.max_gap_s == pytest.approx(1.05, abs=0.15)
    assert record.freezes == 1


@KINDS
def test_comments_end_no_freeze(kind: str) -> None:
    """Keep-alives arrive, and the answer stands still all the same."""
    comments: Script = [(0.5 + 0.2 * n, PING) for n in range(1, 5)]
    record = stream_over(kind, [*BEFORE, *comments, *AFTER, *END], {}).record

    assert (record.freezes, record.hidden) == (1, 0)
    assert record.max_gap_s == pytest.approx(1.05, abs=0.15)
    assert record.wire_gap_s == pytest.approx(1.05, abs=0.15)


@KINDS
def test_thread_that_hogs_the_interpreter_is_no_freeze(kind: str) -> None:
    """A busy thread beside the stream delays chunks a little; nobody calls that a silence of the server."""
    stop = threading.Event()
    hog = threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(stop.is_set, True)])
    hog.start()
    try:
        record = stream_over(kind, SMOOTH, {}).record
    finally:
        stop.set()
        hog.join()

    assert (record.freezes, record.hidden) == (0, 0)


def test_scripted_transport_has_no_wire_clock() -> None:
    """Without a socket the field is absent, and never guessed."""
    client = a_client("sync", FROZEN, ManualClock())
    list(client.sdk.chat.completions.create(**ASK, stream=True))

    assert client.seen.record.wire_gap_s is None


# The heartbeat


def test_heartbeat_notices_a_blocked_loop_and_leaves_nothing_behind() -> None:
    """It tells since when the loop was blocked; with the last stream its timer is gone."""

    async def beat() -> tuple[float | None, float, int]:
        pulse = heartbeat(time.monotonic)
        assert pulse is not None
        await asyncio.sleep(3 * BEAT_S)
        assert pulse.busy_since(time.monotonic()) is None
        blocked_from = time.monotonic()
        time.sleep(0.3)  # noqa: ASYNC251 - the block
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        since = pulse.busy_since(time.monotonic())
        pulse.leave()
        gc.collect()
        loop: Any = asyncio.get_running_loop()
        timers = [handle for handle in loop._scheduled if not handle.cancelled()]
        return since, blocked_from, len(timers)

    since, blocked_from, timers = asyncio.run(beat())
    assert since is not None
    assert blocked_from - 2 * BEAT_S <= since <= blocked_from + BEAT_S
    assert timers == 0


def test_heartbeat_keeps_no_loop_alive() -> None:
    """A loop that has nothing else to do ends, with a stream left open on it."""

    async def leave_open() -> None:
        assert heartbeat(time.monotonic) is not None

    started = time.monotonic()
    asyncio.run(leave_open())
    assert time.monotonic() - started < 2


def test_without_an_event_loop_there_is_no_heartbeat() -> None:
    """A sync caller has no loop that could be blocked."""
    assert heartbeat(time.monotonic) is None


# Clocks


@KINDS
@pytest.mark.parametrize(("jump", "expected"), [(3600.0, 3600.0), (-120.0, -120.0), (0.5, None)])
def test_wall_clock_that_jumps_makes_no_gap(kind: str, jump: float, expected: float | None) -> None:
    """Durations are monotonic; that wall time ran away from them, by sleep or by a setting, is said in the record."""
    clock = ManualClock()
    client = a_client(kind, [(1, text("a")), (1.05, text("b")), (1.1, finish()), (1.1, DONE)], clock)
    wall = [0.0]
    client.seen.process.wall = lambda: clock() + wall[0]

    async def read() -> None:
        async for _ in await client.create():
            wall[0] = jump

    asyncio.run(read())
    record = client.seen.record
    assert record.max_gap_s == pytest.approx(0.05)
    assert record.clock_jump_s == (None if expected is None else pytest.approx(expected))
    assert record.freezes == 0


def test_process_that_stood_still_saw_no_freeze() -> None:
    """The watcher was due and did not run either: for that hour it was we who stood still, and the record says so."""
    clock = ManualClock()
    session = Session(Call("chat", "openai", "h", 1, "m", 0.0, 0.0), 0.0, 5.0)
    attribution = Attribution(5.0, stalled_since=lambda now: 2.0 if now > 3000 else None)
    for moment in (0.5, 1.0):
        session.wait_from = clock()
        clock.advance_to(moment)
        session.chunk(TEXT, clock())
    session.wait_from = clock()
    clock.advance_to(3601)

    assert not attribution.is_server_silent(session, clock())
    assert session.chunk(TEXT, clock(), attribution.blocked_seconds(session, clock())) is None
    assert (session.freezes, session.max_gap, session.stood_still) == (0, 1.0, 3599.0)


# The group, and what the tokens tell


def at_gap(gap: float, server: str = "a", *, tail: bool = False) -> Session:
    session = Session(Call("chat", "openai", server, 1, "m", 0.0, 0.0), 0.0, 5.0)
    session.wait_from = 0.0
    session.chunk(TEXT, 100.0 - gap)
    session.in_tail = tail
    session.wait_from = 100.0 - gap
    return session


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], False),
        ([at_gap(5.0), at_gap(4.5)], True),
        ([at_gap(0.1), at_gap(5.0)], False),
        ([at_gap(0.1, "b"), at_gap(0.1, "b")], False),
        ([at_gap(0.1, "b"), at_gap(5.1)], True),
        ([at_gap(0.1, tail=True), at_gap(5.1)], True),
        ([at_gap(0.1)] + [at_gap(5.0)] * 4, True),
    ],
    ids=[
        "alone",
        "all together",
        "one goes on",
        "other servers only",
        "other server goes on",
        "one is done",
        "most",
    ],
)
def test_freeze_is_shared_if_the_servers_other_streams_are_silent(
    others: list[Session], expected: bool
) -> None:
    """Streams of the same server in mid-answer tell the engine's silence from one stream's."""
    session = at_gap(5.0)

    assert shared(session, [session, *others], 100.0) is expected


@pytest.mark.parametrize(
    ("before", "after", "pace", "expected"),
    [
        (50, 51, 0.02, "stall"),
        (50, 52, 0.02, "stall"),
        (50, 350, 0.02, "withheld"),
        (50, 60, 0.02, "unknown"),
        (50, 60, None, "withheld"),
        (50, None, 0.02, "unknown"),
    ],
)
def test_tokens_after_a_silence_tell_what_it_was(
    before: int, after: int | None, pace: float | None, expected: str
) -> None:
    """One token after six seconds: nothing was made. Three hundred: they were made and held back."""
    assert suspect(6.0, before, after, pace) == expected


@KINDS
@pytest.mark.parametrize(("jump", "expected"), [(1, "stall"), (300, "withheld")])
def test_record_tells_a_stall_from_withheld_output(kind: str, jump: int, expected: str) -> None:
    """Where usage comes with every chunk, the longest gap says what it was."""

    def counted(tokens: int) -> str:
        return text("x", usage={"prompt_tokens": 5, "completion_tokens": tokens})

    script: Script = [(0.02 * n, counted(n)) for n in range(1, 51)]
    script = [*script, (7.0, counted(50 + jump)), (7.0, finish()), (7.0, usage(5, 50 + jump))]
    client = a_client(kind, script, ManualClock())

    async def read() -> None:
        async for _ in await client.create():
            pass

    asyncio.run(read())
    assert client.seen.record.suspected == expected
    assert client.seen.thaws[0].suspected == expected


def test_two_streams_that_freeze_together_say_so() -> None:
    """Their hooks and their records tell that the server was silent for both."""
    with WireServer(
        [(0.05, text("a")), (0.1, text("b")), (1.3, text("c")), (1.3, finish()), (1.3, DONE)]
    ) as wire:
        client = OpenAI(api_key="none", base_url=wire.base_url)
        seen = collect(client, freeze_after_s=0.5)
        readers = [
            threading.Thread(target=lambda: list(client.chat.completions.create(**ASK, stream=True)))
            for _ in range(3)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        until(lambda: len(seen.records) == 3)
        client.close()

    assert [record.shared for record in seen.records] == [1, 1, 1]
    assert all(freeze.shared for freeze in seen.freezes)
