"""The start, fork and exit of what works in the background: threads, queues, open files.

`Worker` is a thread that runs while there is work. A `Part` is anything that must act when the process forks or exits;
parts act in the order of their `Stage`, whatever order they were made in: streams end first, then callbacks run, then
journals are written. Exporters of metrics come after all of them, since OpenTelemetry registers its own exit functions.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from types import TracebackType
from typing import Protocol

from midstream._support.internal_errors import report_internal_error

EXIT_S = 2.0
"""How long the end of the process may wait for each stage."""
TAKE_OVER_S = 5.0
MOVES = 3
"""How often the exit function moves to the last place: CPython keeps each place that was left."""


class Stage(IntEnum):
    """When a part acts at exit, and after a fork in the child."""

    STREAMS = 0
    CALLBACKS = 1
    JOURNALS = 2


class Part(Protocol):
    """What must act when the process forks or exits."""

    def at_exit(self, timeout_s: float) -> None:
        """Finish what is open within `timeout_s` seconds. May be called again."""

    def before_fork(self) -> bool:
        """Stop until `after_fork_in_parent`; False if there is nothing to resume."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Start over: threads, locks and open files are the parent's."""


class RecoverableLock:
    """A lock for short sections, which an exception of a signal handler may leave locked.

    The thread that holds it may enter again. Another that waits for 5 s takes it over: its holder was interrupted.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=TAKE_OVER_S):
            self._lock = threading.RLock()
            self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(RuntimeError):  # another thread has taken it over
            self._lock.release()


class Worker:
    """A daemon thread that is started when there is work and ends itself when there is none."""

    __slots__ = ("_lock", "_name", "_run", "thread")

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self._name = name
        self._run = run
        self.start_over()

    def start_over(self) -> None:
        """Forget the thread, in a forked child."""
        self._lock = RecoverableLock()
        self.thread: threading.Thread | None = None

    @property
    def is_current(self) -> bool:
        """Whether the code at work runs on this thread."""
        return self.thread is threading.current_thread()

    def start(self, before: Callable[[], None] | None = None) -> bool:
        """Have the thread running; False if none can be started, as while the interpreter exits.

        `before` is called before it starts, if it does not run yet.
        """
        if self.thread is None:
            with self._lock:
                if self.thread is None:
                    if before is not None:
                        before()
                    thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self.thread = thread
                    try:
                        thread.start()
                    except RuntimeError:
                        self.thread = None
                        return False
                    except BaseException:  # raised by a signal handler: the thread may run or not
                        if not thread.is_alive():
                            self.thread = None
                        raise
        return True

    def end_if(self, idle: Callable[[], bool]) -> bool:
        """Called on the thread, which must return if this is True. Who has work from then on starts another."""
        with self._lock:
            if not idle():
                return False
            self.thread = None
            return True


_parts: dict[Stage, weakref.WeakSet[Part]] = {stage: weakref.WeakSet() for stage in Stage}
_stopped: dict[int, list[Part]] = {}  # by the thread that forks
_pool_worker: set[int] = set()
_moves = 0


def register(part: Part, stage: Stage) -> None:
    """Have this part act at fork and exit for as long as it lives."""
    _parts[stage].add(part)


def parts(stage: Stage) -> list[Part]:
    """The parts of this stage that are alive."""
    return list(_parts[stage])


def run_exit() -> None:
    """Have every part finish, stage by stage. What has nothing left to do takes no time, so it may be called again."""
    for stage in Stage:
        until = time.monotonic() + EXIT_S
        for part in parts(stage):
            try:
                part.at_exit(max(0.0, until - time.monotonic()))
            except Exception as exc:  # noqa: BLE001, PERF203 - the other parts finish all the same
                report_internal_error("exit", exc)


def run_exit_before_others(*, always: bool = False) -> None:
    """Have `run_exit` called before the exit functions that are registered by now, those of meter providers included.

    This is done the first few times only, since a provider is set early, unless `always` says otherwise.
    """
    global _moves  # noqa: PLW0603 - one exit function for each process
    if _moves < MOVES or always:
        atexit.unregister(_run_exit_early)
        atexit.register(_run_exit_early)
    _moves += 1


def run_exit_in_pool_workers() -> None:
    """Have `run_exit` called at the end of a process of multiprocessing's, which runs no exit functions."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and os.getpid() not in _pool_worker:
        _pool_worker.add(os.getpid())
        util.Finalize(None, run_exit, exitpriority=0)


def _run_exit_early() -> None:
    run_exit()


def _before_fork() -> None:
    # SQLite must not be in the middle of anything, nor have a file open, in a child that did not open it.
    _stopped[threading.get_ident()] = [
        part for stage in reversed(Stage) for part in parts(stage) if part.before_fork()
    ]


def _after_fork_in_parent() -> None:
    for part in _stopped.pop(threading.get_ident(), ()):
        part.after_fork_in_parent()


def _after_fork_in_child() -> None:
    _stopped.clear()
    for stage in Stage:
        for part in parts(stage):
            part.after_fork_in_child()


# Registered before any stream can open, so that it runs last: for records of streams that other exit functions ended.
atexit.register(run_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
