"""Runs the user's hooks on a thread of their own, behind a bounded queue.

The thread that reports the end of a stream may wait a moment for its hook, so that a quick one has run when it returns:
never in a thread whose event loop runs, and elsewhere within a small budget over time.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeAlias

from midstream._support.internal_errors import OnceLog, place_of, safe_log
from midstream._support.lifecycle import Stage, Worker, register

PATIENCE_S = 0.05
"""The longest that one call waits for its hook, and all that is in the budget."""
BUDGET_SHARE = 0.01
"""The share of the time that passes which is added to the budget."""
LINGER_S = 0.5
LONGEST_QUEUE = 1000

_Job: TypeAlias = "tuple[Callable[[Any], object], Any, threading.Lock]"


class Hooks(Protocol):
    """Runs hooks."""

    def start(self) -> None:
        """Get ready to run hooks: a stream opens."""

    def call(self, hook: Callable[[Any], object] | None, value: Any, *, wait: bool) -> None:
        """Have `hook(value)` called; `wait` a moment for it. Never raises."""

    def flush(self, timeout_s: float) -> bool:
        """Wait for what is due; False if it took too long."""


class HookRunner:
    """One thread for the hooks of one monitor, alive while there are streams open or hooks to run."""

    def __init__(self, busy: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._busy = busy
        self._clock = clock
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._worker = Worker("midstream-hooks", self._run)
        self._behind = False
        self._budget_s = PATIENCE_S
        self._budget_at = clock()
        self._log = OnceLog()
        register(self, Stage.CALLBACKS)

    def start(self) -> None:
        """Have the thread running before it is needed: none can be started while the interpreter exits."""
        if not self._worker.start():
            self._log.warn("start", "no thread could be started for hooks; they are not called")

    def call(self, hook: Callable[[Any], object] | None, value: Any, *, wait: bool) -> None:
        """Have `hook(value)` called soon. Never blocks for more than a moment, and never an event loop."""
        if hook is None:
            return
        if self._jobs.qsize() >= LONGEST_QUEUE:
            self._log.warn(
                "full",
                "hooks are more than %d calls behind; calls are dropped until they catch up",
                LONGEST_QUEUE,
            )
            return
        done = threading.Lock()
        done.acquire()
        self._jobs.put((hook, value, done))
        self.start()
        if wait and not self._behind and not self._worker.is_current and not _loop_runs():
            self._wait(done)

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything queued so far has run; False if that took longer than `timeout_s`."""
        if self._worker.thread is None or self._worker.is_current:
            return self._jobs.empty()
        done = threading.Lock()
        done.acquire()
        self._jobs.put((_nothing, None, done))
        return done.acquire(timeout=timeout_s)

    # For the lifecycle

    def at_exit(self, timeout_s: float) -> None:
        """Run what is due."""
        self.flush(timeout_s)

    def before_fork(self) -> bool:
        """Nothing is stopped for a fork."""
        return False

    def after_fork_in_parent(self) -> None:
        """Nothing was stopped."""

    def after_fork_in_child(self) -> None:
        """Start over: calls that are due are the parent's."""
        self._jobs = SimpleQueue()
        self._worker.start_over()
        self._behind = False

    def _wait(self, done: threading.Lock) -> None:
        began = self._clock()
        budget_s = min(PATIENCE_S, self._budget_s + BUDGET_SHARE * (began - self._budget_at))
        self._behind = not done.acquire(timeout=max(0.0, budget_s))
        self._budget_at = self._clock()
        self._budget_s = budget_s - (self._budget_at - began)

    def _run(self) -> None:
        while True:
            try:
                hook, value, done = self._jobs.get(timeout=LINGER_S)
            except Empty:
                self._behind = False
                if self._worker.end_if(lambda: not self._busy() and self._jobs.empty()):
                    return
                continue
            try:
                hook(value)
            except BaseException as exc:  # noqa: BLE001 - a hook may fail in any way, and only its owner shall notice
                name = getattr(hook, "__qualname__", type(hook).__name__)
                self._log.warn(
                    name, "the hook %s raised %s; the stream is unaffected", name, type(exc).__name__
                )
                safe_log(logging.DEBUG, "a hook failed\n%s", place_of(exc))
            finally:
                done.release()
                if self._jobs.empty():
                    self._behind = False
            del hook, value, done


def _loop_runs() -> bool:
    """Whether an event loop runs in this thread: asyncio's, trio's or another that sniffio knows."""
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        try:
            return bool(sniffio.current_async_library())
        except sniffio.AsyncLibraryNotFoundError:
            pass
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def _nothing(_value: object) -> None:
    pass
