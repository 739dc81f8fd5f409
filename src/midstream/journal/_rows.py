"""A record as a row of the journal, and back: which column holds what, and how. Pure.

Column names are the record's field names. What a column cannot hold (a count of tokens that none can be, half a
surrogate pair) is stored as unknown or with a replacement character; everything else comes back as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from itertools import chain
from typing import Any, Final

from midstream._support.sanitize import valid_text
from midstream.journal._kinds import (
    ATTRIBUTES,
    CLAIM_OR_NONE,
    COUNT,
    FINISHES,
    FLAG,
    MOMENT,
    OUTCOME,
    PHASE,
    SECONDS,
    SHIFT,
    SPANS,
    SUSPICION,
    TEXT,
    Kind,
    Value,
    or_none,
)
from midstream.stream.model import StreamRecord

_TEXT_OR_NONE = or_none(TEXT)
_SECONDS_OR_NONE = or_none(SECONDS)
_SHIFT_OR_NONE = or_none(SHIFT)

COLUMNS: Final[Mapping[str, Kind]] = {
    "started_at": MOMENT,
    "operation": TEXT,
    "provider": TEXT,
    "server_address": TEXT,
    "server_port": CLAIM_OR_NONE,
    "request_model": TEXT,
    "response_model": _TEXT_OR_NONE,
    "attributes": ATTRIBUTES,
    "outcome": OUTCOME,
    "error_type": _TEXT_OR_NONE,
    "finish_reasons": FINISHES,
    "duration_s": SECONDS,
    "waited_s": SECONDS,
    "held_s": SECONDS,
    "time_to_first_chunk_s": _SECONDS_OR_NONE,
    "time_to_first_content_s": _SECONDS_OR_NONE,
    "max_gap_s": _SECONDS_OR_NONE,
    "max_gap_at_s": _SHIFT_OR_NONE,
    "max_gap_phase": or_none(PHASE),
    "max_gap_open": FLAG,
    "freezes": COUNT,
    "frozen_s": SECONDS,
    "hidden": COUNT,
    "shared": COUNT,
    "suspected": SUSPICION,
    "max_interval_s": _SECONDS_OR_NONE,
    "wire_gap_s": _SECONDS_OR_NONE,
    "max_hold_s": _SECONDS_OR_NONE,
    "loop_blocked_s": _SECONDS_OR_NONE,
    "clock_jump_s": _SHIFT_OR_NONE,
    "stood_still_s": _SECONDS_OR_NONE,
    "tail_s": _SECONDS_OR_NONE,
    "chunks": COUNT,
    "content_chunks": COUNT,
    "input_tokens": CLAIM_OR_NONE,
    "output_tokens": CLAIM_OR_NONE,
    "cached_tokens": CLAIM_OR_NONE,
    "reasoning_tokens": CLAIM_OR_NONE,
    "usage_complete": FLAG,
    "token_limit": CLAIM_OR_NONE,
    "limit_hit": FLAG,
    "retries": CLAIM_OR_NONE,
    "buffered": FLAG,
    "trace_id": _TEXT_OR_NONE,
    "span_id": _TEXT_OR_NONE,
    "freeze_spans": SPANS,
    "freeze_after_s": _SECONDS_OR_NONE,
    "response_id": _TEXT_OR_NONE,
}
"""Every column beside the row's own number, in the order of the record's fields."""

_ENCODERS = tuple((name, kind.encode) for name, kind in COLUMNS.items())
_TEXTS = tuple(name for name, kind in COLUMNS.items() if kind is TEXT or kind is _TEXT_OR_NONE)
_DEFAULTS = {field.name: field.default for field in fields(StreamRecord) if field.default is not MISSING}


def with_valid_text(record: StreamRecord) -> StreamRecord:
    """Return the record with names that can be shown: a file of others may hold control characters."""
    changed: dict[str, Any] = {}
    for name in _TEXTS:
        text = getattr(record, name)
        if text is not None and not text.isprintable():
            changed[name] = valid_text(text)
    if not all(map(str.isprintable, chain(*record.attributes.items()))):
        changed["attributes"] = {
            valid_text(name): valid_text(value) for name, value in record.attributes.items()
        }
    if not all(reason is None or reason.isprintable() for reason in record.finish_reasons):
        reasons = record.finish_reasons
        changed["finish_reasons"] = tuple(None if each is None else valid_text(each) for each in reasons)
    return replace(record, **changed) if changed else record


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
