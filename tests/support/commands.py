"""Runs the command line in processes of its own, and ends them as people do."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# A shell that starts a job in the background makes it ignore Ctrl-C; this program never does.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from midstream.cli import main
sys.exit(main())
"""


@contextmanager
def running(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Run the command line in a process of its own, which is gone when the block ends."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
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
