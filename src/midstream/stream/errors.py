"""What an exception means for a stream, in the same words whichever client and version raised it.

Exceptions are told apart by the names of their classes: the openai SDK raises its own on some versions and lets those
of httpx or httpx2 through on others, and none of the three may have to be imported to know.
"""

from __future__ import annotations

from midstream.stream.model import Outcome

TIMEOUT = "timeout"
CONNECTION = "APIConnectionError"
"""The SDK's own word for a broken connection, used as well where it lets the transport's error through."""

_TIMEOUTS = {"APITimeoutError", "TimeoutException", "TimeoutError"}
_CONNECTIONS = {"APIConnectionError", "TransportError", "ConnectionError", "IncompleteRead"}


def outcome_of(exc: BaseException) -> Outcome:
    """How a stream ended whose next chunk was this exception."""
    if _is(exc, _TIMEOUTS):
        return Outcome.TIMEOUT
    if not isinstance(exc, Exception) or type(exc).__name__ == "CancelledError":
        return Outcome.CANCELLED
    return Outcome.ERROR


def error_type_of(exc: BaseException) -> str:
    """The `error.type` of this exception: a word of low cardinality, never its message."""
    if _is(exc, _TIMEOUTS):
        return TIMEOUT
    if _is(exc, _CONNECTIONS):
        return CONNECTION
    return type(exc).__name__


def _is(exc: BaseException, names: set[str]) -> bool:
    return any(kind.__name__ in names for kind in type(exc).__mro__)
