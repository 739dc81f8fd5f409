"""How the values of a record are kept in a journal's row, each kind of them, and how they come back. Pure.

A row may hold anything, since a file can be damaged or made by others. Numbers that no stream has (a negative
duration, a start beyond the calendar) are refused here, so that readers of records need not check them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from midstream.stream.model import FreezeSpan, Outcome

Value: TypeAlias = "int | float | str | None"

LARGEST = 2**53
"""More than can be counted of anything here; up to it a count is exact as a float, and so in JSON, too."""
LONGEST_S = 1e9
"""About 31 years: no stream, and nothing in it, takes longer."""
LATEST = 1e11
"""Unix time of the year 5138: no stream begins later, and calendars go on for a while."""
LONGEST_TEXT = 10_000
"""Characters of one text. Writers store names of a few hundred at most."""
LONGEST_JSON = 1_000_000
ROUNDING_S = 1e-3
"""How far below 0 a difference of two readings of one clock may come out."""
_PHASES = ("text", "reasoning", "tool_call")
_SUSPICIONS = ("stall", "withheld", "unknown")


class DamagedRowError(ValueError):
    """A row that holds something that no record can."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a field is kept: as which SQL type, and how it gets there and back. `decode` raises DamagedRowError.

    `encode` raises ValueError or OverflowError for what `decode` would not take.
    """

    sql: str
    encode: Callable[[Any], Value]
    decode: Callable[[Any], Any]
    optional: bool = False


def _damaged(value: object) -> DamagedRowError:
    return DamagedRowError(f"a row holds a {type(value).__name__} where it cannot")


def _encode_text(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair is no text to SQLite


def _decode_text(value: Any) -> str:
    if type(value) is not str or len(value) > LONGEST_TEXT:
        raise _damaged(value)
    return value


def _decode_count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise _damaged(value)
    return value


def _decode_flag(value: Any) -> bool:
    if type(value) is not int or value not in {0, 1}:
        raise _damaged(value)
    return value == 1


def _decode_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _damaged(value)
    return value


def _encode_count(value: int) -> int:
    if not 0 <= value <= LARGEST:
        raise OverflowError("a count is below 0, or larger than any count can be")
    return int(value)


def _encode_claim(value: int | None) -> int | None:
    """A count that a server reported; one that is out of range is unknown."""
    return None if value is None or not 0 <= value <= LARGEST else int(value)


def _seconds_between(least: float, most: float) -> Kind:
    """A number of seconds; NaN lies between nothing."""

    def encode(value: float) -> float:
        if not least <= value <= most:
            raise ValueError("a time is none that a stream can have")
        return float(value)

    def decode(value: Any) -> float:
        if type(value) is not float or not least <= value <= most:
            raise _damaged(value)
        return value

    return Kind("REAL", encode, decode)


def _one_of(words: Sequence[str]) -> Callable[[Any], str]:
    known = frozenset(words)

    def decode(value: Any) -> str:
        if type(value) is not str or value not in known:
            raise _damaged(value)
        return value

    return decode


def _decode_outcome(value: Any) -> Outcome:
    try:
        return Outcome(value)
    except ValueError:
        raise _damaged(value) from None


def _encode_json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _decode_json(value: Any, kind: type) -> Any:
    if type(value) is not str or len(value) > LONGEST_JSON:
        raise _damaged(value)
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        raise _damaged(value) from None
    if type(found) is not kind:
        raise _damaged(found)
    return found


def _decode_attributes(value: Any) -> dict[str, str]:
    found: dict[str, str] = _decode_json(value, dict)
    return {_decode_text(name): _decode_text(text) for name, text in found.items()}


def _decode_finishes(value: Any) -> tuple[str | None, ...]:
    found = _decode_json(value, list)
    return tuple(None if text is None else _decode_text(text) for text in found)


def _encode_spans(spans: Sequence[FreezeSpan]) -> str:
    for span in spans:
        SHIFT.encode(span.at_s)
        SECONDS.encode(span.length_s)
    return _encode_json([asdict(span) for span in spans]) if spans else "[]"


def _decode_spans(value: Any) -> tuple[FreezeSpan, ...]:
    return tuple(_decode_span(span) for span in _decode_json(value, list))


def _decode_span(span: Any) -> FreezeSpan:
    try:
        return FreezeSpan(
            at_s=SHIFT.decode(span["at_s"]),
            length_s=SECONDS.decode(span["length_s"]),
            phase=_decode_phase(span["phase"]),
            hidden=_decode_bool(span["hidden"]),
            shared=_decode_bool(span["shared"]),
            open=_decode_bool(span["open"]),
        )
    except (KeyError, TypeError, ValueError):
        raise _damaged(span) from None


_decode_phase: Callable[[Any], Any] = _one_of(_PHASES)

TEXT = Kind("TEXT", _encode_text, _decode_text)
MOMENT = _seconds_between(0.0, LATEST)
SECONDS = _seconds_between(-ROUNDING_S, LONGEST_S)
SHIFT = _seconds_between(-LATEST, LATEST)
COUNT = Kind("INTEGER", _encode_count, _decode_count)
FLAG = Kind("INTEGER", int, _decode_flag)
OUTCOME = Kind("TEXT", str, _decode_outcome)
SUSPICION = Kind("TEXT", _encode_text, _one_of(_SUSPICIONS))
PHASE = Kind("TEXT", _encode_text, _decode_phase)
ATTRIBUTES = Kind("TEXT", lambda attributes: _encode_json(dict(attributes)), _decode_attributes)
FINISHES = Kind("TEXT", _encode_json, _decode_finishes)
SPANS = Kind("TEXT", _encode_spans, _decode_spans)


def or_none(kind: Kind) -> Kind:
    """The same kind where the value may be unknown."""
    return Kind(
        kind.sql,
        lambda value: None if value is None else kind.encode(value),
        lambda value: None if value is None else kind.decode(value),
        optional=True,
    )


CLAIM_OR_NONE = or_none(Kind("INTEGER", _encode_claim, _decode_count))
"""A count that a server reported."""
