"""What Ctrl-C does to a command at each moment: status 130, no traceback, and nothing left behind.

While something is imported it ends the process at once (`exiting_at_once`), since libraries turn a KeyboardInterrupt
in the middle of their import into errors of their own. While a command works it raises KeyboardInterrupt, so that the
command can clean up. Once it has ended, Ctrl-C is ignored for the moment that the process still takes.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from midstream._support.interrupts import exit_at_once

_AGAIN_S = 0.01


@contextmanager
def exiting_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process at once within the block: for imports, while nothing has to be cleaned up."""
    before = handle(exit_at_once)
    try:
        yield
    finally:
        handle(before)


def raise_from_now_on() -> None:
    """Let Ctrl-C raise KeyboardInterrupt: the command has begun to work.

    This also holds where the shell started the process with SIGINT ignored, as it does for a job in the background of
    a script: a server that could only be killed would stay behind.
    """
    handle(signal.default_int_handler)


@contextmanager
def delivered_again() -> Iterator[None]:
    """Deliver a KeyboardInterrupt again where Python could only report it, because it was raised in a finalizer."""
    before = sys.unraisablehook

    def report(unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            threading.Timer(_AGAIN_S, _interrupt_main_thread).start()
        else:
            before(unraisable)

    sys.unraisablehook = report
    try:
        yield
    finally:
        sys.unraisablehook = before


def caused_by_interrupt(error: BaseException) -> bool:
    """Return whether a KeyboardInterrupt led to this error: some libraries report it as an error of their own."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, KeyboardInterrupt):
            return True
        seen.add(id(current))
        current = current.__cause__ or current.__context__
    return False


def handle(handler: Any) -> Any:
    """Set the handler of SIGINT and return the previous one; None, which sets nothing, where it cannot be set."""
    if handler is None or threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGINT, handler)


def _interrupt_main_thread() -> None:
    if hasattr(signal, "pthread_kill"):  # it also ends a system call in which that thread waits
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()
