"""Failures of midstream itself: logged once each, never raised into the caller's program, but raised under test.

Only what our own code raised is a failure of ours. An exception that a signal handler raised while our code was at work
is the caller's: a time limit, an interrupt. It is passed on as if we were not there.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType

log = logging.getLogger("midstream")

RAISE = False
"""Set by `midstream.testing`: a failure of ours is then a failure of the test."""


class OnceLog:
    """Logs each message once: warnings of the same kind, told apart by a key."""

    __slots__ = ("_logged",)

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def warn(self, key: str, message: str, *args: object) -> None:
        """Log a warning, unless one with this key was logged before."""
        if key not in self._logged:
            self._logged.add(key)
            safe_log(logging.WARNING, message, *args)


_internal_errors = OnceLog()


def report_internal_error(part: str, exc: BaseException, result: str = "your stream is unaffected") -> None:
    """Report that a part of midstream failed: its name and the class of the exception, once for each part.

    The exception's message is left out, since it might quote what a user wrote; where it happened is at DEBUG.
    Raises the exception again if a signal handler raised it, since then it is not a failure of midstream.
    """
    if RAISE or raised_by_signal_handler(exc):
        raise exc
    _internal_errors.warn(part, "the %s failed with %s; %s", part, type(exc).__name__, result)
    if log.isEnabledFor(logging.DEBUG):
        safe_log(logging.DEBUG, "the %s failed\n%s", part, place_of(exc))


def safe_log(level: int, message: str, *args: object, extra: dict[str, object] | None = None) -> None:
    """Write to the log. A handler that fails costs its line and nothing else.

    In a program without logging handlers Python prints the bare message, so it gets our name there.
    """
    try:
        log.log(level, message if log.hasHandlers() else f"midstream: {message}", *args, extra=extra)
    except Exception as exc:
        if raised_by_signal_handler(exc):
            raise


def raised_by_signal_handler(exc: BaseException) -> bool:
    """Whether a Python signal handler raised this exception, wherever the program was at that moment.

    The interpreter calls a handler with the frame that it interrupts, so the handler's frame holds its own caller among
    its arguments. No other call does that.
    """
    trace = exc.__traceback__
    while trace is not None:
        handler = trace.tb_frame
        if handler.f_back is not None and _holds(handler, handler.f_back):
            return True
        trace = trace.tb_next
    return False


_SUSPENDING = 0x20 | 0x80 | 0x200
"""Code of generators, coroutines and asynchronous generators (`inspect.CO_*`), which no handler's frame is."""


def _holds(frame: FrameType, caller: FrameType) -> bool:
    code = frame.f_code
    if code.co_flags & _SUSPENDING:  # to look into it would tie its exception to itself, before Python 3.13
        return False
    count = (
        code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    )
    for name in code.co_varnames[:count]:
        value = frame.f_locals.get(name)
        if value is caller or (type(value) is tuple and any(one is caller for one in value)):
            return True
    return False


def place_of(exc: BaseException) -> str:
    """Where an exception was raised, from the outermost call inwards, and its class, and those of its causes.

    A traceback would quote messages, and what collects errors would take the variables of its frames as well: prompts
    and answers among them. So there are files, lines and functions here, and nothing of what they worked on.
    """
    found = [
        f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n'
        for frame in traceback.extract_tb(exc.__traceback__)
    ]
    classes = [type(exc).__name__]
    seen, cause = {id(exc)}, exc.__cause__ or exc.__context__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        classes.append(type(cause).__name__)
        cause = cause.__cause__ or cause.__context__
    return "".join(found) + " from ".join(classes)


MAX_FAILURES = 5
"""Failures in a row after which a part is switched off. A single one may be due to its input alone."""
FIRST_RETRY_S, LAST_RETRY_S = 60.0, 3600.0
"""How long a part stays off: twice as long each time, up to an hour."""


class Guard:
    """Keeps the failures of one part of midstream away from the caller, and switches the part off if it keeps failing.

    if guard.ok:
        with guard:
            ...

    The part is tried again after a while, and is on again after the first success.
    """

    __slots__ = ("_clock", "_failures", "_off_until", "_part", "_said")

    def __init__(self, part: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._part = part
        self._clock = clock
        self._failures = 0  # in a row
        self._off_until: float | None = None
        self._said = False

    @property
    def ok(self) -> bool:
        """Whether the part is on, or off for long enough to be tried again."""
        return self._off_until is None or self._clock() >= self._off_until

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if exc is None:
            if self._failures:
                self._recovered()
            return False
        if not isinstance(exc, Exception) or raised_by_signal_handler(exc):
            return False  # an interrupt or a time limit is the caller's
        self._failures += 1
        report_internal_error(self._part, exc)
        if self._failures >= MAX_FAILURES:
            self._switch_off(exc)
        return True

    def _switch_off(self, exc: Exception) -> None:
        doubled = min(self._failures - MAX_FAILURES, 10)
        off_s = min(LAST_RETRY_S, FIRST_RETRY_S * 2.0**doubled)
        self._off_until = self._clock() + off_s
        if not self._said:
            self._said = True
            safe_log(
                logging.WARNING,
                "the %s failed %d times in a row, the last time with %s; that part is switched off and "
                "tried again after %.0f s, your streams are unaffected",
                self._part,
                self._failures,
                type(exc).__name__,
                off_s,
            )

    def _recovered(self) -> None:
        if self._off_until is not None:
            safe_log(logging.INFO, "the %s: works again after %d failures", self._part, self._failures)
        self._failures = 0
        self._off_until = None
        self._said = False
