"""When the stall timeout ends a read, on a clock that is moved by hand; and when it must not."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from textwrap import dedent
from typing import Any

import pytest
from benchmarks.wire import WireServer
from openai import AsyncOpenAI, OpenAI

from midstream import StreamStalled, monitor
from midstream.runtime.monitor import Monitor, Process
from midstream.runtime.settings import Settings, settings_from
from midstream.runtime.stall import CallEnd, StepEnd
from midstream.runtime.tracker import Tracker
from midstream.stream.chunks import NOTHING, REASONING, TEXT, TOOL_CALL, Reading
from midstream.stream.model import Call
from midstream.stream.phases import PhaseSeconds, StallLimits
from midstream.testing import DONE, PING, ManualClock, collect, finish, text
from support.harness import ASK

FINISHED = Reading(finishes=((0, "stop"),))


class Noted:
    """A way to end a read that notes when it was asked to."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.at: list[float] = []
        self.has_ended = False

    def end(self, same_wait: Callable[[], bool]) -> bool:
        assert same_wait()
        self.at.append(self.clock())
        self.has_ended = True
        return True


def a_stream(**settings: Any) -> tuple[ManualClock, Tracker, Noted]:
    clock = ManualClock(100.0)
    process = Process(clock, clock, threaded=False)
    clock.watch(process.roster.check)
    monitor = Monitor(Settings(**settings), process)
    noted = Noted(clock)
    call = Call("chat", "", "server", 80, "m", clock(), clock())
    return clock, monitor.open(call, None, end=noted), noted


def asks(tracker: Tracker, clock: ManualClock) -> None:
    tracker.session.begin_wait(clock())


def gets(tracker: Tracker, clock: ManualClock, after_s: float, reading: Reading) -> None:
    asks(tracker, clock)
    clock.advance(after_s)
    tracker.read(None, lambda _: reading, clock())


BY_PHASE = {"text": 30, "reasoning": 300}


@pytest.mark.parametrize(
    ("limit", "reading", "ended_at"),
    [
        (30, TEXT, 131.0),
        (30, REASONING, 131.0),
        (BY_PHASE, TEXT, 131.0),
        (BY_PHASE, REASONING, 401.0),
        (BY_PHASE, TOOL_CALL, None),
        (None, TEXT, None),
    ],
)
def test_read_is_ended_when_the_gap_reaches_the_limit_of_its_phase(
    limit: Any, reading: Reading, ended_at: float | None
) -> None:
    """A phase that is left out has no limit."""
    clock, tracker, noted = a_stream(stall_timeout_s=limit, first_content_timeout_s=3600)
    gets(tracker, clock, 1.0, reading)
    asks(tracker, clock)

    clock.advance(1000.0)

    assert noted.at == ([] if ended_at is None else [pytest.approx(ended_at, abs=0.06)])


def test_keep_alives_do_not_reset_it() -> None:
    """The gap goes on through whatever carries no output."""
    clock, tracker, noted = a_stream(stall_timeout_s=30)
    gets(tracker, clock, 1.0, TEXT)
    for _ in range(12):
        gets(tracker, clock, 2.0, NOTHING)
        asks(tracker, clock)
        clock.advance(1.0)
        tracker.on_partial_chunk(clock())

    assert noted.at == [pytest.approx(131.0, abs=0.06)]


def test_caller_who_is_busy_is_not_ended() -> None:
    """What the caller holds is no gap, and it adds nothing to the wait that follows."""
    clock, tracker, noted = a_stream(stall_timeout_s=30, first_content_timeout_s=20)
    clock.advance(100.0)
    gets(tracker, clock, 19.0, TEXT)
    clock.advance(100.0)
    gets(tracker, clock, 29.0, TEXT)
    clock.advance(100.0)
    gets(tracker, clock, 29.0, TEXT)

    assert noted.at == []


def test_wait_after_the_finish_is_not_ended() -> None:
    """A lingering connection is the tail."""
    clock, tracker, noted = a_stream(stall_timeout_s=30, first_content_timeout_s=20)
    gets(tracker, clock, 1.0, TEXT)
    gets(tracker, clock, 1.0, FINISHED)
    asks(tracker, clock)

    clock.advance(1000.0)

    assert noted.at == []


def test_first_output_has_until_the_limit_from_the_call() -> None:
    """An empty first chunk changes nothing; after the first output the limit means nothing."""
    clock, tracker, noted = a_stream(first_content_timeout_s=20)
    gets(tracker, clock, 5.0, NOTHING)
    asks(tracker, clock)
    clock.advance(100.0)
    assert noted.at == [pytest.approx(120.0, abs=0.06)]

    clock, tracker, noted = a_stream(first_content_timeout_s=20)
    gets(tracker, clock, 19.0, TEXT)
    asks(tracker, clock)
    clock.advance(100.0)
    assert noted.at == []


def test_output_at_the_last_moment_is_kept_and_the_end_of_the_data_is_no_error_then() -> None:
    """Where the finish has come, the answer is complete, whatever was done to the connection."""
    clock, tracker, noted = a_stream(stall_timeout_s=30)
    gets(tracker, clock, 1.0, TEXT)
    asks(tracker, clock)
    clock.advance(31.0)
    assert len(noted.at) == 1
    tracker.read(None, lambda _: FINISHED, clock())
    asks(tracker, clock)

    tracker.exhausted(clock())  # raises nothing

    assert tracker.session.ended


@pytest.mark.parametrize("exc", [None, ConnectionError("reset"), KeyboardInterrupt()])
def test_what_ends_the_read_becomes_the_exception(exc: BaseException | None) -> None:
    """The end of the data and errors do; an interrupt of the caller's stays what it is."""
    clock, tracker, _ = a_stream(stall_timeout_s=30)
    gets(tracker, clock, 1.0, TEXT)
    asks(tracker, clock)
    clock.advance(31.0)

    if isinstance(exc, KeyboardInterrupt):
        tracker.failed(exc, clock())
        return
    with pytest.raises(StreamStalled, match="no output from m at server for 30"):
        if exc is None:
            tracker.exhausted(clock())
        else:
            tracker.failed(exc, clock())


def test_released_connection_is_not_touched() -> None:
    """After the response was closed the connection may serve another request."""
    clock, tracker, noted = a_stream(stall_timeout_s=30)
    gets(tracker, clock, 1.0, TEXT)
    asks(tracker, clock)
    tracker.release()

    clock.advance(1000.0)

    assert noted.at == []


# Real sockets

STEADY = [
    (0.1, text("a")),
    *[(0.2 + 0.1 * number, text("b")) for number in range(20)],
    (2.3, finish()),
    (2.3, DONE),
]


def test_blocked_loop_is_not_ended() -> None:
    """A loop that is blocked for longer than the limit, while the server sends: nothing is ended."""

    async def blocking() -> int:
        async with AsyncOpenAI(api_key="none", base_url=server.base_url) as client:
            seen.monitor(client)
            count = 0
            async for _ in await client.chat.completions.create(**ASK, stream=True):
                count += 1
                if count == 3:
                    asyncio.get_running_loop().call_later(0.02, time.sleep, 0.9)
            return count

    with WireServer(STEADY) as server:
        seen = collect(stall_timeout_s=0.4)
        assert asyncio.run(blocking()) == 22

    assert (seen.record.outcome, seen.record.error_type) == ("completed", None)


class Steps:
    """An async iterator of unknown make. The last step waits for longer than the limit."""

    def __init__(self) -> None:
        self.left = asyncio.Queue[str]()
        self.left.put_nowait("a")
        self.left.put_nowait("b")

    def __aiter__(self) -> Steps:
        return self

    async def __anext__(self) -> str:
        item = await self.left.get()
        if not item:
            raise StopAsyncIteration
        return item


@pytest.mark.parametrize("blocked_s", [0.0, 0.5])
def test_output_that_is_there_when_the_loop_gets_to_the_end_is_delivered(blocked_s: float) -> None:
    """The loop is blocked when the limit is reached, with data to read: neither a timeout nor a cancellation."""

    async def reading() -> list[str]:
        mine, servers = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=mine)
        loop = asyncio.get_running_loop()

        async def answer() -> AsyncIterator[str]:
            while piece := await reader.read(1):
                yield piece.decode()

        def block() -> None:
            time.sleep(blocked_s / 2)
            servers.sendall(b"c")
            time.sleep(blocked_s / 2)
            servers.shutdown(socket.SHUT_WR)

        servers.sendall(b"a")
        loop.call_later(0.05, servers.sendall, b"b")
        loop.call_later(0.27, block)  # just before the limit, so that the loop is not known to be blocked
        with servers:
            pieces = [piece async for piece in monitor(answer(), stall_timeout_s=0.3)]
        writer.close()
        return pieces

    assert asyncio.run(reading()) == ["a", "b", "c"]


def test_so_is_output_of_a_connection_that_the_kernel_does_not_describe() -> None:
    """Compressed data has no wire clock: whether it had come is known only once the loop has read."""

    async def reading() -> int:
        async with AsyncOpenAI(api_key="none", base_url=server.base_url) as client:
            seen.monitor(client)
            count = 0
            async for _ in await client.chat.completions.create(**ASK, stream=True):
                count += 1
                if count == 2:
                    asyncio.get_running_loop().call_later(0.27, time.sleep, 0.4)
            return count

    script = [
        (0.02, text("a")),
        (0.04, text("b")),
        (0.32, text("c")),
        (0.5, text("d")),
        (0.7, finish()),
        (0.9, DONE),
    ]
    encoded = "text/event-stream\r\ncontent-encoding: x-plain"  # an encoding that httpx passes through
    with WireServer(script, content_type=encoded) as server:
        seen = collect(stall_timeout_s=0.3)
        assert asyncio.run(reading()) == 5

    assert (seen.record.outcome, seen.record.error_type) == ("completed", None)


def test_cancellation_that_the_task_survived_before_does_not_hide_the_timeout() -> None:
    """A task that was cancelled earlier and went on gets the timeout, not another cancellation."""

    async def reading() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            with pytest.raises(StreamStalled):
                [item async for item in monitor(Steps(), stall_timeout_s=0.1)]

    async def survive() -> None:
        task = asyncio.create_task(reading())
        await asyncio.sleep(0)
        task.cancel()
        await task

    asyncio.run(survive())


@pytest.mark.parametrize("kind", ["step", "call"])
def test_end_that_is_asked_for_twice_ends_once(kind: str) -> None:
    """A blocked loop gets to several of them at once."""
    calls: list[str] = []

    async def reading() -> bool:
        loop = asyncio.get_running_loop()
        step, call = StepEnd(loop), CallEnd(lambda: calls.append("ended"), loop)
        end = step if kind == "step" else call
        step.begin()
        assert [end.end(lambda: True) for _ in range(3)] == [True] * 3
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            calls.append("ended")
        return end.has_ended

    assert asyncio.run(reading())
    assert calls == ["ended"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGSTOP")
def test_process_that_stood_still_is_not_ended() -> None:
    """A process that was stopped for longer than the limit reads on."""
    program = """
        import sys
        from openai import OpenAI
        from midstream import monitor
        client = monitor(OpenAI(api_key="none", base_url=sys.argv[1]), stall_timeout_s=0.8, freeze_after_s=60)
        answer = client.chat.completions.create(model="m", messages=[], stream=True)
        for chunk in answer:
            print(len(chunk.choices[0].delta.content or ""), flush=True)
    """
    script = [(0.1, text("a")), (0.2, text("bb")), (1.9, text("ccc")), (1.9, finish()), (1.9, DONE)]
    with WireServer(script) as server:
        command = [sys.executable, "-c", dedent(program), server.base_url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert [child.stdout.readline() for _ in range(2)] == ["1\n", "2\n"]
            os.kill(child.pid, signal.SIGSTOP)
            time.sleep(1.3)  # the stop is what is tested
            os.kill(child.pid, signal.SIGCONT)
            rest = child.stdout.read()

    assert (rest, child.returncode) == ("3\n0\n", 0)


def test_freeze_and_timeout_are_one_gap(caplog: pytest.LogCaptureFixture) -> None:
    """A stream may freeze first: it is one freeze, open at the end, and the log has a line for each."""
    with (
        WireServer(
            [(0.05, text("a")), (0.1, text("b")), *[(0.1 + i / 10, PING) for i in range(100)]]
        ) as server,
        OpenAI(api_key="none", base_url=server.base_url) as client,
    ):
        seen = collect(client, freeze_after_s=0.2, stall_timeout_s=0.6)
        with pytest.raises(StreamStalled):
            list(client.chat.completions.create(**ASK, stream=True))

    record = seen.record
    assert (record.freezes, record.max_gap_open, record.error_type) == (1, True, "stall_timeout")
    assert record.frozen_s == pytest.approx(record.max_gap_s or 0.0)
    events = [line.midstream_event for line in caplog.records if hasattr(line, "midstream_event")]
    assert events == ["freeze", "end", "stall_timeout"]


def test_freeze_threshold_is_that_of_the_phase(caplog: pytest.LogCaptureFixture) -> None:
    """A pause of a minute in reasoning is no freeze under thresholds by phase; one of 6 s in text is."""
    clock, tracker, _ = a_stream(freeze_after_s={"text": 5, "reasoning": 300})
    gets(tracker, clock, 1.0, REASONING)
    gets(tracker, clock, 60.0, REASONING)
    gets(tracker, clock, 60.0, TEXT)
    assert tracker.session.freezes == 0
    gets(tracker, clock, 6.0, TEXT)
    assert tracker.session.freezes == 1
    gets(tracker, clock, 1.0, REASONING)
    asks(tracker, clock)
    clock.advance(299.0)
    assert tracker.session.freezes == 1
    clock.advance(2.0)
    assert tracker.session.freezes == 2

    said = [(line.midstream_event, line.phase, line.freeze_after_s) for line in caplog.records]  # type: ignore[attr-defined]
    assert said == [("freeze", "text", 5.0), ("thaw", "text", 5.0), ("freeze", "reasoning", 300.0)]


@pytest.mark.parametrize("name", ["freeze_after_s", "stall_timeout_s"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"thinking": 5}, "may have a number for each of text, reasoning, tool_call, got 'thinking'"),
        ({}, "may have a number for each of text, reasoning, tool_call, got an empty mapping"),
        ({"text": -1}, r"\['text'\] must be a positive number of seconds, got -1"),
        ("5", "must be a number of seconds, a mapping by phase or None, got '5'"),
        (True, "must be a number of seconds, a mapping by phase or None, got True"),
    ],
)
def test_setting_that_is_none_is_named(name: str, value: Any, message: str) -> None:
    """One sentence with the value and the remedy."""
    with pytest.raises((TypeError, ValueError), match=f"{name}.*{message}|{name}{message}"):
        Settings(**{name: value})


def test_variables_take_numbers_by_phase() -> None:
    """And a phase that is left out keeps the default."""
    environ = {
        "MIDSTREAM_FREEZE_AFTER_S": "reasoning=60",
        "MIDSTREAM_STALL_TIMEOUT_S": "text=30,reasoning=300",
        "MIDSTREAM_FIRST_CONTENT_TIMEOUT_S": "90",
    }
    settings = settings_from(environ, {})

    assert settings.freeze_limits == PhaseSeconds(text=5.0, reasoning=60.0, tool_call=5.0)
    assert settings.stall_limits == StallLimits(PhaseSeconds(30.0, 300.0, None), 90.0)
    with pytest.raises(ValueError, match="MIDSTREAM_STALL_TIMEOUT_S must look like '30' or 'text=30"):
        settings_from({"MIDSTREAM_STALL_TIMEOUT_S": "thinking=5"}, {})
