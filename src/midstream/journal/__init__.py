"""The journal: an SQLite file with one row for each stream. Here it is read; `monitor(..., journal=PATH)` writes it.

    contents = read("streams.db", since=time.time() - 3600)
    for record in contents.records:
        print(record.request_model, record.max_gap_s)

Reading changes nothing and holds nobody up; any number of processes may write meanwhile. `flush` waits for what this
process has still to write. `Journal` is the writer itself, for records that come from elsewhere.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from midstream._support.journals import flush
from midstream.journal._file import JournalError, open_to_read, unreadable
from midstream.journal._kinds import DamagedRowError
from midstream.journal._rows import COLUMNS, reader_of
from midstream.journal._writer import Journal
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


def read(
    path: str | os.PathLike[str], *, since: float | None = None, until: float | None = None
) -> JournalContents:
    """Read the streams whose call was made from `since` on and before `until`, both in Unix seconds.

    Raises JournalError, a ValueError, for a file that is absent, not a journal, of a newer version, or damaged.
    """
    import sqlite3  # noqa: PLC0415 - whoever never reads a journal does not pay for it

    file = Path(path).expanduser()
    span = (-math.inf if since is None else since, math.inf if until is None else until)
    connection = open_to_read(file)
    try:
        connection.text_factory = _text
        known = [row[1] for row in connection.execute("PRAGMA table_info(streams)")]
        names = [name for name in COLUMNS if name in known]
        if not known:
            return JournalContents([], 0)  # made a moment ago, and nothing written yet
        records, skipped = _decoded(
            iter(
                connection.execute(
                    f"SELECT {', '.join(names)} FROM streams WHERE started_at >= ? AND started_at < ? "  # noqa: S608
                    "ORDER BY started_at, id",
                    span,
                )
            ),
            names,
        )
        query = "SELECT coalesce(sum(records), 0) FROM dropped WHERE at >= ? AND at < ?"
        (dropped,) = connection.execute(query, span).fetchone()
    except KeyError as missing:
        raise JournalError(f"{file} is damaged: its table has no column {missing}") from None
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise unreadable(file, error) from None
    finally:
        connection.close()
    return JournalContents(records, skipped, dropped)


def read_records(
    path: str | os.PathLike[str], *, since: float | None = None, until: float | None = None
) -> list[StreamRecord]:
    """Read the records alone, as `read` does."""
    return read(path, since=since, until=until).records


def _decoded(rows: Iterator[tuple[object, ...]], names: list[str]) -> tuple[list[StreamRecord], int]:
    record_of, records, skipped = reader_of(names), [], 0
    for row in rows:
        try:
            records.append(record_of(row))
        except DamagedRowError:  # noqa: PERF203 - one row must not spoil the others
            skipped += 1
    return records, skipped


def _text(raw: bytes) -> str | bytes:
    """What is no text stays bytes, so that it spoils its own row and no other."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
