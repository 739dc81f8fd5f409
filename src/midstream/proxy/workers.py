"""Several processes that serve one port: they are forked, replaced when they die, and ended together.

Each has a listening socket of its own on the port, among which Linux distributes connections evenly. Elsewhere all have
the same one. Signals are for the first process alone, since a terminal or an init system may send them to all: workers
ignore them, and end as their pipe tells them, or when the process at its other end is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from midstream._support.internal_errors import safe_log
from midstream.proxy.server import ProxyServer, listen
from midstream.proxy.service import ProxySettings, proxy_server

CAN_FORK = hasattr(os, "fork")
AGAIN_S = 1.0
"""How long after its start a worker that has died is replaced, at least."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def listeners(host: str, port: int, count: int) -> list[socket.socket]:
    """Bind one listening socket for each of so many workers, all on one port. Raises OSError."""
    first = listen(host, port)  # not shared: fails if another program has the port
    if count == 1 or sys.platform != "linux":
        return [first, *(first.dup() for _ in range(count - 1))]
    port = first.getsockname()[1]
    first.close()
    return [listen(host, port, shared=True) for _ in range(count)]


def run_workers(settings: ProxySettings, sockets: Sequence[socket.socket]) -> int | None:
    """Serve in a process for each socket, until a signal ends all, and return the signal: in each of them.

    The process that called it only watches over them. Needs a main thread and `os.fork`.
    """
    return _Workers(settings, sockets).run()


class _Workers:
    """The workers, as their first process sees them."""

    def __init__(self, settings: ProxySettings, sockets: Sequence[socket.socket]) -> None:
        self._settings = settings
        self._sockets = sockets
        self._running: dict[int, int] = {}
        """The number of a worker by its process id."""
        self._pipes: dict[int, int] = {}
        """The pipe to a worker by its number."""
        self._ended_by: int | None = None

    def run(self) -> int | None:
        """Start them, and wait until the last has ended. Returns in the workers as well."""
        started = [0.0] * len(self._sockets)
        waiting = set(range(len(self._sockets)))
        with self._signals():
            while waiting or self._running:
                for number in sorted(waiting):
                    waiting.discard(number)
                    started[number] = time.monotonic()
                    pipe = self._fork(number)
                    if pipe is not None:
                        return _work(self._settings, self._sockets[number], pipe)
                if not self._running:
                    break
                pid, status = os.wait()
                number = self._running.pop(pid)
                if self._ended_by is None:
                    safe_log(
                        logging.ERROR,
                        "worker process %d has ended (status %d); another one takes its place",
                        pid,
                        os.waitstatus_to_exitcode(status),
                    )
                    self._pause(started[number] + AGAIN_S)
                    os.close(self._pipes.pop(number))
                    waiting.add(number)
        return self._ended_by

    def _fork(self, number: int) -> int | None:
        """Start a worker, unless all are ending. Returns None here, and there the end of its pipe that it reads."""
        # A new worker must not act on a signal as this process does.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            if self._ended_by is not None:
                return None
            reading, writing = os.pipe()
            pid = os.fork()
            if not pid:
                for each in _SIGNALS:
                    signal.signal(each, signal.SIG_IGN)
            else:
                self._pipes[number] = writing
                self._running[pid] = number
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if pid:
            os.close(reading)
            return None
        for other in (writing, *self._pipes.values()):
            os.close(other)
        for listener in self._sockets:
            if listener is not self._sockets[number]:
                listener.close()
        return reading

    def _pause(self, until: float) -> None:
        while self._ended_by is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        first = os.getpid()
        before = {each: signal.signal(each, self._on_signal) for each in _SIGNALS}
        try:
            yield
        finally:
            if os.getpid() == first:
                for each, handler in before.items():
                    signal.signal(each, handler)

    def _on_signal(self, number: int, _frame: object) -> None:
        again = self._ended_by is not None
        self._ended_by = self._ended_by or number
        for listener in self._sockets:
            listener.close()  # while one is open here, it takes connections that no worker would answer
        for pipe in self._pipes.values():
            with contextlib.suppress(OSError):
                os.write(pipe, bytes([signal.SIGINT if again else number]))


def _work(settings: ProxySettings, listener: socket.socket, pipe: int) -> int | None:
    server = proxy_server(settings, takes_signals=False)
    threading.Thread(target=_obey, args=(server, pipe), name="midstream-worker", daemon=True).start()
    server.run_on(listener)
    return server.ended_by


def _obey(server: ProxyServer, pipe: int) -> None:
    """End the server as the first process says, or as SIGTERM would when that is gone."""
    while told := os.read(pipe, 1):
        server.end(told[0])
    server.end(signal.SIGTERM)
