"""The journals of this process: started over in a forked child, and given a moment at its exit."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from typing import Protocol

from midstream._support.idle import on_idle

EXIT_S = 2.0
"""How long the end of the process may wait for all journals together."""


class Writer(Protocol):
    """A journal as its process knows it."""

    def flush(self, timeout_s: float) -> bool:
        """Wait until what was given so far is written; False if it cannot be now, or not in time."""

    def commit_soon(self) -> None:
        """Write what is queued without waiting for more, on a thread of the writer's own."""

    def last_flush(self, timeout_s: float) -> None:
        """Write what is left: the process exits."""

    def pause(self) -> bool:
        """Close the file before a fork, and hold everything up until `resume`; False if it took too long."""

    def resume(self) -> None:
        """Go on in the parent, after the fork."""

    def forked(self) -> None:
        """Start over in a forked child."""


WRITERS: weakref.WeakSet[Writer] = weakref.WeakSet()

_paused: dict[int, list[Writer]] = {}  # by the thread that forks
_pool_worker: set[int] = set()


def flush(timeout_s: float = EXIT_S) -> bool:
    """Wait until every journal of this process is written; False if one cannot be now, or not in `timeout_s` seconds.

    For programs that are frozen or killed between requests, as on serverless platforms.
    """
    until = time.monotonic() + timeout_s
    written = [writer.flush(max(0.0, until - time.monotonic())) for writer in list(WRITERS)]
    return all(written)


def last_flush() -> None:
    """Write what every journal has left, within EXIT_S."""
    until = time.monotonic() + EXIT_S
    for writer in list(WRITERS):
        writer.last_flush(max(0.0, until - time.monotonic()))


def _commit_soon() -> None:
    for writer in list(WRITERS):
        writer.commit_soon()


def flush_in_pool_workers() -> None:
    """Have `last_flush` called at the end of a process of multiprocessing's, which knows no `atexit`."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and os.getpid() not in _pool_worker:
        _pool_worker.add(os.getpid())
        util.Finalize(None, last_flush, exitpriority=0)


def _before_fork() -> None:
    # SQLite must not be in the middle of anything, nor have a file open, in a child that did not open it.
    _paused[threading.get_ident()] = [writer for writer in list(WRITERS) if writer.pause()]


def _after_in_parent() -> None:
    for writer in _paused.pop(threading.get_ident(), ()):
        writer.resume()


def _after_in_child() -> None:
    _paused.clear()
    for writer in list(WRITERS):
        writer.forked()


# Registered before any stream can open, so that it runs after those that are open at exit have ended.
atexit.register(last_flush)
on_idle(_commit_soon)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
