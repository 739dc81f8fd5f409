"""Reads one event of an answer's body: OpenAI's, Anthropic's or Ollama's JSON. Pure; no text is kept.

Most events of an answer differ in their text alone. `Steady` recognises such an event by its bytes, without a JSON
parser: the bytes before the text and after it are those of an event that was parsed, and the text needs no unescaping.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from midstream.stream.chunks import ERROR_EVENT, NOTHING, REASONING, TEXT, TOOL_CALL, Reading
from midstream.stream.generic_chunks import read_foreign
from midstream.stream.usage import Usage, token_count

DONE = b"[DONE]"
"""The data of the event that ends a stream of OpenAI's protocol. It is no chunk."""

_STEADY = (TEXT, REASONING, TOOL_CALL)
_TEXT_FIELDS = (
    b'"content":',
    b'"reasoning_content":',
    b'"reasoning":',
    b'"text":',
    b'"thinking":',
    b'"delta":',
    b'"response":',
    b'"arguments":',
    b'"partial_json":',
)
_ATTEMPTS = 4
"""How often a stream's events are tried to be recognised by their bytes before that is given up."""


def parse_event(name: bytes, data: bytes) -> Any:
    """The JSON object of an event; None if it is none. An event named `error` is an error whatever it holds."""
    try:
        value = json.loads(data)
    except (
        ValueError,
        RecursionError,
    ):  # no JSON, half a character, a number without end, nested without end
        value = None
    if name == b"error" and not (isinstance(value, dict) and ("error" in value or "type" in value)):
        return {"error": value if value is not None else True}
    return value if isinstance(value, dict) else None


def read_event(value: Any) -> Reading:
    """Read an event of OpenAI's or Anthropic's protocol. What is no JSON object carries no output."""
    return read_foreign(value) if isinstance(value, dict) and value else NOTHING


def is_last(value: Any) -> bool:
    """Whether no event comes after this one: Anthropic's `message_stop`, Ollama's line with `done`."""
    return isinstance(value, dict) and (value.get("type") == "message_stop" or value.get("done") is True)


def read_ollama(value: Any) -> Reading:
    """Read a line of Ollama's `/api/chat` or `/api/generate`: its last one has `done`, a reason, and the counts."""
    if not isinstance(value, dict):
        return NOTHING
    if value.get("error"):
        return Reading(error=ERROR_EVENT)
    message = value.get("message")
    source = message if isinstance(message, dict) else value
    plain = NOTHING
    if source.get("content") or (source is value and value.get("response")) or source.get("images"):
        plain = TEXT
    elif source.get("tool_calls"):
        plain = TOOL_CALL
    elif source.get("thinking"):
        plain = REASONING
    if value.get("done") is not True:
        return plain
    reason = value.get("done_reason")
    usage = Usage(token_count(value.get("prompt_eval_count")), token_count(value.get("eval_count")))
    return Reading(
        plain.phase,
        plain.choices,
        ((0, reason if isinstance(reason, str) and reason else "stop"),),
        usage if usage.input_tokens is not None or usage.output_tokens is not None else None,
    )


def _is_utf8(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


class Steady:
    """Recognises the events of one stream that differ from an earlier one in nothing but their text."""

    __slots__ = ("_after", "_attempts", "_before", "reading")

    def __init__(self) -> None:
        self._before = b""
        self._after = b""
        self._attempts = _ATTEMPTS
        self.reading: Reading | None = None
        """What such an event says; None as long as none can be recognised."""

    def run(self, piece: bytes, start: int = 0) -> tuple[int, int]:
        """How many such events stand in a row from `start` on, and where the last of them ends.

        The text of each is not empty, and holds no quote, no escape, no line end and no half character.
        """
        if self.reading is None:
            return 0, start
        before, after, find = self._before, self._after, piece.find
        ascii_only = piece.isascii()
        count = 0
        while piece.startswith(before, start):
            text = start + len(before)
            end = find(b'"', text)
            if (
                end <= text
                or not piece.startswith(after, end)
                or find(b"\\", text, end) >= 0
                or find(b"\n", text, end) >= 0
                or find(b"\r", text, end) >= 0
                or not (ascii_only or _is_utf8(piece[text:end]))
            ):
                break
            count += 1
            start = end + len(after)
        if count:
            self._attempts = _ATTEMPTS
        return count, start

    def learn(self, piece: bytes, reading: Reading, read_piece: Callable[[bytes], Reading]) -> None:
        """Take this piece, one whole event that said `reading`, as the pattern, if its text can be located.

        Located is right if the same bytes with another text say the same, and with no text say nothing.
        """
        if self._attempts <= 0 or reading not in _STEADY:
            return
        self._attempts -= 1
        self.reading = None
        for field in _TEXT_FIELDS:
            at = piece.rfind(field)
            start = piece.find(b'"', at + len(field)) + 1 if at >= 0 else 0
            if not start or piece[at + len(field) : start - 1].strip():
                continue
            end = piece.find(b'"', start)
            if end < 0 or piece.find(b"\\", start, end) >= 0:
                continue
            before, after = piece[:start], piece[end:]
            if read_piece(before + b"x" + after) is reading and read_piece(before + after) == NOTHING:
                self._before, self._after, self.reading = before, after, reading
                return
