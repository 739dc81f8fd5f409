"""What breaks around a program, and what its streams see of that: nothing. docs/faults.md names each test."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from benchmarks.wire import WireServer
from openai import OpenAI
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from midstream import monitor
from midstream._support import internal_errors
from midstream.journal import Journal, flush, read_records
from midstream.runtime.hooks import LONGEST_QUEUE, HookRunner
from midstream.testing import DONE, ManualClock, collect, finish, scripted, text
from support.harness import ASK
from support.paths import ROOT
from support.records import a_record
from support.waiting import until

DAY_S = 86_400.0
SCRIPT = [(0.0, text("a")), (0.1, text("b")), (0.9, text("c")), (1.0, finish()), (1.0, DONE)]

FREEZES = ("midstream: stream froze", "midstream: stream resumed", "midstream: stream ended while frozen")
"""How the lines about freezes begin."""


@pytest.fixture(scope="module")
def server() -> Iterator[WireServer]:
    with WireServer(SCRIPT) as running:
        yield running


def child(body: str, *args: str, **env: str) -> tuple[list[Any], list[str], float]:
    """Run a program on its own: the JSON lines that it printed, its standard error, how long its exit took."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MIDSTREAM_"))}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{body}", *args],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**own, **env},
    )
    over = time.monotonic()
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return told, done.stderr.splitlines(), over - next(told_["at"] for told_ in told if "at" in told_)


STREAMS = """
import json, time
from openai import OpenAI
import midstream

def say(**what): print(json.dumps(what), flush=True)

def read(client):
    began = time.monotonic()
    seen = [chunk.choices[0].delta.content or "" for chunk in
            client.chat.completions.create(model="m", messages=[], stream=True)]
    return "".join(seen), time.monotonic() - began

records = []
bare = OpenAI(api_key="none", base_url=sys.argv[1])
ours = midstream.monitor(OpenAI(api_key="none", base_url=sys.argv[1]), on_end=records.append)
"""


# The collector


@contextmanager
def collector(behaves: str) -> Iterator[str]:
    """A collector of OTLP over HTTP that behaves badly; gives its address."""
    over = threading.Event()
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            if behaves == "hangs" or (behaves == "hangs in the middle" and len(asked) > 1):
                over.wait(30)
                return
            if behaves == "is slow":
                over.wait(0.2)
            status = (
                503 if behaves == "fails" or (behaves == "fails in the middle" and len(asked) > 1) else 200
            )
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    if behaves == "is not there":
        listening.shutdown()
        listening.server_close()
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        over.set()
        listening.shutdown()
        listening.server_close()
        thread.join(5)


@pytest.mark.parametrize(
    ("behaves", "said"),
    [
        ("is not there", 1),
        ("hangs", 1),
        ("fails", 1),
        ("hangs in the middle", 1),
        ("fails in the middle", 1),
        ("is slow", 0),
    ],
)
def test_stream_does_not_feel_its_collector(behaves: str, said: int, server: WireServer) -> None:
    """Beside a collector that is dead, slow or hanging a stream takes as long as without us; the exit is bounded."""
    with collector(behaves) as target:
        told, log, exit_s = child(
            STREAMS
            + """
midstream.setup(export_interval_s=0.2, shutdown_timeout_s=1.0)
for _ in range(2):
    say(bare=read(bare), ours=read(ours))
say(outcomes=[record.outcome for record in records], chunks=[record.chunks for record in records])
say(at=time.monotonic())
""",
            server.base_url,
            OTEL_EXPORTER_OTLP_ENDPOINT=target,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        )
    for both in told[:2]:
        (bare, bare_s), (ours, ours_s) = both["bare"], both["ours"]
        assert (ours, bare) == ("abc", "abc")
        assert ours_s < bare_s + 2.0  # an export gives up after ten
    assert told[2] == {"outcomes": ["completed", "completed"], "chunks": [4, 4]}
    assert exit_s < 1.0 + 20.0
    assert len(log) == said, log
    assert all(line.startswith("midstream: metrics do not reach") for line in log)


# Hooks


def test_hook_that_streams_again_ends(server: WireServer) -> None:
    """A hook may ask the same client for another stream, whose end calls the hook again: nothing waits for itself."""
    client = OpenAI(api_key="none", base_url=server.base_url)
    answers: list[int] = []

    def again(_: Any) -> None:
        if len(answers) < 3:
            answers.append(len(list(client.chat.completions.create(**ASK, stream=True))))

    seen = collect(client, on_end=again)
    list(client.chat.completions.create(**ASK, stream=True))

    until(lambda: len(seen.records) == 4)
    assert answers == [4, 4, 4]
    assert {record.outcome for record in seen.records} == {"completed"}
    client.close()


def test_hooks_that_fall_behind_are_dropped_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """A hook that never returns costs its caller one moment, and a bounded number of calls are kept for it."""
    going_on, running = threading.Event(), threading.Event()
    called: list[int] = []

    def hang(number: int) -> None:
        running.set()
        called.append(number)
        going_on.wait(30)

    runner = HookRunner(busy=lambda: False)
    runner.start()
    runner.call(hang, 0, wait=False)
    assert running.wait(10)
    began = time.monotonic()
    for number in range(1, LONGEST_QUEUE + 500):
        runner.call(hang, number, wait=True)
    took_s = time.monotonic() - began
    going_on.set()
    assert runner.flush(30)

    assert took_s < 2.0
    assert len(called) == LONGEST_QUEUE + 1
    assert [record.getMessage() for record in caplog.records] == [
        "hooks are more than 1000 calls behind; calls are dropped until they catch up"
    ]


def test_hook_may_call_everything_there_is(server: WireServer, tmp_path: Path) -> None:
    """Whatever of midstream a hook calls comes back, while the stream freezes, thaws and ends."""
    told, log, exit_s = child(
        STREAMS
        + """
from midstream.journal import flush
calls = []

def everything(value):
    calls.append(type(value).__name__)
    midstream.monitor(bare, journal=sys.argv[2])
    midstream.monitor(iter("ab"), on_end=records.append)
    midstream.instrument(on_freeze=everything, on_end=everything)
    midstream.uninstrument()
    midstream.streams()
    flush(1.0)

ours = midstream.monitor(
    ours, freeze_after_s=0.3, on_freeze=everything, on_thaw=everything, on_end=everything, journal=sys.argv[2]
)
text = read(ours)[0]
deadline = time.monotonic() + 20
while len(calls) < 3 and time.monotonic() < deadline: time.sleep(0.01)  # a hook has a thread of its own
say(text=text, calls=calls, open=len(midstream.streams()))
say(at=time.monotonic())
""",
        server.base_url,
        str(tmp_path / "streams.db"),
    )
    assert told[0] == {"text": "abc", "calls": ["Freeze", "Freeze", "StreamRecord"], "open": 0}
    assert exit_s < 20.0
    assert [line for line in log if not line.startswith(FREEZES)] == []


def test_hook_that_hangs_does_not_hold_the_exit(server: WireServer) -> None:
    """It is left behind where it hangs."""
    told, log, exit_s = child(
        STREAMS
        + """
import threading
ours = midstream.monitor(ours, on_end=lambda record: threading.Event().wait(60))
say(text=read(ours)[0])
say(at=time.monotonic())
""",
        server.base_url,
    )
    assert told[0] == {"text": "abc"}
    assert exit_s < 20.0
    assert log == []


# The process


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_fork_by_another_thread_in_mid_read(server: WireServer) -> None:
    """The reader does not exist in the child. There the list is empty, and the child's own streams are watched."""
    told, log, _ = child(
        STREAMS
        + """
import os, threading, warnings; warnings.simplefilter("ignore")
froze, ended = [], []
ours = midstream.monitor(ours, freeze_after_s=0.3, on_freeze=froze.append, on_end=records.append)
stream = ours.chat.completions.create(model="m", messages=[], stream=True)
seen = []
reader = threading.Thread(target=lambda: seen.extend(chunk.choices[0].delta.content or "" for chunk in stream))
reader.start()
while len(seen) < 2: time.sleep(0.01)  # it waits for the third chunk now

def fork():
    if os.fork() == 0:
        say(open=len(midstream.streams()))
        again = midstream.monitor(OpenAI(api_key="none", base_url=sys.argv[1]), freeze_after_s=0.3,
                                  on_freeze=froze.append, on_end=ended.append)
        text = read(again)[0]
        say(text=text, froze=len(froze), ended=[record.outcome for record in ended], parents=len(records))
        os._exit(0)
    os.wait()

forking = threading.Thread(target=fork)
forking.start(); forking.join(); reader.join()
deadline = time.monotonic() + 10
while not records and time.monotonic() < deadline: time.sleep(0.01)  # a hook has a thread of its own
say(text="".join(seen), outcomes=[record.outcome for record in records], froze=len(froze))
say(at=time.monotonic())
""",
        server.base_url,
    )
    assert told[:3] == [
        {"open": 0},
        {"text": "abc", "froze": 1, "ended": ["completed"], "parents": 0},
        {"text": "abc", "outcomes": ["completed"], "froze": 1},
    ]
    assert [line for line in log if not line.startswith(FREEZES)] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_child_may_read_on_what_its_parent_began(server: WireServer) -> None:
    """The stream belongs to the parent: a child that reads on gets every chunk, and leaves no record of it."""
    told, log, _ = child(
        STREAMS
        + """
import os, warnings; warnings.simplefilter("ignore")
stream = ours.chat.completions.create(model="m", messages=[], stream=True)
first = next(stream).choices[0].delta.content
if os.fork() == 0:
    rest = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    say(rest=rest, open=len(midstream.streams()), records=len(records))
    os._exit(0)
os.wait()
say(first=first, open=len(midstream.streams()))
del stream; import gc; gc.collect()
deadline = time.monotonic() + 10
while not records and time.monotonic() < deadline: time.sleep(0.01)  # the watcher ends what was dropped
say(outcomes=[record.outcome for record in records])
say(at=time.monotonic())
""",
        server.base_url,
    )
    assert told[:3] == [
        {"rest": "bc", "open": 0, "records": 0},
        {"first": "a", "open": 1},
        {"outcomes": ["left_early"]},
    ]
    assert log == []


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no such limit")
def test_process_without_file_descriptors_streams_on(server: WireServer, tmp_path: Path) -> None:
    """An open stream needs none of ours: chunks, record and freeze are as ever; the journal is said to fail, once."""
    told, log, _ = child(
        STREAMS
        + """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
froze = []
ours = midstream.monitor(ours, freeze_after_s=0.3, on_freeze=froze.append, on_end=records.append, journal=sys.argv[2])
streams = [client.chat.completions.create(model="m", messages=[], stream=True) for client in (bare, ours)]
taken = []
while True:
    try: taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError: break
texts = ["".join(chunk.choices[0].delta.content or "" for chunk in stream) for stream in streams]
for number in taken: os.close(number)
say(texts=texts, froze=len(froze), outcomes=[record.outcome for record in records])
say(at=time.monotonic())
""",
        server.base_url,
        str(tmp_path / "streams.db"),
    )
    assert told[0] == {"texts": ["abc", "abc"], "froze": told[0]["froze"], "outcomes": ["completed"]}
    assert [line for line in log if not line.startswith((*FREEZES, "midstream: the journal"))] == []


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no such limit")
def test_journal_that_finds_no_descriptor_waits_for_one(server: WireServer, tmp_path: Path) -> None:
    """It is opened when the first stream opens, which may be the worst moment: said once, and nothing is lost."""
    told, log, _ = child(
        STREAMS
        + """
import os, resource
from midstream.journal import flush, read_records
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
stream = bare.chat.completions.create(model="m", messages=[], stream=True)
taken = []
while True:
    try: taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError: break
stream = midstream.monitor(stream, on_end=records.append, journal=sys.argv[2])
text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
without = flush(1.0)
for number in taken: os.close(number)
say(text=text, ended=len(records), without=without, later=flush(10.0), rows=len(read_records(sys.argv[2])))
say(at=time.monotonic())
""",
        server.base_url,
        str(tmp_path / "streams.db"),
    )
    assert told[0] == {"text": "abc", "ended": 1, "without": False, "later": True, "rows": 1}
    assert log[0].startswith(f"midstream: the journal {tmp_path / 'streams.db'} cannot be written")
    assert len(log) == 1, log  # that it is over is said at INFO


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no such limit")
def test_stream_goes_on_while_the_journal_finds_no_room(server: WireServer, tmp_path: Path) -> None:
    """No file of the process may grow: the stream and its hook do not notice; the log says it, and what was lost."""
    told, log, _ = child(
        STREAMS
        + """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
from midstream.journal import flush
ours = midstream.monitor(ours, on_end=records.append, journal=sys.argv[2])
texts = [read(client)[0] for client in (bare, ours, ours)]
say(texts=texts, outcomes=[record.outcome for record in records], written=flush(2.0))
say(at=time.monotonic())
""",
        server.base_url,
        str(tmp_path / "streams.db"),
    )
    assert told[0] == {"texts": ["abc"] * 3, "outcomes": ["completed"] * 2, "written": False}
    path = tmp_path / "streams.db"
    cannot, lost = log
    assert cannot.startswith(f"midstream: the journal {path} cannot be written")
    assert (
        lost == f"midstream: 2 records could not be written into the journal {path} before the process ended"
    )


def test_process_without_threads_streams_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without threads there is no live freeze and no hook; chunks and metrics come, and it is said once."""
    monkeypatch.setattr(internal_errors, "RAISE", False)
    monkeypatch.setattr(internal_errors, "_internal_errors", internal_errors.OnceLog())
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    client = OpenAI(api_key="none", http_client=scripted(SCRIPT, ManualClock()))
    monitor(client, meter_provider=provider, on_end=lambda _: None)
    until(lambda: not any(thread.name.startswith("midstream") for thread in threading.enumerate()))

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            assert len(list(client.chat.completions.create(**ASK, stream=True))) == 4

    assert ended(reader) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "no thread could be started for hooks; they are not called",
        "no thread could be started for the watcher; freezes are noticed when they end",
    ]
    client.close()


def test_log_handler_that_raises_costs_its_line_only(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream, its record, its freeze and its hooks are as ever."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the log is full")

    monkeypatch.setattr(internal_errors, "RAISE", False)
    client = OpenAI(api_key="none", base_url=server.base_url)
    seen = collect(client, freeze_after_s=0.3)
    handler = Broken()
    logging.getLogger("midstream").addHandler(handler)
    try:
        assert len(list(client.chat.completions.create(**ASK, stream=True))) == 4
        seen.flush()
    finally:
        logging.getLogger("midstream").removeHandler(handler)

    assert (seen.record.outcome, seen.record.freezes) == ("completed", 1)
    assert (len(seen.freezes), len(seen.thaws)) == (1, 1)
    client.close()


def test_watcher_that_comes_and_goes_leaves_nothing_at_the_exit() -> None:
    """A program that streams now and then for years has as many exit functions as soon after its beginning."""
    told, _, _ = child(
        """
import atexit, json, threading, time
from midstream import monitor
for _ in range(6):
    list(monitor(iter("abc")))
    while any(thread.name == "midstream-watcher" for thread in threading.enumerate()):
        time.sleep(0.02)  # it stays for a moment, in case another stream comes
    print(json.dumps({"places": atexit._ncallbacks()}), flush=True)
print(json.dumps({"at": time.monotonic()}))
"""
    )
    assert told[3]["places"] == told[4]["places"] == told[5]["places"]


# Numbers


def test_thousands_of_models_are_a_hundred_and_others() -> None:
    """A user's id in each model's name makes a bounded number of series, and every stream counts."""
    clock = ManualClock()
    reader = InMemoryMetricReader()
    client = OpenAI(api_key="none", http_client=scripted([(1, text("a")), (2, finish()), (2, DONE)], clock))
    seen = collect(client, clock=clock, meter_provider=MeterProvider([reader], shutdown_on_exit=False))

    for number in range(2000):
        for _ in client.chat.completions.create(model=f"user-{number}", messages=[], stream=True):
            pass

    assert len(seen.records) == 2000
    assert ended(reader) == 2000
    assert len(models(reader)) == 101
    assert "other" in models(reader)


@pytest.mark.parametrize("jump_s", [-7200.0, 3600.0])
def test_wall_clock_that_jumps_moves_no_duration(jump_s: float) -> None:
    """NTP, daylight saving or a restored machine: durations come from another clock, and the record tells the jump."""
    clock = ManualClock()
    client = OpenAI(
        api_key="none",
        http_client=scripted([(1, text("a")), (3, text("b")), (3, finish()), (3, DONE)], clock),
    )
    seen = collect(client, clock=clock)
    seen.process.wall = lambda: 1_000_000.0 + clock() + (jump_s if clock() > 2 else 0.0)

    list(client.chat.completions.create(**ASK, stream=True))

    record = seen.record
    assert (record.duration_s, record.max_gap_s, record.waited_s) == (3.0, 2.0, 3.0)
    assert (record.started_at, record.clock_jump_s) == (1_000_000.0, jump_s)


def test_wall_clock_that_goes_and_comes_back(tmp_path: Path) -> None:
    """Within one stream, and for the journal: what is written while the clock is wrong is written."""
    path, clock = tmp_path / "streams.db", ManualClock()
    ahead_s = 0.0
    journal = Journal(path, wall=lambda: 1_000_000_000.0 + clock() + ahead_s)
    client = OpenAI(
        api_key="none", http_client=scripted([(1, text("a")), (3, finish()), (3, DONE)], clock), max_retries=0
    )
    seen = collect(client, clock=clock, on_end=journal.write)
    seen.process.wall = lambda: 1_000_000_000.0 + clock() + ahead_s
    for days in (0, 20, -20, 0):
        ahead_s = days * DAY_S
        stream = client.chat.completions.create(**ASK, stream=True)
        next(stream)
        ahead_s += 7200.0
        next(stream)
        ahead_s -= 7200.0
        list(stream)
        assert flush()

    assert [(record.duration_s, record.clock_jump_s) for record in seen.records] == [(3.0, None)] * 4
    assert len(read_records(path)) == 4
    client.close()


def test_wall_clock_that_is_a_month_ahead_empties_the_journal(tmp_path: Path) -> None:
    """Its rows are older than it keeps any, as far as it can know; what comes next is kept."""
    path, now = tmp_path / "streams.db", 1_000_000_000.0
    for at in (now, now + 1, now + 40 * DAY_S):
        journal = Journal(path, wall=partial(float, at))
        journal.write(a_record(started_at=at))
        assert flush()

    assert [record.started_at for record in read_records(path)] == [now + 40 * DAY_S]


def points(reader: InMemoryMetricReader) -> list[Any]:
    data = reader.get_metrics_data()
    assert data is not None
    return [
        point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "stream.ended"
        for point in metric.data.data_points
    ]


def ended(reader: InMemoryMetricReader) -> int:
    return sum(point.value for point in points(reader))


def models(reader: InMemoryMetricReader) -> set[str]:
    return {point.attributes["gen_ai.request.model"] for point in points(reader)}


# The table


def test_every_row_of_the_table_names_tests_that_exist() -> None:
    """`docs/faults.md` says of each fault which test shows it, and there is such a test."""
    lines = (ROOT / "docs/faults.md").read_text().splitlines()
    rows = [
        line for line in lines if line.startswith("| ") and not line.startswith(("| what breaks", "| ---"))
    ]
    assert len(rows) > 15
    for row in rows:
        named = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", row)
        assert named, row
        for test, file in named:
            assert f"def {test}(" in (ROOT / file).read_text(), (test, file)
