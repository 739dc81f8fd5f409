"""Where our own failures stop: said once, never raised into the caller's program, but raised under test."""

from __future__ import annotations

import logging
from types import TracebackType

log = logging.getLogger("midstream")

RAISE = False
"""Set by `midstream.testing`: a failure of ours is then a failure of the test."""

_said: set[str] = set()


def trouble(part: str, exc: BaseException, result: str = "your stream is unaffected") -> None:
    """Report that a part of midstream failed: its name and the class of the exception, once for each part.

    The exception's message is left out, since it might quote what a user wrote; the traceback is at DEBUG.
    """
    if RAISE:
        raise exc
    if part not in _said:
        _said.add(part)
        log.warning("midstream: the %s failed with %s; %s", part, type(exc).__name__, result)
    log.debug("midstream: %s", part, exc_info=exc)


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
        trouble(self._part, exc, "that part is switched off, your stream is unaffected")
        return True
