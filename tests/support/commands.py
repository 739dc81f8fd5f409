"""Runs the command line in processes of its own, and ends them as people do."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Run the command line in a process of its own, which is gone when the block ends."""
    command = [sys.executable, "-m", "midstream", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """Return what a process prints, up to and including the first line that matches."""
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if re.search(pattern, line):
            return printed
    raise AssertionError(f"{pattern!r} was never printed, only {printed!r}")


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Press Ctrl-C, and return the exit status and what was said on standard error."""
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that these have started, and so on."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    found = [pid]
    for parent in found:
        found += [child for child, its_parent in pairs if its_parent == parent]
    return found[1:]


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that has ended and whose status was not read yet does not."""
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip() != "" and not listed.stdout.startswith("Z")
