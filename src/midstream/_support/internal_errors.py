"""Where our own failures stop: said once, never raised into the caller's program, but raised under test."""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress
from types import TracebackType

log = logging.getLogger("midstream")

RAISE = False
"""Set by `midstream.testing`: a failure of ours is then a failure of the test."""

_said: set[str] = set()


def report_internal_error(part: str, exc: BaseException, result: str = "your stream is unaffected") -> None:
    """Report that a part of midstream failed: its name and the class of the exception, once for each part.

    The exception's message is left out, since it might quote what a user wrote; where it happened is at DEBUG.
    """
    if RAISE:
        raise exc
    if part not in _said:
        _said.add(part)
        safe_log(logging.WARNING, "midstream: the %s failed with %s; %s", part, type(exc).__name__, result)
    if log.isEnabledFor(logging.DEBUG):
        safe_log(logging.DEBUG, "midstream: the %s failed\n%s", part, place_of(exc))


def safe_log(level: int, message: str, *args: object) -> None:
    """Write to the log. Its handlers are the caller's, and one that fails costs its line and nothing else."""
    with suppress(Exception):
        log.log(level, message, *args)


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


class Guard:
    """One part of midstream that is switched off once it has failed.

    if guard.ok:
        with guard:
            ...
    """

    __slots__ = ("_part", "ok")

    def __init__(self, part: str) -> None:
        self._part = part
        self.ok = True

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(exc, Exception):  # a KeyboardInterrupt is the user's
            return False
        self.ok = False
        report_internal_error(self._part, exc, "that part is switched off, your stream is unaffected")
        return True
