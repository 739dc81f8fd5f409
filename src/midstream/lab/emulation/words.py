"""What emulated models say: one word a token, and tool calls that their schema allows. Prompts are not used."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_WORDS = re.findall(
    r"\w+",
    """
    the a so and then but slowly water light stone river morning was is had went came over under small
    old green quiet again it they we some many far near house road door hand voice time day night year
    word story long short first last every other between without about almost never always perhaps
    """,
)

PIECE = 4
"""Characters in one token of a tool call."""

OPENING_TOKENS = 8
"""Tokens that a model spends on a call before its arguments: the markup around the name."""


def word(choice: int, index: int) -> str:
    """Return the text of a token."""
    number = index * 7 + index // 5 + choice * 11
    return f" {_WORDS[number % len(_WORDS)]}" if index else _WORDS[number % len(_WORDS)].capitalize()


def words(choice: int, start: int, tokens: int) -> str:
    """Return the text of that many tokens, from the one at `start` on."""
    return "".join(word(choice, index) for index in range(start, start + tokens))


def arguments(schema: object, tokens: int | None) -> tuple[str, ...]:
    """Return the arguments of a call as JSON, cut into tokens: at least what the schema requires.

    With `tokens` the first string among them is stretched until the call has that many, opening included.
    """
    given: dict[str, Any] = {}
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        required = schema.get("required")
        if isinstance(properties, Mapping):
            names = required if isinstance(required, Sequence) else properties
            given = {str(name): _value(properties.get(name)) for name in names}
    text = json.dumps(given)
    missing = 0 if tokens is None else (tokens - OPENING_TOKENS) * PIECE - len(text)
    free = next(
        (name for name, value in given.items() if isinstance(value, str) and _is_free(schema, name)), None
    )
    if missing > 0 and free is not None:
        given[free] += words(0, 1, missing)[:missing]
        text = json.dumps(given)
    return tuple(text[at : at + PIECE] for at in range(0, len(text), PIECE))


def _is_free(schema: Any, name: str) -> bool:
    return "enum" not in schema["properties"].get(name, {})


def _value(schema: object) -> Any:
    if not isinstance(schema, Mapping):
        return "some"
    choices = schema.get("enum")
    if isinstance(choices, Sequence) and choices:
        return choices[0]
    kinds: dict[object, Any] = {
        "number": 1,
        "integer": 1,
        "boolean": True,
        "array": [],
        "object": {},
        "null": None,
    }
    kind = schema.get("type")
    return kinds.get(kind, "some") if isinstance(kind, str) else "some"
