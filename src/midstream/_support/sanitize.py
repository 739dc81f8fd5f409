"""Text of others, made fit to be shown: one line, nothing that steers a terminal, no secret, not too long."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from enum import Enum
from urllib.parse import quote

LONGEST = 200
LONGEST_NAME = 256
"""Characters of a name of others, such as a model's: it is stored with each stream and sent with each scrape."""
_LOOKED_AT = 20 * LONGEST
"""Characters of a text that are looked at: whatever stands behind so many is not shown anyway."""
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?", re.DOTALL)
_SHORTEST_SECRET = 4
"""A shorter value is no secret, and may be a part of any word."""
_HIDDEN = "***"
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|pass|session|sign|credential", re.IGNORECASE)


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
    """Return a text of others as it may be shown: one line, no control characters, no secret, not too long."""
    secrets = Secrets([secret] if secret else [])
    cut = len(text) > _LOOKED_AT
    if cut:  # what is cut in the middle of a secret would show its beginning
        text = text[: max(0, _LOOKED_AT - secrets.longest)]
    text = "".join(
        " " if char.isspace() else char
        for char in _ESCAPE.sub("", text)
        if char.isspace() or not unicodedata.category(char).startswith("C")
    )
    text = secrets.redact(" ".join(text.split()))
    return text if len(text) <= LONGEST and not cut else f"{text[: LONGEST - 1]}…"


def plain_name(value: object) -> str:
    """A name of others, as `valid_name` makes it, out of a value of any type; "" if that is no name.

    plain_name(Model.BIG)   # 'big-model', the value of a member of an enumeration, of `str` or not
    plain_name(None)        # ''
    """
    if isinstance(value, Enum) and not isinstance(value, str):
        value = value.value
    return valid_name(value) if isinstance(value, str) else ""


def printable(text: str) -> str:
    """Return a sentence as it may be written to a terminal: on one line, without anything that steers it.

    Every error message passes through here, since it may quote an argument, a file or a server.
    """
    return " ".join(valid_text(_ESCAPE.sub("", text)).split())


class Secrets:
    """Values that are sent to a server and never shown, in whatever form it sends them back.

    >>> Secrets(["sk-abcd1234"]).redact("invalid key SK-ABCD1234")
    'invalid key ***'
    """

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _forms(value) if len(form) >= _SHORTEST_SECRET}
        self.longest = max(map(len, forms), default=0)
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE) if forms else None

    def redact(self, text: str) -> str:
        """Return the text without any of them."""
        return text if self._pattern is None else self._pattern.sub(_HIDDEN, text)


def secret_headers(headers: Mapping[str, str]) -> list[str]:
    """Return the values of those headers that hold keys, tokens or cookies, going by their names."""
    return [value for name, value in headers.items() if _SECRET_HEADER.search(name)]


def _forms(value: str) -> Iterable[str]:
    """Yield the ways in which a value may come back: whole, without `Bearer`, and as a URL writes it."""
    for form in (value, value.rpartition(" ")[2]):
        yield form
        yield quote(form, safe="")
