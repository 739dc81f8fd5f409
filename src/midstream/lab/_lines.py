"""Reads the lines of a recording strictly, so that an error names file, line and remedy."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from midstream._support.foreign import ForeignError, json_of, number
from midstream._support.sanitize import clean, valid_name

LONGEST_S = 1e6
"""More than a week: no recording lasts longer."""


class RecordingError(ValueError):
    """A recording that cannot be used; the message says where it is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class RecordingLine:
    """One line of a recording: a JSON object with its file and line number."""

    source: str
    number: int
    fields: Mapping[str, object]

    def wrong(self, what: str) -> RecordingError:
        """Return an error about this line, for the caller to raise."""
        return RecordingError(f"{self.source}, line {self.number}: {what}")

    def keys_within(self, known: Collection[str]) -> None:
        """Refuse unknown fields."""
        unknown = sorted(set(self.fields) - set(known))
        if unknown:
            raise self.wrong(f"unknown field `{clean(unknown[0])}`; only {_listed(known)} can stand here")

    def seconds(self, key: str, *, not_before: float = 0.0) -> float:
        """Return a time that lies not before another."""
        return self.in_order(key, self.fields.get(key), not_before)

    def in_order(self, key: str, value: object, not_before: float) -> float:
        """Return `value` as seconds, once it is known to be a time not before `not_before`."""
        seconds = None if isinstance(value, str) else number(value, most=LONGEST_S)
        if seconds is None:
            raise self.wrong(f"`{key}` must be a number of seconds, got {shown(value)}")
        if seconds < not_before:
            raise self.wrong(f"`{key}` is {seconds}, before {not_before}; times must never go backwards")
        return seconds

    def text(self, key: str) -> str:
        """Return a string field."""
        value = self.fields.get(key)
        if not isinstance(value, str):
            raise self.wrong(f"`{key}` must be a string, got {shown(value)}")
        return value

    def name(self, key: str) -> str:
        """Return a string field that is shown: one line without control characters."""
        return valid_name(self.text(key))

    def inside(self, key: str) -> RecordingLine:
        """Return an object field, as part of this line."""
        value = self.fields.get(key)
        if not isinstance(value, dict):
            raise self.wrong(f"`{key}` must be an object, got {shown(value)}")
        return RecordingLine(self.source, self.number, value)


def read_lines(text: str, source: str) -> list[RecordingLine]:
    """Return every line of a recording; `source` names the file in errors."""
    rows = text.removesuffix("\n").split("\n")
    if rows == [""]:
        raise RecordingError(f"{source} is empty; record it again, or leave it out")
    return [_line(row, source, number) for number, row in enumerate(rows, start=1)]


def _line(row: str, source: str, number: int) -> RecordingLine:
    here = RecordingLine(source, number, {})
    try:
        fields = json_of(row)
    except ForeignError as error:
        reason = getattr(error.__cause__, "msg", "it is nested too deeply, or holds too much")
        raise here.wrong(f"not JSON ({reason}); each line is one JSON object: repair or delete it") from None
    if not isinstance(fields, dict):
        raise here.wrong(f"each line must be one JSON object, got {shown(fields)}")
    return RecordingLine(source, number, fields)


def _listed(words: Collection[str]) -> str:
    return ", ".join(f"`{clean(word)}`" for word in sorted(words))


def shown(value: object) -> str:
    """Return a value as JSON, short enough for a message."""
    if value is None:
        return "nothing"
    shown = clean(json.dumps(value))
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
