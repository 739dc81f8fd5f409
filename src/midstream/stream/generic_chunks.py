"""What a chunk of another SDK says, or of no SDK at all.

What looks like OpenAI's or Anthropic's is read as such. For anything else only the timing can be told: a chunk that
holds something is output, an empty one is not.
"""

from __future__ import annotations

from typing import Any

from midstream.stream.chunks import (
    NOTHING,
    REASONING,
    TEXT,
    TOOL_CALL,
    Reading,
    Usage,
    read_any,
    read_usage,
)
from midstream.stream.model import MAX_COUNT

_SILENT = {"ping", "keepalive", "message_stop", "content_block_stop"}
_DELTAS = {
    "text_delta": ("text", TEXT),
    "thinking_delta": ("thinking", REASONING),
    "input_json_delta": ("partial_json", TOOL_CALL),
}


def read_foreign(chunk: Any) -> Reading:
    """Read a chunk of unknown origin. A stream of plain text has no finish, so none is ever seen in it."""
    if chunk is None or isinstance(chunk, str | bytes | bytearray | list | tuple | set):
        return TEXT if chunk else NOTHING
    kind = _get(chunk, "type")
    if isinstance(kind, str):
        if kind in _SILENT:
            return NOTHING
        if kind in _ANTHROPIC:
            return _ANTHROPIC[kind](chunk)
        if kind == "error" or kind.startswith("response."):
            return read_any(chunk)
    if isinstance(_get(chunk, "choices"), list) or _get(chunk, "usage") or _get(chunk, "error"):
        return read_any(chunk)
    return TEXT if chunk is not False and chunk != {} else NOTHING


def _message_start(event: Any) -> Reading:
    return Reading(usage=_usage(_get(_get(event, "message"), "usage")))


def _block_start(event: Any) -> Reading:
    # The start of a call carries its name: tokens were made, and the silence after it is inside the answer.
    block = _get(event, "content_block")
    return TOOL_CALL if _get(block, "name") and str(_get(block, "type")).endswith("tool_use") else NOTHING


def _block_delta(event: Any) -> Reading:
    delta = _get(event, "delta")
    field, reading = _DELTAS.get(str(_get(delta, "type")), ("", NOTHING))
    return reading if field and _get(delta, field) else NOTHING


def _message_delta(event: Any) -> Reading:
    reason = _get(_get(event, "delta"), "stop_reason")
    finishes = ((0, reason),) if isinstance(reason, str) and reason else ()
    return Reading(finishes=finishes, usage=_usage(_get(event, "usage")))


_ANTHROPIC = {
    "message_start": _message_start,
    "content_block_start": _block_start,
    "content_block_delta": _block_delta,
    "message_delta": _message_delta,
}


def _usage(usage: Any) -> Usage | None:
    """Anthropic counts what it read from its cache, and wrote to it, beside the input and not in it."""
    plain = read_usage(usage)
    if plain is None:
        return None
    cached, written = (_count(_get(usage, f"cache_{what}_input_tokens")) for what in ("read", "creation"))
    total = None if plain.input_tokens is None else plain.input_tokens + (cached or 0) + (written or 0)
    return Usage(total, plain.output_tokens, cached)


def _count(value: Any) -> int | None:
    return value if value.__class__ is int and 0 <= value <= MAX_COUNT else None


def _get(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)
