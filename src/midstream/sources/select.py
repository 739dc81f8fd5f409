"""Which streams of a journal are meant: a span of time, and what their names and attributes must be."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from midstream._support.foreign import without_surrogates
from midstream.journal import JournalContents, read
from midstream.stream.model import StreamRecord

JOURNAL = "MIDSTREAM_JOURNAL"
"""The variable that names the journal where no option does."""

Condition: TypeAlias = Callable[[StreamRecord], bool]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhdw])(?: ago)?")
LONGEST_AGO_S = 100 * 365.25 * 86400
_MOMENTS = "write 30m, 2h or 7d for so long ago, or a time such as 2026-11-01 or 2026-11-01T14:30"

_FIELDS: Mapping[str, Callable[[StreamRecord], object]] = {
    "model": lambda record: record.request_model,
    "server": lambda record: record.server_address,
    "port": lambda record: record.server_port,
    "operation": lambda record: record.operation,
    "provider": lambda record: record.provider,
    "outcome": lambda record: record.outcome.value,
    "phase": lambda record: record.max_gap_phase,
}


class SelectionError(ValueError):
    """What was asked for cannot be had; its message is one sentence with the remedy."""


def moment(text: str, now: float) -> float:
    """Return the Unix time in seconds that is meant: so long before `now`, or a time in ISO 8601.

    A time without an offset is local time. Raises SelectionError for anything else.
    """
    written = text.strip()
    ago = _AGO.fullmatch(written)
    if ago:
        seconds = float(ago[1]) * _UNITS[ago[2]]
        if not seconds <= LONGEST_AGO_S:
            raise SelectionError(f"{text!r} is longer ago than any stream; {_MOMENTS}")
        return now - seconds
    if written == "now":
        return now
    # Python 3.10 knows no Z.
    iso = re.sub(r"[zZ]$", "+00:00", written)
    try:
        return datetime.fromisoformat(iso).timestamp()  # what is naive is local
    except (ValueError, OverflowError, OSError):
        raise SelectionError(f"{text!r} is not a valid time; {_MOMENTS}") from None


def span(since: str | None, until: str | None, now: float) -> tuple[float | None, float | None]:
    """Return the Unix times of both ends, None for an open one. Raises SelectionError if nothing lies between."""
    start = None if since is None else moment(since, now)
    end = None if until is None else moment(until, now)
    if start is not None and end is not None and start >= end:
        raise SelectionError(f"{since!r} is not before {until!r}, so that nothing lies between")
    return start, end


def condition_parts(text: str) -> tuple[str, str, str]:
    """Return the name, the operator (`=` or `!=`) and the value of a condition. Raises SelectionError."""
    matched = re.fullmatch(r"([^=!\s]+)\s*(!?=)(.*)", text.strip(), re.DOTALL)
    if matched is None or not matched[3].strip():
        raise SelectionError(
            f"{text!r} is not NAME=VALUE; write model=..., server=..., operation=..., or an attribute of yours"
        )
    if text != without_surrogates(text):
        raise SelectionError(f"{text!r} is not text in UTF-8; write it in the encoding of this terminal")
    return matched[1], matched[2], matched[3].strip()


def condition(text: str) -> Condition:
    """Read `NAME=VALUE`, or `NAME!=VALUE`: a name of ours such as `model`, or an attribute such as `team`.

    Raises SelectionError if it is neither.
    """
    name, operator, value = condition_parts(text)
    read = _FIELDS.get(name)

    def holds(record: StreamRecord) -> bool:
        found = read(record) if read is not None else record.attributes.get(name)
        return (found is not None and str(found) == value) == (operator == "=")

    return holds


def attribute_of(text: str) -> str | None:
    """Return the attribute that a `NAME=VALUE` is about; None if NAME is one of ours, such as `model`."""
    name = re.split(r"!?=", text, maxsplit=1)[0].strip()
    return None if name in _FIELDS else name


def journal_path(journal: Path | None) -> Path:
    """Return the journal that is meant. Raises ValueError if none is named anywhere."""
    named = journal if journal is not None else os.environ.get(JOURNAL, "").strip()
    if not named or named == Path():  # `--journal "$UNSET"` is no path, and Path takes it for this directory
        raise ValueError(
            f"no journal is named; give --journal FILE, or set {JOURNAL} as in the program that writes it"
        )
    return Path(named)


def contents_from(
    journal: Path | None,
    since: str | None,
    until: str | None,
    where: Sequence[str],
    progress: Callable[[int], None] | None = None,
) -> JournalContents:
    """Return what the journal holds of this span of time, with the streams that meet every condition, oldest first.

    `progress` is called now and then with the number of streams read so far.

    None as the journal is the one in MIDSTREAM_JOURNAL. Raises SelectionError for the last three, ValueError if no
    journal is named, and the journal's own JournalError: all are ValueErrors whose message is one sentence.
    """
    conditions = [condition(text) for text in where]
    start, end = span(since, until, time.time())
    contents = read(journal_path(journal), since=start, until=end, progress=progress)
    chosen = [record for record in contents.records if all(holds(record) for holds in conditions)]
    return replace(contents, records=chosen)
