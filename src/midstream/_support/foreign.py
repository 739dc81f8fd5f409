"""What comes from outside, as values: numbers, counts, JSON. What is none of them is None, or a ForeignError.

Servers, files and users can write anything. Types and ranges are checked here, so that the code behind this boundary
has only finite numbers and text that can be encoded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

LARGEST = 2.0**53
"""No count of anything here is larger; up to it a count is exact as a float."""
MOST_CONTAINERS = 300_000
"""Objects and lists in one JSON text: each takes some hundred bytes of memory, and two of the text."""
_DIGITS = 18
_SURROGATE = re.compile("[\ud800-\udfff]")


class ForeignError(ValueError):
    """A text from outside that is not what it should be."""


def number(value: object, *, least: float = -math.inf, most: float = math.inf) -> float | None:
    """Return a finite number between two bounds, given as a number or as text; None for anything else.

    NaN, infinities and booleans are None. So is a number that no float can hold.

    >>> number("1.5"), number(2), number("NaN"), number(10**400), number(True)
    (1.5, 2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) and least <= found <= most else None


def count(value: object) -> int | None:
    """Return a whole number from 0 to LARGEST, given as a number or as digits; None for anything else.

    >>> count("12"), count(3.0), count(-1), count("9" * 5000)
    (12, 3, None, None)
    """
    found = number(value, least=0.0, most=LARGEST)
    return int(found) if found is not None and found.is_integer() else None


def json_of(text: str, redact: Callable[[str], str] | None = None) -> Any:
    """Read JSON. Raises ForeignError for what is none, is nested too deeply, or holds too many objects and lists.

    Integers of more than 18 digits become floats. Half a surrogate pair becomes a replacement character. `redact` is
    applied to each text that was written with an escape, so that a secret cannot hide behind one.
    """
    if text.count("{") + text.count("[") > MOST_CONTAINERS:
        raise ForeignError("it holds too many objects and lists")
    try:
        found = json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise ForeignError("it is not JSON, or nested too deeply") from error
    return _mended(found, redact) if "\\u" in text else found


def without_surrogates(text: str) -> str:
    """Return the text with halves of surrogate pairs replaced, so that it can be encoded."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS else float(digits)


def _mended(root: Any, redact: Callable[[str], str] | None) -> Any:
    """Mend every text in what JSON gave, without recursion."""

    def text(value: str) -> str:
        mended = without_surrogates(value)
        return mended if redact is None else redact(mended)

    def value(old: Any) -> Any:
        if isinstance(old, str):
            return text(old)
        if isinstance(old, dict | list):
            waiting.append(old)
        return old

    waiting: list[Any] = []
    result = value(root)
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            each[:] = [value(old) for old in each]
        else:
            items = [(text(name), value(old)) for name, old in each.items()]
            each.clear()
            each.update(items)
    return result
