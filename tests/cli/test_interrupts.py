"""Ctrl-C at any moment of any command: status 130, no traceback, no process left behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import midstream
from midstream._support.interrupts import is_command
from midstream.cli import COMMANDS
from midstream.cli.common.interrupts import caused_by_interrupt
from midstream.journal import Journal
from support.commands import children_of, is_running
from support.records import a_record
from support.waiting import until

# Runs the command, and sends SIGINT when the module number N of those that it imports is looked for.
AT_IMPORT = """
import os, runpy, signal, sys, threading

class Finder:
    seen = 0
    def find_spec(self, name, path=None, target=None):
        if Finder.seen or name == "midstream.integrations":  # the first import after that of the handler
            Finder.seen += 1
            if Finder.seen == at:
                signal.raise_signal(signal.SIGINT)
        return None

at = int(sys.argv.pop(1))
late = threading.Timer(10, os.kill, (os.getpid(), signal.SIGINT))  # a server that imports fewer is ended, too
late.daemon = True
late.start()
sys.argv[0] = "midstream"
sys.meta_path.insert(0, Finder())
runpy.run_module("midstream", run_name="__main__", alter_sys=False)
"""

# Each command with options that let it work for a while, or as long as nothing ends it.
ARGUMENTS = {
    "advise": ["concurrency", "--pool", "100000", "--journal", "{journal}"],
    "compare": ["--journal", "{journal}", "--at", "1h"],
    "dashboard": ["--serve", "http://127.0.0.1:9"],
    "demo": [],
    "export": ["--journal", "{journal}", "-o", "{folder}/streams.csv"],
    "probe": ["http://127.0.0.1:9", "-n", "2"],
    "proxy": ["--upstream", "http://127.0.0.1:9", "--port", "0", "--metrics-port", "0"],
    "replay": [],
    "report": ["--journal", "{journal}", "--html", "{folder}/report.html"],
    "rules": ["-o", "{folder}/rules.yml"],
    "serve": [],
    "simulate": ["--seeds", "50", "--requests", "2000"],
    "watch": ["--server", "http://127.0.0.1:9"],
}
SERVERS = ["dashboard", "demo", "proxy", "replay", "serve", "simulate"]
"""Those that still work after seconds."""


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = Journal(tmp_path_factory.mktemp("interrupts") / "streams.db")
    for number in range(20):
        written.write(a_record(started_at=time.time() - 7200 + 600 * number))
    assert written.flush(60)
    return written.path


def arguments(command: str, journal: Path, folder: Path) -> list[str]:
    """The words of a command that works for a while."""
    return [command, *(word.format(journal=journal, folder=folder) for word in ARGUMENTS[command])]


@contextmanager
def started(*command: str, ignoring: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own, gone when the block ends; `ignoring` starts it with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignoring else None
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_every_command_is_tried() -> None:
    """A new command needs its line above."""
    assert set(ARGUMENTS) == set(COMMANDS)


@pytest.mark.parametrize("command", ARGUMENTS)
def test_during_any_import(command: str, journal: Path, tmp_path: Path) -> None:
    """At every 80th module: libraries turn a KeyboardInterrupt in the middle of their import into other errors."""
    words = arguments(command, journal, tmp_path)

    def run(at: int) -> tuple[int, int, str, str]:
        done = subprocess.run(
            [sys.executable, "-c", AT_IMPORT, str(at), *words],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return at, done.returncode, done.stdout, done.stderr

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(run, range(1, 500, 80)))
    interrupted = [each for each in ended if each[1] == 130]
    assert interrupted[0] == (1, 130, "", "")
    lines = [line for _, _, _, err in interrupted for line in err.splitlines()]
    assert [line for line in lines if not line.startswith("midstream: ")] == []
    assert len(interrupted) >= 4
    # There are fewer modules than numbers: such a command has ended as if nothing had been.
    assert {status for _, status, _, _ in ended} <= {0, 1, 130}
    assert all("Traceback" not in out + err for _, _, out, err in ended)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def is_before_the_handler(err: str) -> bool:
    """Whether Python itself was interrupted, on a slow machine: nothing of ours had run but what sets the handler."""
    ours = set(re.findall(r'/src/midstream/([\w/]+\.py)", line', err))
    return ours <= {"__init__.py", "_support/__init__.py", "_support/interrupts.py"}


def has_begun(pid: int) -> bool:
    """Whether Python has decided what SIGINT does: before that, the system's rule holds, and ends the process."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():  # not on Linux
        return True
    masks = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if line.startswith("Sig"))
    return any(int(masks[name], 16) >> (signal.SIGINT - 1) & 1 for name in ("SigCgt", "SigIgn"))


@pytest.mark.parametrize("command", SERVERS)
@pytest.mark.parametrize("after_s", [0.15, 0.6, 2.0, 5.0])
def test_after_any_time(command: str, after_s: float, journal: Path, tmp_path: Path) -> None:
    """As somebody presses it; also where the shell has SIGINT ignored, as for a job in the background."""
    words = arguments(command, journal, tmp_path)
    with started(sys.executable, "-m", "midstream", *words, ignoring=after_s == 2.0) as process:
        until(lambda: has_begun(process.pid), 60)
        time.sleep(after_s)
        mine = children_of(process.pid)
        deadline = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(signal.SIGINT)  # an ignored one, before the command could begin, is repeated
            time.sleep(1.0)
        _, err = process.communicate(timeout=30)
    if after_s < 1.0 and process.returncode == -signal.SIGINT and is_before_the_handler(err):
        return
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "KeyboardInterrupt" not in err
    until(lambda: not any(map(is_running, mine)))


def test_the_command_is_told_from_a_program_that_imports_the_library() -> None:
    """Only the command's own process handles Ctrl-C; a library leaves signals alone."""
    assert is_command(["/usr/bin/midstream", "serve"], ["python3", "/usr/bin/midstream", "serve"])
    assert is_command(["-m", "serve"], ["python3", "-X", "dev", "-m", "midstream", "serve"])
    assert not is_command(["-m", "midstream"], ["python3", "-m", "pytest", "midstream"])
    assert not is_command(["app.py"], ["python3", "app.py"])
    assert not is_command([], ["python3"])
    assert not is_command(["-c"], ["python3", "-c", "import midstream"])

    code = (
        "import signal; before = signal.getsignal(2); import midstream; print(signal.getsignal(2) is before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_an_error_that_an_interrupt_led_to_is_an_interrupt() -> None:
    """Whatever a library made of it."""
    error = SystemError("returned a result with an exception set")
    error.__cause__ = ImportError("of a part of it")
    assert not caused_by_interrupt(error)
    error.__cause__.__context__ = KeyboardInterrupt()
    assert caused_by_interrupt(error)


def test_an_interrupt_in_a_finalizer_is_not_lost() -> None:
    """Python prints it and goes on; the command ends all the same."""
    code = """
import signal, sys, time
from midstream import cli

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def slow(*_):
    from midstream.cli.common.interrupts import raise_from_now_on
    raise_from_now_on()
    Finalized()
    time.sleep(60)

from midstream.cli.common import app
app.run = slow
sys.exit(cli.main(["serve"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_it_may_be_run_in_a_thread() -> None:
    """Where no signal can be handled, nothing is tried."""
    code = """
import threading
from midstream.cli import main
thread = threading.Thread(target=main, args=(["--version"],))
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"midstream {midstream.__version__}\n", "")
