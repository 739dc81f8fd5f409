"""Freezes seen while they last, by the real watcher, over real sockets."""

from __future__ import annotations

import asyncio
import gc
import logging
import operator
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.wire import CUT, Script, WireServer
from openai import AsyncOpenAI, OpenAI

import midstream
from midstream._support import internal_errors
from midstream.testing import DONE, Collected, collect, finish, text
from support.harness import ASK, Answer, settled
from support.waiting import until

KINDS = pytest.mark.parametrize("kind", ["sync", "async"])
FROZEN: Script = [(0.1, text("a")), (0.2, text("b")), (1.4, text("c")), (1.4, finish()), (1.4, DONE)]


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer(FROZEN) as wire:
        yield wire


def real(kind: str, wire: WireServer, **settings: Any) -> tuple[Any, Collected]:
    sdk = OpenAI if kind == "sync" else AsyncOpenAI
    client = sdk(api_key="none", base_url=wire.base_url, max_retries=0)
    return client, collect(client, **{"freeze_after_s": 0.3, **settings})


async def read(client: Any) -> None:
    async for _ in Answer(await settled(client.chat.completions.create(**ASK, stream=True))):
        pass
    await settled(client.close())


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "midstream-watcher"]


@KINDS
def test_freeze_is_told_while_it_lasts(
    kind: str, server: WireServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Hook, log and roster know of the freeze before the chunk that ends it."""
    told: list[tuple[float, bool]] = []
    client, seen = real(
        kind, server, on_freeze=lambda _: told.append((time.monotonic(), midstream.streams()[0].frozen))
    )

    with caplog.at_level(logging.WARNING, logger="midstream"):
        asyncio.run(read(client))
    seen.flush()

    sent = server.exchanges[0].sent
    ((moment, frozen),) = told
    assert sent[1] + 0.25 < moment < sent[2]
    assert frozen
    froze, resumed = caplog.records
    server_name = server.base_url.removeprefix("http://").partition("/")[0]
    assert froze.getMessage() == (
        f"stream froze: no output from m at {server_name} for {seen.freezes[0].gap_s:.1f} s, in text (response c1)"
    )
    assert resumed.getMessage() == (
        f"stream resumed: output from m at {server_name} after {seen.thaws[0].gap_s:.1f} s, in text (response c1)"
    )
    event, gap_s, answer = operator.attrgetter("midstream_event", "gap_s", "response_id")(resumed)
    assert (event, gap_s, answer) == ("thaw", seen.thaws[0].gap_s, "c1")
    assert seen.freezes[0].gap_s == pytest.approx(0.3, abs=0.25)
    assert seen.thaws[0].gap_s == pytest.approx(1.2, abs=0.15)
    assert (seen.record.freezes, seen.record.outcome) == (1, "completed")
    assert seen.record.max_gap_s == pytest.approx(1.2, abs=0.15)


def test_watcher_is_one_daemon_that_ends_after_the_last_stream(server: WireServer) -> None:
    """Five streams at once have one watcher among them, and soon after the last one there is none."""
    client, seen = real("async", server)

    async def five() -> int:
        reading = [asyncio.ensure_future(read_one(client)) for _ in range(5)]
        await asyncio.to_thread(until, lambda: len(seen.streams()) == 5)
        alive = [thread.daemon for thread in watchers()]
        await asyncio.gather(*reading)
        await client.close()
        return alive.count(True)

    assert asyncio.run(five()) == 1
    until(lambda: not watchers())
    assert len(seen.records) == 5


async def read_one(client: Any) -> None:
    async for _ in await client.chat.completions.create(**ASK, stream=True):
        pass


def test_shorter_threshold_wakes_a_sleeping_watcher(server: WireServer) -> None:
    """A stream that may freeze soon is noticed in time, though the watcher sleeps for one that may freeze late."""
    client, _ = real("sync", server, freeze_after_s=3600)
    patient = client.chat.completions.create(**ASK, stream=True)
    next(patient)
    hasty = client.with_options()
    soon = collect(hasty, freeze_after_s=0.3)

    list(hasty.chat.completions.create(**ASK, stream=True))

    assert soon.freezes[0].gap_s == pytest.approx(0.3, abs=0.25)
    patient.close()
    client.close()


@KINDS
def test_dropped_stream_ends_by_itself(kind: str, server: WireServer) -> None:
    """Once it is collected, the watcher ends it; the event loop is not needed for that."""
    client, seen = real(kind, server)

    async def drop() -> None:
        stream = await settled(client.chat.completions.create(**ASK, stream=True))
        await Answer(stream).__anext__()
        await Answer(stream).__anext__()
        del stream
        gc.collect()

    asyncio.run(drop())
    gc.collect()
    until(lambda: len(seen.records) == 1)

    assert (seen.record.outcome, seen.record.chunks) == ("left_early", 2)
    assert seen.record.duration_s == pytest.approx(0.2, abs=0.15)


@KINDS
def test_hook_that_raises_changes_nothing(
    kind: str, server: WireServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream goes on, the other hooks are called, and one warning says whose hook it was."""

    def breaks(_: object) -> None:
        raise RuntimeError("the hook's own trouble")

    client, seen = real(kind, server, on_freeze=breaks, on_thaw=breaks, on_end=breaks)

    with caplog.at_level(logging.WARNING, logger="midstream"):
        asyncio.run(read(client))

    seen.flush()
    assert (len(seen.freezes), len(seen.thaws), seen.record.outcome) == (1, 1, "completed")
    (said,) = [r.getMessage() for r in caplog.records if "hook" in r.getMessage()]
    assert said.endswith("raised RuntimeError; the stream is unaffected")
    assert "own trouble" not in said


@KINDS
def test_hook_that_hangs_costs_the_caller_a_moment_at_most(kind: str, server: WireServer) -> None:
    """A hook that never returns delays no chunk and no end by more than a moment."""
    release = threading.Event()
    client, _ = real(kind, server, on_freeze=lambda _: release.wait(30))

    started = time.monotonic()
    asyncio.run(read(client))

    assert time.monotonic() - started < 1.4 + 1.0
    release.set()


def test_hook_may_stream_itself(server: WireServer) -> None:
    """A hook that uses the same client gets its answer, and its stream has a record of its own."""
    asked: list[int] = []

    def ask_again(_: object) -> None:
        if not asked:
            asked.append(1)
            list(client.chat.completions.create(**ASK, stream=True))

    client, seen = real("sync", server, on_end=ask_again)

    list(client.chat.completions.create(**ASK, stream=True))
    until(lambda: len(seen.records) == 2)
    client.close()


@KINDS
@pytest.mark.parametrize("end", ["timeout", "cut", "cancel"])
def test_freeze_that_ends_in_failure_keeps_its_wait(kind: str, end: str) -> None:
    """The wait that no chunk ended is the longest gap, and it is marked as open."""
    script: Script = [(0.05, text("a")), (0.1, text("b")), (0.9 if end == "cut" else 30.0, CUT)]
    with WireServer(script) as wire:
        client, seen = real(kind, wire)
        client = client.with_options(timeout=0.8) if end == "timeout" else client

        async def attempt() -> None:
            if end == "cancel":
                await asyncio.wait_for(read(client), 0.9)
            else:
                await read(client)

        if end == "cancel" and kind == "sync":
            pytest.skip("nothing can cancel a thread that waits; the manual clock's tests interrupt it")
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever this version of the SDK raises
            asyncio.run(attempt())
        seen.flush()

    outcome = {"timeout": "timeout", "cut": "error", "cancel": "cancelled"}[end]
    assert (seen.record.outcome, seen.record.max_gap_open, seen.record.freezes) == (outcome, True, 1)
    assert seen.record.max_gap_s == pytest.approx(0.8, abs=0.25)


def test_wait_for_around_anext_is_a_cancellation(server: WireServer) -> None:
    """Whoever puts `wait_for` around one `anext` cancels the stream; it does not count as complete."""
    client, seen = real("async", server)

    async def impatient() -> list[Any]:
        stream = await client.chat.completions.create(**ASK, stream=True)
        got = [await stream.__anext__(), await stream.__anext__()]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(stream.__anext__(), 0.4)
        with pytest.raises(StopAsyncIteration):
            await stream.__anext__()
        await client.close()
        return got

    assert len(asyncio.run(impatient())) == 2
    assert (seen.record.outcome, seen.record.max_gap_open) == ("cancelled", True)


def test_close_from_another_thread_leaves_the_waiting_stream_open() -> None:
    """Closing does not wake a blocked read, so the stream stays open, and frozen, until the read really ends."""
    with WireServer([(0.05, text("a")), (0.1, text("b")), (1.5, text("c"))]) as wire:
        client, seen = real("sync", wire)
        stream = client.chat.completions.create(**ASK, stream=True)
        states: list[tuple[int, bool]] = []

        def close() -> None:
            stream.close()
            states.extend((len(seen.records), view.frozen) for view in seen.streams())

        closing = threading.Timer(0.9, close)
        closing.start()
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever this version of the SDK raises
            list(stream)
        closing.join()
        client.close()

    assert states == [(0, True)]
    assert (seen.record.outcome, seen.record.freezes) == ("error", 1)


def test_one_client_shared_by_many_threads(server: WireServer) -> None:
    """Twenty threads on one client: twenty records, none mixed up."""
    client, seen = real("sync", server, freeze_after_s=0.5)
    threads = [
        threading.Thread(target=lambda: list(client.chat.completions.create(**ASK, stream=True)))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: len(seen.records) == 20)
    client.close()

    assert {(r.outcome, r.chunks, r.freezes) for r in seen.records} == {("completed", 4, 1)}
    assert seen.streams() == ()


def test_stream_made_in_one_thread_and_read_in_another(server: WireServer) -> None:
    """Nothing of ours belongs to a thread."""
    client, seen = real("sync", server)
    stream = client.chat.completions.create(**ASK, stream=True)

    reader = threading.Thread(target=lambda: list(stream))
    reader.start()
    reader.join()
    client.close()

    assert (seen.record.outcome, seen.record.chunks) == ("completed", 4)


def test_second_reader_of_a_waiting_stream_gets_the_sdks_own_error(server: WireServer) -> None:
    """Two threads in one generator is the caller's mistake; the first reader's record is not spoilt by it."""
    client, seen = real("sync", server)
    stream = client.chat.completions.create(**ASK, stream=True)
    next(stream), next(stream)
    raised: list[str] = []

    def intrude() -> None:
        try:
            next(stream)
        except ValueError as exc:
            raised.append(str(exc))

    intruder = threading.Timer(0.3, intrude)
    intruder.start()
    rest = list(stream)
    intruder.join()
    client.close()

    assert (len(rest), raised) == (2, ["generator already executing"])
    assert (seen.record.outcome, seen.record.chunks) == ("completed", 4)


def script(body: str) -> str:
    return f"import sys; sys.path[:0] = {sys.path!r}\n{body}"


def run(body: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script(body), *args], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_exit_with_streams_open_leaves_a_record_and_no_traceback(server: WireServer) -> None:
    """The interpreter's exit ends what is open, hooks hear of it, and standard error stays empty."""
    out = run(
        """
import logging; logging.disable()
from openai import OpenAI
from midstream import monitor
client = monitor(OpenAI(api_key="none", base_url=sys.argv[1]), on_end=lambda r: print(r.outcome, r.chunks, flush=True))
stream = client.chat.completions.create(model="m", messages=[], stream=True)
next(stream), next(stream)
""",
        server.base_url,
    )
    assert out == "left_early 2\n"


def test_record_of_a_stream_just_finished_survives_the_exit(server: WireServer) -> None:
    """A script that ends right after its only stream still reports it."""
    out = run(
        """
from openai import OpenAI
from midstream import monitor
client = monitor(OpenAI(api_key="none", base_url=sys.argv[1]), on_end=lambda r: print(r.outcome, flush=True))
list(client.chat.completions.create(model="m", messages=[], stream=True))
""",
        server.base_url,
    )
    assert out == "completed\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_child_starts_with_an_empty_roster_and_its_own_watcher(server: WireServer) -> None:
    """After a fork in mid-stream the parent keeps its stream, and the child follows its own, freezes included."""
    out = run(
        """
import os, warnings; warnings.simplefilter("ignore")
import logging; logging.disable()
from openai import OpenAI
import midstream
def client(name):
    return midstream.monitor(OpenAI(api_key="none", base_url=sys.argv[1]), freeze_after_s=0.3,
        on_freeze=lambda f: print(name, "froze", flush=True),
        on_end=lambda r: print(name, r.outcome, r.chunks, flush=True))
ours = client("parent")
stream = ours.chat.completions.create(model="m", messages=[], stream=True)
next(stream)
child = os.fork()
if child == 0:
    print("child", len(midstream.streams()), flush=True)
    list(client("child").chat.completions.create(model="m", messages=[], stream=True))
    os._exit(0)
os.waitpid(child, 0)
list(stream)
""",
        server.base_url,
    )
    lines = out.splitlines()
    assert [line for line in lines if line.startswith("child")] == [
        "child 0",
        "child froze",
        "child completed 4",
    ]
    assert "parent completed 4" in lines
    assert "parent froze" not in lines or lines.count("parent froze") == 1


def test_failure_of_ours_is_logged_once_and_stays_ours(
    server: WireServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In production a fault of the monitor is one warning for each part; the caller's stream does not know of it."""
    monkeypatch.setattr(internal_errors, "RAISE", False)
    client, seen = real("sync", server)
    monkeypatch.setattr(seen.process, "clock", None)  # whatever is broken inside us

    with caplog.at_level(logging.WARNING, logger="midstream"):
        assert len(list(client.chat.completions.create(**ASK, stream=True))) == 4
        assert len(list(client.chat.completions.create(**ASK, stream=True))) == 4

    assert [r.getMessage() for r in caplog.records] == [
        "the request failed with TypeError; your stream is unaffected",
        "the stream failed with TypeError; your stream is unaffected",
    ]
    client.close()


def test_hooks_thread_ends_with_the_streams_of_its_own_monitor(server: WireServer) -> None:
    """A monitor that has nothing to do any more has no thread, though others still stream."""
    client, _ = real("sync", server)
    others = client.chat.completions.create(**ASK, stream=True)
    next(others)
    for _ in range(5):
        collect(one := client.with_options())
        one.chat.completions.create(**ASK, stream=True).close()

    until(lambda: [thread.name for thread in threading.enumerate()].count("midstream-hooks") == 1)
    others.close()
    client.close()
