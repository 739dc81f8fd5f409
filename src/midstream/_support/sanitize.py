"""Names and sentences of others, made fit to be shown: one line, nothing that steers a terminal, not too long."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 200
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?", re.DOTALL)


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
