"""Reads chunks of other SDKs, or of no SDK at all.

What looks like OpenAI's or Anthropic's is read as such. Of anything else only the timing is known: a chunk that holds
something is output, an empty one is not.
"""

from __future__ import annotations

from typing import Any

from midstream._support.sanitize import plain_name
from midstream.stream.chunks import NOTHING, REASONING, TEXT, TOOL_CALL, Reading, read_any
from midstream.stream.usage import Usage, field_of, read_usage, token_count

_EMPTY_EVENTS = {"ping", "keepalive", "message_stop", "content_block_stop"}
_DELTAS = {
    "text_delta": ("text", TEXT),
    "thinking_delta": ("thinking", REASONING),
    "input_json_delta": ("partial_json", TOOL_CALL),
}


def read_foreign(chunk: Any) -> Reading:
    """Read a chunk of unknown origin. A stream of plain text has no finish, so none is ever seen in it."""
    if chunk is None or isinstance(chunk, str | bytes | bytearray | list | tuple | set):
        return TEXT if chunk else NOTHING
    kind = field_of(chunk, "type")
    if isinstance(kind, str):
        if kind in _EMPTY_EVENTS:
            return NOTHING
        if kind in _ANTHROPIC:
            return _ANTHROPIC[kind](chunk)
        if kind == "error" or kind.startswith("response."):
            return read_any(chunk)
    if isinstance(field_of(chunk, "choices"), list) or field_of(chunk, "usage") or field_of(chunk, "error"):
        return read_any(chunk)
    return TEXT if chunk is not False and chunk != {} else NOTHING


def _message_start(event: Any) -> Reading:
    return Reading(usage=_usage(field_of(field_of(event, "message"), "usage")))


def _block_start(event: Any) -> Reading:
    # The start of a call carries its name: tokens were made, and the gap after it is inside the answer.
    block = field_of(event, "content_block")
    return (
        TOOL_CALL
        if field_of(block, "name") and str(field_of(block, "type")).endswith("tool_use")
        else NOTHING
    )


def _block_delta(event: Any) -> Reading:
    delta = field_of(event, "delta")
    field, reading = _DELTAS.get(str(field_of(delta, "type")), ("", NOTHING))
    return reading if field and field_of(delta, field) else NOTHING


def _message_delta(event: Any) -> Reading:
    reason = plain_name(field_of(field_of(event, "delta"), "stop_reason"))
    finishes = ((0, reason),) if reason else ()
    return Reading(finishes=finishes, usage=_usage(field_of(event, "usage")))


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
    cached, written = (
        token_count(field_of(usage, f"cache_{what}_input_tokens")) for what in ("read", "creation")
    )
    total = None if plain.input_tokens is None else plain.input_tokens + (cached or 0) + (written or 0)
    return Usage(token_count(total), plain.output_tokens, cached)
