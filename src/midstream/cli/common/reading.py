"""How far a long read has come, on standard error, if that is a terminal: the first time after two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.status import Status

AFTER_S = 2.0
"""What is quicker is not worth a line."""


@contextmanager
def reading(
    path: Path, console: Console | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """Give a function to call with the number of streams read so far. The line is removed at the end."""
    shown = Status("", console=console or Console(stderr=True))
    visible = console is not None or sys.stderr.isatty()
    began, started = clock(), False

    def progress(done: int) -> None:
        nonlocal started
        if not visible or clock() - began < AFTER_S:
            return
        shown.update(f"Reading {path.name}: {done:,} streams so far; Ctrl-C ends it")
        if not started:
            shown.start()
            started = True

    try:
        yield progress
    finally:
        shown.stop()
