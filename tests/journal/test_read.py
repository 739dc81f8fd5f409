"""Reading a journal: what is in it, and one sentence for everything that is none."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from midstream.journal import Journal, JournalContents, JournalError, read, read_records
from midstream.journal._schema import APPLICATION_ID, STEPS
from midstream.stream.model import FreezeSpan
from support import apart
from support.records import a_record

T = 1_790_000_000.0
"""Any day in 2026."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with three records, closed."""
    file = tmp_path / "streams.db"
    written(file, *(a_record(started_at=T + n, chunks=n) for n in (3, 1, 2)))
    return file


AS_NOBODY = """
import os, sqlite3
from midstream.journal import JournalError, read
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
"""


def written(file: Path, *records: Any) -> None:
    """Write a journal and close it."""
    journal = Journal(file, max_days=None, threaded=False)
    for record in records:
        journal.write(record)
    assert journal.close(60)


def spoiled(file: Path, *statements: str) -> None:
    """Do to a journal what no writer does."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_column_that_was_renamed_is_read_from_an_older_journal_and_renamed_by_its_next_writer(
    path: Path,
) -> None:
    """Version 2 named the freezes of a stream `spans`. Reading such a journal leaves it as it is."""
    freezes = (FreezeSpan(1.0, 6.0, "text", hidden=False, shared=False, open=False),)
    frozen = a_record(started_at=T + 9, freezes=1, freeze_spans=freezes)
    written(path, frozen)
    spoiled(
        path,
        "ALTER TABLE streams DROP COLUMN response_id",
        "ALTER TABLE streams RENAME COLUMN freeze_spans TO spans",
        "PRAGMA user_version = 2",
    )

    assert read_records(path)[-1] == frozen
    assert columns_of(path) >= {"spans"}

    written(path, a_record(started_at=T + 10))
    assert [record.freeze_spans for record in read_records(path)[-2:]] == [freezes, ()]
    assert columns_of(path) >= {"freeze_spans"}


def test_column_that_is_new_is_unknown_in_an_older_journal_and_added_by_its_next_writer(path: Path) -> None:
    """Version 3 had no ids of answers."""
    written(path, a_record(started_at=T + 9, response_id="chatcmpl-9"))
    spoiled(path, "ALTER TABLE streams DROP COLUMN response_id", "PRAGMA user_version = 3")

    assert read_records(path)[-1] == a_record(started_at=T + 9)

    written(path, a_record(started_at=T + 10, response_id="chatcmpl-10"))
    assert [record.response_id for record in read_records(path)[-2:]] == [None, "chatcmpl-10"]


def columns_of(path: Path) -> set[str]:
    """Name the columns of the table of streams."""
    with closing(sqlite3.connect(path)) as connection:
        return {row[1] for row in connection.execute("PRAGMA table_info(streams)")}


def test_records_come_in_the_order_of_their_calls(path: Path) -> None:
    """They were written as the streams ended."""
    contents = read(path)

    assert contents == JournalContents([a_record(started_at=T + n, chunks=n) for n in (1, 2, 3)], 0, 0)
    assert read_records(str(path)) == contents.records


@pytest.mark.parametrize(
    ("since", "until", "chunks"),
    [
        (None, None, [1, 2, 3]),
        (T + 2, None, [2, 3]),
        (None, T + 2, [1]),
        (T + 1, T + 3, [1, 2]),
        (T + 9, None, []),
    ],
)
def test_span_of_time_begins_with_its_first_moment_and_ends_before_its_last(
    path: Path, since: float | None, until: float | None, chunks: list[int]
) -> None:
    """So that two spans side by side have no stream in common."""
    assert [record.chunks for record in read_records(path, since=since, until=until)] == chunks


def test_reading_changes_nothing(path: Path) -> None:
    """Neither the file nor what lies beside it."""
    before = path.read_bytes(), os.stat(path).st_mtime_ns

    read(path)

    assert (path.read_bytes(), os.stat(path).st_mtime_ns) == before
    assert [file.name for file in path.parent.iterdir()] == ["streams.db"]


def test_journal_is_read_while_it_is_written(path: Path) -> None:
    """A reader sees what was committed, and holds no writer up."""
    writer = Journal(path, max_days=None, threaded=False)
    for n in range(4, 8):
        writer.write(a_record(started_at=T + n))
        assert writer.flush(60)
        assert len(read_records(path)) == n
    writer.close()


def test_drops_are_told(path: Path) -> None:
    """Whoever counts streams must know that some are missing."""
    spoiled(path, "INSERT INTO dropped VALUES (1790000000.0, 7), (1790000009.0, 2)")

    assert read(path).dropped == 9
    assert read(path, since=T + 1).dropped == 2


def test_damaged_rows_are_left_out_and_counted(path: Path) -> None:
    """One of them is enough to stop a reader that trusts its file."""
    spoiled(
        path,
        "UPDATE streams SET outcome = 'splendid' WHERE chunks = 1",
        "UPDATE streams SET request_model = CAST(x'ff00fe' AS TEXT) WHERE chunks = 2",
    )

    contents = read(path)
    assert ([record.chunks for record in contents.records], contents.skipped) == ([3], 2)


def error_of(path: Path) -> str:
    with pytest.raises(JournalError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_absent_journal_is_an_error_that_says_how_to_have_one(tmp_path: Path) -> None:
    """And none is made by looking for it."""
    path = tmp_path / "none.db"

    assert error_of(path) == (
        f"there is no journal at {path}; monitor(..., journal=PATH) or MIDSTREAM_JOURNAL writes one"
    )
    assert error_of(path / "below").startswith("there is no journal at ")
    assert list(tmp_path.iterdir()) == []


def test_directory_and_pipe_are_no_journals(tmp_path: Path) -> None:
    """A pipe would be waited for without an end."""
    assert error_of(tmp_path) == f"{tmp_path} is a directory; a journal is a file of its own"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert error_of(pipe) == f"{pipe} is no regular file; a journal is a file of its own"


@pytest.mark.parametrize(
    "content", [b"prompt,answer\n1,2\n", b"\0" * 4096, b"SQLite format 3\0" + b"x" * 4080]
)
def test_file_that_is_no_database_is_no_journal(tmp_path: Path, content: bytes) -> None:
    """Whatever it is, it is left as it is."""
    path = tmp_path / "lengths.csv"
    path.write_bytes(content)

    assert error_of(path) == f"{path} is not a midstream journal, nor any SQLite database"
    assert path.read_bytes() == content


def test_database_of_somebody_else_is_no_journal(tmp_path: Path) -> None:
    """Also if it happens to have a table of that name."""
    path = tmp_path / "shop.db"
    spoiled(path, "CREATE TABLE streams (id INTEGER)")

    assert error_of(path) == f"{path} is a database, but not a midstream journal"


def test_empty_file_is_a_journal_without_a_row(tmp_path: Path) -> None:
    """A writer has made it a moment ago."""
    path = tmp_path / "streams.db"
    path.touch()

    assert read(path) == JournalContents([], 0, 0)


def test_journal_of_a_newer_version_is_refused(path: Path) -> None:
    """What its columns mean is not known here."""
    spoiled(path, f"PRAGMA user_version = {len(STEPS) + 1}")

    assert error_of(path) == (
        f"{path} was written by a newer midstream (its version is 5, and this one knows 4); "
        "update midstream, or choose another file"
    )


def test_journal_with_damaged_pages_is_an_error_with_a_remedy(path: Path) -> None:
    """A disk that loses bytes, or somebody who wrote into the file."""
    written(path, *(a_record(started_at=T + n) for n in range(200)))
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)
    path.write_bytes(content)

    assert error_of(path) == (
        f"{path} is damaged (database disk image is malformed); `sqlite3 {path} .recover` may save what is left"
    )


def test_table_without_a_column_that_every_record_needs_is_an_error(path: Path) -> None:
    """Somebody has changed the table."""
    spoiled(path, "ALTER TABLE streams RENAME COLUMN outcome TO ending")

    assert error_of(path) == f"{path} is damaged: its table has no column 'outcome'"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
def test_journal_that_may_not_be_written_can_be_read(path: Path) -> None:
    """An archive on a read-only disk: there is no room for SQLite's side files, and no need of them."""
    public = Path(tempfile.mkdtemp())
    try:
        archive = Path(shutil.copy(path, public))
        archive.chmod(0o444)
        public.chmod(0o555)
        body = f"""
{AS_NOBODY}
assert not os.access({str(public)!r}, os.W_OK)
print(len(read({str(archive)!r}).records))
"""
        assert apart.run(body) == "3\n"
    finally:
        public.chmod(0o755)
        shutil.rmtree(public)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read")
def test_journal_of_somebody_else_is_an_error(path: Path) -> None:
    """It is private, and no reader gets around that."""
    public = Path(tempfile.mkdtemp())
    try:
        copy = Path(shutil.copy(path, public))
        body = f"""
{AS_NOBODY}
for path in ({str(copy)!r}, {str(copy / "x")!r}):
    try:
        read(path)
    except JournalError as error:
        print(error)
"""
        public.chmod(0o755)
        assert apart.run(body).splitlines() == [
            f"{copy} cannot be read by this user; a journal is made for its owner alone",
            f"there is no journal at {copy / 'x'}; monitor(..., journal=PATH) or MIDSTREAM_JOURNAL writes one",
        ]
        public.chmod(0o700)
        assert apart.run(body).splitlines()[0] == f"{copy} cannot be read: Permission denied"
    finally:
        shutil.rmtree(public)


def test_application_id_is_ours() -> None:
    """`file` shows it, and so does `PRAGMA application_id`."""
    assert APPLICATION_ID.to_bytes(4, "big") == b"MdSt"
