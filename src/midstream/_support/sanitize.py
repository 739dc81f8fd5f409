"""Names and sentences of others, made fit to be shown: one line, nothing that steers a terminal, not too long."""

from __future__ import annotations

import re
import unicodedata
from enum import Enum

LONGEST = 200
LONGEST_NAME = 256
"""Characters of a name of others, such as a model's: it is stored with each stream and sent with each scrape."""
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?", re.DOTALL)


def valid_text(text: str) -> str:
    """A plain `str` of the same text that can be encoded and has no control characters.

    White space of any kind becomes a space; everything else that is not printable, such as a lone surrogate, U+FFFD.
    """
    if text.__class__ is not str:
        text = str.__str__(text)  # the value of an enumeration's member, and not its name
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in text)


def valid_name(text: str) -> str:
    """A name of others as it may be stored, logged and exported: valid text of at most `LONGEST_NAME` characters."""
    return valid_text(text[:LONGEST_NAME])


def clean(text: str, secret: str | None = None) -> str:
    """Return a text of somebody else as it may be shown: one line, no control characters, no secret, not too long."""
    text = "".join(
        " " if char.isspace() else char
        for char in _ESCAPE.sub("", text)
        if char.isspace() or not unicodedata.category(char).startswith("C")
    )
    text = " ".join(text.split())
    if secret:
        text = text.replace(secret, "***")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def plain_name(value: object) -> str:
    """A name of others, as `valid_name` makes it, out of a value of any type; "" if that is no name.

    plain_name(Model.BIG)   # 'big-model', the value of a member of an enumeration, of `str` or not
    plain_name(None)        # ''
    """
    if isinstance(value, Enum) and not isinstance(value, str):
        value = value.value
    return valid_name(value) if isinstance(value, str) else ""
