"""Functions that run whenever the last open stream of the process has ended.

A process may end without exit functions: by a signal, as uvicorn does after it has drained, or by `os._exit`. What must
not be lost is therefore written or sent when the process becomes idle, and not at its exit alone.
"""

from __future__ import annotations

from collections.abc import Callable

from midstream._support.internal_errors import report_internal_error

_callbacks: list[Callable[[], object]] = []


def on_idle(callback: Callable[[], object]) -> None:
    """Call `callback()` whenever the process becomes idle. It runs in the thread of a stream, so it must not wait."""
    _callbacks.append(callback)


def off_idle(callback: Callable[[], object]) -> None:
    """Do not call it any more. Nothing happens if it was never given."""
    if callback in _callbacks:
        _callbacks.remove(callback)


def notify_idle() -> None:
    """Report that no stream is open any more."""
    for callback in tuple(_callbacks):
        try:
            callback()
        except Exception as exc:  # noqa: BLE001, PERF203 - the caller's stream has ended, and that is all it should see
            report_internal_error("work of an idle process", exc)
