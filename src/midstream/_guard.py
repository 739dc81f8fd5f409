"""Where our own failures stop: said once, never raised into the caller's program, but raised under test."""

from __future__ import annotations

import logging

log = logging.getLogger("midstream")

RAISE = False
"""Set by `midstream.testing`: a failure of ours is then a failure of the test."""

_said: set[str] = set()


def trouble(part: str, exc: BaseException) -> None:
    """Report that a part of midstream failed. Logs its name and the class of the exception, once for each part.

    The message of the exception is left out, since it might quote what a user wrote; the traceback is there at DEBUG.
    """
    if RAISE:
        raise exc
    if part not in _said:
        _said.add(part)
        log.warning("midstream: the %s failed with %s; your stream is unaffected", part, type(exc).__name__)
    log.debug("midstream: %s", part, exc_info=exc)
