"""A record as a row of the journal, and back: which column holds what, and how. Pure.

Column names are the record's field names. What a column cannot hold (a count beyond 64 bits, half a surrogate pair) is
stored as unknown or with a replacement character; everything else comes back as it was.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Final, TypeAlias

from midstream._model import FreezeSpan, Outcome, StreamRecord

Value: TypeAlias = "int | float | str | None"

LARGEST = 2**63 - 1
_PHASES = ("text", "reasoning", "tool_call")
_SUSPICIONS = ("stall", "withheld", "unknown")


class DamagedRowError(ValueError):
    """A row that holds something that no record can."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a field is kept: as which SQL type, and how it gets there and back. `decode` raises DamagedRowError."""

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
    if type(value) is not str:
        raise _damaged(value)
    return value


def _decode_seconds(value: Any) -> float:
    if type(value) is not float or not math.isfinite(value):
        raise _damaged(value)
    return value


def _decode_count(value: Any) -> int:
    if type(value) is not int:
        raise _damaged(value)
    return value


def _decode_flag(value: Any) -> bool:
    if type(value) is not int or value not in {0, 1}:
        raise _damaged(value)
    return value == 1


def _encode_count(value: int) -> int:
    if not -LARGEST <= value <= LARGEST:
        raise OverflowError("a count is beyond 64 bits")
    return int(value)


def _encode_claim(value: int | None) -> int | None:
    """A count that somebody else claims; what no count can be is not known."""
    return None if value is None or not -LARGEST <= value <= LARGEST else int(value)


def _encode_seconds(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a duration is not finite")
    return float(value)


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
    try:
        found = json.loads(_decode_text(value))
    except (ValueError, RecursionError):
        raise _damaged(value) from None
    if type(found) is not kind:
        raise _damaged(found)
    return found


def _decode_attributes(value: Any) -> dict[str, str]:
    found: dict[str, str] = _decode_json(value, dict)
    for text in found.values():
        _decode_text(text)
    return found


def _decode_finishes(value: Any) -> tuple[str | None, ...]:
    found = _decode_json(value, list)
    return tuple(None if text is None else _decode_text(text) for text in found)


def _encode_spans(spans: Sequence[FreezeSpan]) -> str:
    return _encode_json([asdict(span) for span in spans]) if spans else "[]"


def _decode_spans(value: Any) -> tuple[FreezeSpan, ...]:
    return tuple(_decode_span(span) for span in _decode_json(value, list))


def _decode_span(span: Any) -> FreezeSpan:
    try:
        return FreezeSpan(
            at_s=_decode_seconds(span["at_s"]),
            length_s=_decode_seconds(span["length_s"]),
            phase=_decode_phase(span["phase"]),
            hidden=_decode_flag(int(span["hidden"])),
            shared=_decode_flag(int(span["shared"])),
            open=_decode_flag(int(span["open"])),
        )
    except (KeyError, TypeError, ValueError):
        raise _damaged(span) from None


_decode_phase: Callable[[Any], Any] = _one_of(_PHASES)

_TEXT = Kind("TEXT", _encode_text, _decode_text)
_SECONDS = Kind("REAL", _encode_seconds, _decode_seconds)
_COUNT = Kind("INTEGER", _encode_count, _decode_count)
_FLAG = Kind("INTEGER", int, _decode_flag)
_OUTCOME = Kind("TEXT", str, _decode_outcome)
_SUSPICION = Kind("TEXT", _encode_text, _one_of(_SUSPICIONS))
_PHASE = Kind("TEXT", _encode_text, _decode_phase)
_ATTRIBUTES = Kind("TEXT", lambda attributes: _encode_json(dict(attributes)), _decode_attributes)
_FINISHES = Kind("TEXT", _encode_json, _decode_finishes)
_SPANS = Kind("TEXT", _encode_spans, _decode_spans)


def _or_none(kind: Kind) -> Kind:
    return Kind(
        kind.sql,
        lambda value: None if value is None else kind.encode(value),
        lambda value: None if value is None else kind.decode(value),
        optional=True,
    )


_TEXT_OR_NONE = _or_none(_TEXT)
_SECONDS_OR_NONE = _or_none(_SECONDS)
_COUNT_OR_NONE = _or_none(Kind("INTEGER", _encode_claim, _decode_count))

COLUMNS: Final[Mapping[str, Kind]] = {
    "started_at": _SECONDS,
    "operation": _TEXT,
    "provider": _TEXT,
    "server_address": _TEXT,
    "server_port": _COUNT_OR_NONE,
    "request_model": _TEXT,
    "response_model": _TEXT_OR_NONE,
    "attributes": _ATTRIBUTES,
    "outcome": _OUTCOME,
    "error_type": _TEXT_OR_NONE,
    "finish_reasons": _FINISHES,
    "duration_s": _SECONDS,
    "waited_s": _SECONDS,
    "held_s": _SECONDS,
    "time_to_first_chunk_s": _SECONDS_OR_NONE,
    "time_to_first_content_s": _SECONDS_OR_NONE,
    "max_gap_s": _SECONDS_OR_NONE,
    "max_gap_at_s": _SECONDS_OR_NONE,
    "max_gap_phase": _or_none(_PHASE),
    "max_gap_open": _FLAG,
    "freezes": _COUNT,
    "frozen_s": _SECONDS,
    "hidden": _COUNT,
    "shared": _COUNT,
    "suspected": _SUSPICION,
    "max_interval_s": _SECONDS_OR_NONE,
    "wire_gap_s": _SECONDS_OR_NONE,
    "max_hold_s": _SECONDS_OR_NONE,
    "loop_blocked_s": _SECONDS_OR_NONE,
    "clock_jump_s": _SECONDS_OR_NONE,
    "stood_still_s": _SECONDS_OR_NONE,
    "tail_s": _SECONDS_OR_NONE,
    "chunks": _COUNT,
    "content_chunks": _COUNT,
    "input_tokens": _COUNT_OR_NONE,
    "output_tokens": _COUNT_OR_NONE,
    "cached_tokens": _COUNT_OR_NONE,
    "reasoning_tokens": _COUNT_OR_NONE,
    "usage_complete": _FLAG,
    "token_limit": _COUNT_OR_NONE,
    "limit_hit": _FLAG,
    "retries": _COUNT_OR_NONE,
    "buffered": _FLAG,
    "trace_id": _TEXT_OR_NONE,
    "span_id": _TEXT_OR_NONE,
    "spans": _SPANS,
}
"""Every column beside the row's own number, in the order of the record's fields."""

_ENCODERS = tuple((name, kind.encode) for name, kind in COLUMNS.items())
_DEFAULTS = {field.name: field.default for field in fields(StreamRecord) if field.default is not MISSING}


def row_of(record: StreamRecord) -> tuple[Value, ...]:
    """The values of a record's row, in the order of COLUMNS. Raises if the record is none that midstream makes."""
    return tuple(encode(getattr(record, name)) for name, encode in _ENCODERS)


def reader_of(names: Sequence[str]) -> Callable[[Sequence[Any]], StreamRecord]:
    """What turns rows with these columns into records; a journal of an older version may not have all of them.

    The function raises DamagedRowError. KeyError here if a column is missing that every record needs.
    """
    decoders = tuple((name, COLUMNS[name].decode) for name in names)
    absent: dict[str, Any] = {}
    for name in COLUMNS.keys() - set(names):
        if name not in _DEFAULTS and not COLUMNS[name].optional:
            raise KeyError(name)
        absent[name] = _DEFAULTS.get(name)

    def record(row: Sequence[Any]) -> StreamRecord:
        values = {name: decode(value) for (name, decode), value in zip(decoders, row, strict=True)}
        return StreamRecord(**values, **absent)

    return record
