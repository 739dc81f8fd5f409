"""Pushes metrics when the process becomes idle, so that a process that is killed then loses none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

BURST = 10
"""Pushes that may follow one another at once. A service with few streams pushes after each."""
EVERY_S = 1.0
"""The time between pushes of a busy service, in the long run."""
LINGER_S = 10.0
"""How long the thread waits for the next push before it ends."""


class PushAllowance:
    """How many pushes may be made at once: a bucket of `BURST` that fills by one each `EVERY_S`."""

    def __init__(self, now: float) -> None:
        self._left = float(BURST)
        self._at = now

    def wait_s(self, now: float) -> float:
        """Take one push; return how long to wait before it."""
        self._left = min(float(BURST), self._left + (now - self._at) / EVERY_S) - 1.0
        self._at = now
        return max(0.0, -self._left * EVERY_S)


class IdlePush:
    """Calls `send()` on a thread of its own after each `wake()`; several during one sending are one."""

    def __init__(self, send: Callable[[], object]) -> None:
        self._send = send
        self._due = threading.Event()
        self._closed = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._allowance = PushAllowance(time.monotonic())

    def wake(self) -> None:
        """Have `send()` called soon. Does not wait."""
        self._due.set()
        if self._thread is None and not self._closed.is_set():
            self._start()

    def close(self) -> None:
        """Send no more."""
        self._closed.set()
        self._due.set()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="midstream-idle-push", daemon=True)
                self._thread = thread
                try:
                    thread.start()
                except (
                    RuntimeError
                ):  # the interpreter exits, and pushes once more; or there are too many threads
                    self._thread = None

    def _run(self) -> None:
        while not self._closed.is_set():
            if not self._due.wait(LINGER_S):
                with self._starting:
                    if not self._due.is_set():
                        self._thread = None
                        return
            if self._closed.wait(self._allowance.wait_s(time.monotonic())):
                return
            self._due.clear()
            self._send()
