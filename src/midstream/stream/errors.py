"""What an exception means for a stream, in the same words for every client and version.

Exceptions are told apart by the names of their classes: the openai SDK raises its own in some versions and passes on
those of httpx or httpx2 in others, and none of the three may have to be imported for this.
"""

from __future__ import annotations

from midstream._support.sanitize import plain_name
from midstream.stream.model import Outcome
from midstream.stream.stalled import StreamStalled

TIMEOUT = "timeout"
STALL_TIMEOUT = "stall_timeout"
"""The stall timeout of ours, not a time limit of the library's."""
CONNECTION = "APIConnectionError"
"""The SDK's own word for a broken connection, used as well where it passes on the error of the transport."""

# The names of the SDK, httpx, requests and urllib3, aiohttp, and Python itself.
_TIMEOUTS = {"APITimeoutError", "TimeoutException", "TimeoutError", "Timeout"}
_CONNECTIONS = {
    *("APIConnectionError", "TransportError", "ConnectionError", "IncompleteRead"),
    *("ProtocolError", "NewConnectionError", "ChunkedEncodingError"),
    *("ClientConnectionError", "ClientPayloadError"),
}


def outcome_of(exc: BaseException) -> Outcome:
    """How a stream ended whose next chunk was this exception."""
    if _is(exc, _TIMEOUTS):
        return Outcome.TIMEOUT
    if not isinstance(exc, Exception) or type(exc).__name__ == "CancelledError":
        return Outcome.CANCELLED
    return Outcome.ERROR


def error_type_of(exc: BaseException) -> str:
    """The `error.type` of this exception: a word of low cardinality, never its message."""
    if isinstance(exc, StreamStalled):
        return STALL_TIMEOUT
    if _is(exc, _TIMEOUTS):
        return TIMEOUT
    if _is(exc, _CONNECTIONS):
        return CONNECTION
    return plain_name(type(exc).__name__)


def _is(exc: BaseException, names: set[str]) -> bool:
    return any(kind.__name__ in names for kind in type(exc).__mro__)
