"""What the proxy itself writes into an answer: an error in the protocol of the answer, and comments. Pure.

Both are written only between two events of an answer that is neither compressed nor of a fixed length.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from midstream.stream.stalled import StreamStalled

COMMENT = b": keep-alive\n\n"
CODE = "stall_timeout"
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class EventBoundary:
    """Whether what was passed on so far ends where an event ends. Keeps the last four bytes."""

    __slots__ = ("_ends", "_last")

    def __init__(self, content_type: str) -> None:
        is_events = content_type.lower().startswith("text/event-stream")
        self._ends = _EVENT_ENDS if is_events else (b"\n",)
        self._last = self._ends[0]

    def passed(self, piece: bytes) -> None:
        """One more piece was passed on."""
        self._last = piece[-4:] if len(piece) >= 4 else (self._last + piece)[-4:]

    @property
    def is_here(self) -> bool:
        """Whether something else may be written now."""
        return self._last.endswith(self._ends)


def stall_event(path: str, content_type: str, stalled: StreamStalled, events: int) -> bytes:
    """The error that ends a stalled answer, as the protocol of this path has it. `events`: how many came before."""
    waited = "no output" if stalled.content_chunks else "no first output"
    message = f"The model server has sent {waited} for {stalled.gap_s:.1f} s (stall timeout)."
    if not content_type.lower().startswith("text/event-stream"):
        return json.dumps({"error": message}).encode() + b"\n"
    write = next(
        (write for ending, write in _PROTOCOLS.items() if path.rstrip("/").endswith(ending)), _openai
    )
    return write(message, events)


def _openai(message: str, _: int) -> bytes:
    return _data({"error": {"message": message, "type": "timeout_error", "param": None, "code": CODE}})


def _responses(message: str, events: int) -> bytes:
    error = {"type": "error", "code": CODE, "message": message, "param": None, "sequence_number": events}
    return b"event: error\n" + _data(error)


def _anthropic(message: str, _: int) -> bytes:
    return b"event: error\n" + _data(
        {"type": "error", "error": {"type": "timeout_error", "message": message}}
    )


def _data(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


_PROTOCOLS: dict[str, Callable[[str, int], bytes]] = {"/responses": _responses, "/messages": _anthropic}
