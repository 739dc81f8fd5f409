"""The journal: an SQLite file with one row for each stream. Here it is read; `monitor(..., journal=PATH)` writes it.

    contents = read("streams.db", since=time.time() - 3600)
    for record in contents.records:
        print(record.request_model, record.max_gap_s)

Reading changes no file and blocks no writer; any number of processes may write meanwhile. `flush` waits for what this
process has still to write. `Journal` is the writer itself, for records that come from elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from midstream.journal._file import JournalError
from midstream.journal._kinds import LARGEST, DamagedRowError
from midstream.journal._reading import Reader, read_with
from midstream.journal._rows import COLUMNS, reader_of, with_valid_text
from midstream.journal._schema import OLD_NAMES
from midstream.journal.writer import Journal, flush
from midstream.stream.model import StreamRecord

__all__ = ["Journal", "JournalContents", "JournalError", "flush", "read", "read_records"]


@dataclass(frozen=True, slots=True)
class JournalContents:
    """What a journal holds of a span of time."""

    records: list[StreamRecord]
    """In the order in which their calls were made."""
    skipped: int
    """Rows that hold what no record can, and were left out."""
    dropped: int = 0
    """Records that writers had to drop in that time, because the journal could not be written fast enough or at all."""


_PROGRESS_EVERY = 4096


def read(
    path: str | os.PathLike[str],
    *,
    since: float | None = None,
    until: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> JournalContents:
    """Read the streams whose call was made from `since` on and before `until`, both in Unix seconds.

    `progress` is called every few thousand rows with the number of rows read so far.
    Raises JournalError, a ValueError, for a file that is absent, not a journal, of a newer version, or damaged.
    """
    file = Path(path).expanduser()
    return read_with(file, lambda reader: _contents(reader, since, until, progress))


def read_records(
    path: str | os.PathLike[str], *, since: float | None = None, until: float | None = None
) -> list[StreamRecord]:
    """Read the records alone, as `read` does."""
    return read(path, since=since, until=until).records


def _contents(
    reader: Reader, since: float | None, until: float | None, progress: Callable[[int], None] | None
) -> JournalContents:
    connection = reader.connection
    connection.text_factory = _text
    known = [row[1] for row in connection.execute("PRAGMA table_info(streams)")]
    if not known:
        return JournalContents([], 0)  # made a moment ago, and nothing written yet
    stored_as = {name: name if name in known else OLD_NAMES.get(name, name) for name in COLUMNS}
    names = [name for name, stored in stored_as.items() if stored in known]
    columns = [stored_as[name] for name in names]
    try:
        record_of = reader_of(names)
    except KeyError as missing:
        raise JournalError(f"{reader.path} is damaged: its table has no column {missing}") from None
    records, skipped = [], 0
    # A damaged start is of no time: it counts as damaged where all times are asked for.
    for number, row in enumerate(_rows(reader, "streams", columns, ("started_at", since, until))):
        if progress is not None and number % _PROGRESS_EVERY == 0:
            progress(number)
        try:
            records.append(with_valid_text(record_of(row)))
        except DamagedRowError:
            skipped += 1
    dropped = sum(
        count
        for (count,) in _rows(reader, "dropped", ["records"], ("at", since, until))
        if type(count) is int and 0 < count <= LARGEST
    )
    return JournalContents(records, skipped, dropped)


def _rows(
    reader: Reader, table: str, names: Sequence[str], span: tuple[str, float | None, float | None]
) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a span of time, oldest first. Raises JournalError if there are more than the file can hold.

    `span` is the column that holds the time, and the bounds of the span.
    """
    time, since, until = span
    wanted = {f"{time} >= ?": since, f"{time} < ?": until}
    bounds = {condition: bound for condition, bound in wanted.items() if bound is not None}
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    query = f"SELECT {', '.join(names)} FROM {table}{where} ORDER BY {time}, rowid"  # noqa: S608
    length = 0
    for number, row in enumerate(reader.connection.execute(query, tuple(bounds.values()))):
        length += sum(len(value) for value in row if isinstance(value, str | bytes))
        if number >= reader.most_rows or length > reader.most_bytes:
            raise reader.endless()
        yield row


def _text(raw: bytes) -> str | bytes:
    """Leave what is not text as bytes, so that only its own row is damaged."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
