"""Runs the user's hooks where they can harm nobody: on a thread of their own, behind a bounded queue.

Whoever reports the end of a stream waits a moment for the hook, so that a quick one has run when the caller goes on; a
slow or hanging one costs that moment once and is not waited for again until it has caught up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeAlias

from midstream._support.internal_errors import place_of, safe_log

PATIENCE_S = 0.05
LINGER_S = 0.5
LONGEST_QUEUE = 1000

_Job: TypeAlias = "tuple[Callable[[Any], object], Any, threading.Lock]"


class Hooks(Protocol):
    """Whatever runs hooks."""

    def start(self) -> None:
        """Get ready to run hooks: a stream opens."""

    def call(self, hook: Callable[[Any], object] | None, value: Any, *, wait: bool) -> None:
        """Have `hook(value)` called; `wait` a moment for it. Never raises."""

    def flush(self, timeout_s: float) -> bool:
        """Wait for what is due; False if it took too long."""

    def forked(self) -> None:
        """Start over in a forked child."""


class HookRunner:
    """One thread for the hooks of one monitor, alive while there are streams open or hooks to run."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy = busy
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._behind = False
        self._said: set[str] = set()

    def start(self) -> None:
        """Have the thread running before it is needed: none can be started while the interpreter exits."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="midstream-hooks", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:
                        self._say("start", "no thread could be started for hooks; they are not called")
                    else:
                        self._thread = thread

    def call(self, hook: Callable[[Any], object] | None, value: Any, *, wait: bool) -> None:
        """Have `hook(value)` called soon. Never raises, never blocks for more than a moment."""
        if hook is None:
            return
        if self._jobs.qsize() >= LONGEST_QUEUE:
            self._say(
                "full",
                f"hooks are more than {LONGEST_QUEUE} calls behind; calls are dropped until they catch up",
            )
            return
        done = threading.Lock()
        done.acquire()
        self._jobs.put((hook, value, done))
        self.start()
        if wait and not self._behind and self._thread is not threading.current_thread():
            self._behind = not done.acquire(timeout=PATIENCE_S)

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything queued so far has run; False if that took longer than `timeout_s`."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return self._jobs.empty()
        done = threading.Lock()
        done.acquire()
        self._jobs.put((_nothing, None, done))
        return done.acquire(timeout=timeout_s)

    def forked(self) -> None:
        """Start over in a forked child."""
        self._jobs = SimpleQueue()
        self._starting = threading.Lock()
        self._thread = None
        self._behind = False

    def _run(self) -> None:
        while True:
            try:
                hook, value, done = self._jobs.get(timeout=LINGER_S)
            except Empty:
                self._behind = False
                if self._end():
                    return
                continue
            try:
                hook(value)
            except BaseException as exc:  # noqa: BLE001 - a hook may fail in any way, and only its owner shall notice
                name = getattr(hook, "__qualname__", type(hook).__name__)
                self._say(name, f"the hook {name} raised {type(exc).__name__}; the stream is unaffected", exc)
            finally:
                done.release()
                if self._jobs.empty():
                    self._behind = False
            del hook, value, done

    def _end(self) -> bool:
        with self._starting:
            if self._busy() or not self._jobs.empty():
                return False
            self._thread = None
            return True

    def _say(self, key: str, message: str, exc: BaseException | None = None) -> None:
        if key not in self._said:
            self._said.add(key)
            safe_log(logging.WARNING, "midstream: %s", message)
        if exc is not None:
            safe_log(logging.DEBUG, "midstream: a hook failed\n%s", place_of(exc))


def _nothing(_value: object) -> None:
    pass
