"""Journals and files beside them that others made: no file is changed, no read is endless, one row costs one row."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from midstream.cli import main
from midstream.journal import Journal, JournalError, read
from midstream.journal._reading import BYTES_PER_ROW, Reader, read_with
from support.foreign_files import rollback_journal, snapshot
from support.records import a_record

T = 1_790_000_000.0
COMMANDS = [
    ["report"],
    ["report", "--json"],
    ["export"],
    ["advise", "max-tokens"],
    ["advise", "timeout"],
    ["advise", "concurrency", "--pool", "1000"],
    ["advise", "flags", "--engine", "vllm"],
    ["compare", "--at", "2026-09-22"],
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "journal"
    folder.mkdir()
    file = folder / "streams.db"
    journal = Journal(file, max_days=None, threaded=False)
    for chunks in (1, 2, 3):
        journal.write(a_record(started_at=T + chunks, chunks=chunks))
    assert journal.close(60)
    return file


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "precious.txt"
    file.write_text("precious")
    return file


def altered(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_the_exploit_works_on_plain_sqlite(path: Path, victim: Path) -> None:
    """So that the tests below show something."""
    rollback_journal(path, victim)
    altered(path, "SELECT count(*) FROM streams")

    assert not victim.exists()


@pytest.mark.parametrize("through_link", [False, True])
@pytest.mark.parametrize("command", [None, *COMMANDS], ids=lambda command: "-".join(command or ["read"]))
def test_reading_never_follows_a_rollback_journal(
    path: Path,
    victim: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: list[str] | None,
    *,
    through_link: bool,
) -> None:
    """SQLite would play it back into the journal and delete the file that it names."""
    rollback_journal(path, victim)
    before = snapshot(path.parent)
    named = path
    if through_link:
        named = tmp_path / "link.db"
        named.symlink_to(path)
    if command is None:
        with pytest.raises(JournalError, match="has a rollback journal beside it") as refusal:
            read(named)
        assert str(refusal.value).endswith("streams.db-journal if you did not put it there")
    else:
        assert main([*command, "--journal", str(named)]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "has a rollback journal beside it" in printed.err
    assert victim.read_text() == "precious"
    assert snapshot(path.parent) == before


def test_writing_never_follows_a_rollback_journal(
    path: Path, victim: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rollback_journal(path, victim)
    before = snapshot(path.parent)
    journal = Journal(path, max_days=None, threaded=False)
    journal.write(a_record(started_at=T + 4, chunks=4))

    assert not journal.flush()
    assert victim.read_text() == "precious"
    assert snapshot(path.parent) == before
    assert "has a rollback journal beside it" in caplog.text

    path.with_name("streams.db-journal").unlink()
    assert journal.close(60)
    assert [record.chunks for record in read(path).records] == [1, 2, 3, 4]


def test_an_empty_journal_with_a_rollback_journal_is_not_made_a_journal(tmp_path: Path, victim: Path) -> None:
    """SQLite deletes what stands beside an empty database."""
    source = tmp_path / "source.db"
    altered(source, "CREATE TABLE t (x)")
    empty = tmp_path / "streams.db"
    shutil.move(rollback_journal(source, victim), empty.with_name("streams.db-journal"))
    empty.touch(mode=0o600)
    with pytest.raises(JournalError):
        read(empty)
    journal = Journal(empty, max_days=None, threaded=False)
    journal.write(a_record())

    assert not journal.flush()
    assert victim.exists()
    assert empty.with_name("streams.db-journal").exists()
    assert empty.stat().st_size == 0


def killed_writer(path: Path) -> None:
    """Leave a write-ahead log with a row beside the journal, as a writer that is killed does."""
    program = (
        "import os, sys; sys.path[:0] = %r; from midstream.journal import Journal\n"
        "from support.records import a_record\n"
        f"j = Journal({str(path)!r}, max_days=None, threaded=False); j.write(a_record(started_at={T + 9}, chunks=9))\n"
        "j.flush(); os._exit(0)"
    ) % (sys.path,)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def without_index(path: Path) -> None:
    killed_writer(path)
    path.with_name("streams.db-shm").unlink()


def read_only(path: Path) -> None:
    path.chmod(0o400)


@pytest.mark.parametrize("state", [None, killed_writer, without_index, read_only])
def test_reading_changes_no_file(path: Path, state: Callable[[Path], None] | None) -> None:
    """Closed, left by a killed writer with and without its index, read-only: bytes, modes, times and names stay."""
    if state is not None:
        state(path)
    before = snapshot(path.parent)
    chunks = [record.chunks for record in read(path).records]

    assert chunks == [1, 2, 3] + ([9] if state in (killed_writer, without_index) else [])
    assert snapshot(path.parent) == before


def test_rows_are_read_as_soon_as_a_writer_has_committed_them(path: Path) -> None:
    """While it has the journal open, in this process or another, and neither closes it nor moves its log."""
    journal = Journal(path, max_days=None, threaded=False)
    for chunks in (4, 5, 6):
        journal.write(a_record(started_at=T + chunks, chunks=chunks))
        assert journal.flush(60)
        assert [record.chunks for record in read(path).records] == list(range(1, chunks + 1))
        there = [
            sys.executable,
            "-c",
            f"from midstream.journal import read; print(len(read({str(path)!r}).records))",
        ]
        assert int(subprocess.run(there, capture_output=True, check=True, timeout=60).stdout) == chunks
    assert path.with_name("streams.db-wal").stat().st_size > 0
    assert journal.close(60)


def test_reading_keeps_the_locks_of_this_process(path: Path) -> None:
    """Another process that closes the journal must find it still in use: closing any handle of a file unlocks it."""
    journal = Journal(path, max_days=None, threaded=False)
    journal.write(a_record(started_at=T + 4, chunks=4))
    assert journal.flush(60)
    for _ in range(3):
        read(path)
    other = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA user_version'); c.close()"
    )
    subprocess.run([sys.executable, "-c", other, str(path)], check=True, timeout=60)

    assert path.with_name("streams.db-wal").exists()
    journal.write(a_record(started_at=T + 5, chunks=5))
    assert journal.close(60)
    assert [record.chunks for record in read(path).records] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["streams.db-wal", "streams.db-shm"])
@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to], ids=["symlink", "hardlink"])
def test_links_beside_a_journal_are_refused(
    path: Path, victim: Path, name: str, make: Callable[[Path, Path], None]
) -> None:
    make(path.with_name(name), victim)
    with pytest.raises(JournalError, match="is not a file that a journal's writer makes; remove it"):
        read(path)
    journal = Journal(path, max_days=None, threaded=False)
    journal.write(a_record())
    assert not journal.flush()
    assert victim.read_text() == "precious"


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o666, 0o644, 0o604, 0o602])
def test_a_journal_that_is_open_to_all_is_made_private(path: Path, mode: int) -> None:
    """With its write-ahead log and index, before anything is written into them."""
    killed_writer(path)
    for file in path.parent.iterdir():
        file.chmod(mode)
    journal = Journal(path, max_days=None, threaded=False)
    journal.write(a_record(started_at=T + 4))
    assert journal.flush(60)

    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"streams.db": 0o600, "streams.db-wal": 0o600, "streams.db-shm": 0o600}
    assert journal.close(60)


ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, i AS started_at FROM n"
)


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE streams", f"CREATE VIEW streams AS {ENDLESS}"],
        ["ALTER TABLE streams RENAME TO rows", "CREATE VIEW streams AS SELECT * FROM rows"],
        [
            "DROP TABLE dropped",
            f"CREATE VIEW dropped AS SELECT started_at AS at, id AS records FROM ({ENDLESS})",  # noqa: S608 - our own words
        ],
        [
            "ALTER TABLE streams ADD COLUMN big TEXT GENERATED ALWAYS AS (printf('%.*c', 900000000, 'x')) VIRTUAL"
        ],
        ["DROP TABLE streams", "CREATE VIRTUAL TABLE streams USING fts5(started_at)"],
        ["DROP TABLE streams"],
    ],
    ids=["endless view", "view", "endless dropped", "computed column", "virtual table", "no table"],
)
def test_a_journal_whose_tables_are_none_is_refused(path: Path, statements: list[str]) -> None:
    """What would run a program of whoever made the file."""
    altered(path, *statements)
    before = snapshot(path.parent)
    with pytest.raises(JournalError, match="its tables are not those that midstream makes"):
        read(path)
    assert snapshot(path.parent) == before


def repeated_page(path: Path, table: str) -> None:
    """Make one leaf page of a table its own sibling, 400 times at each of three levels: 64 million leaves."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")
        for name in ("spare1", "spare2", "spare3"):
            connection.execute(f"CREATE TABLE {name} (x)")
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master"))
    pages = bytearray(path.read_bytes())
    leaf = roots["spare1"]
    start = (leaf - 1) * 4096
    pages[start : start + 4096] = pages[(roots[table] - 1) * 4096 : roots[table] * 4096]
    for page, child in (
        (roots["spare2"], leaf),
        (roots["spare3"], roots["spare2"]),
        (roots[table], roots["spare3"]),
    ):
        cells = 400
        at = 4096 - 5 * cells
        head = (
            bytes([5, 0, 0])
            + cells.to_bytes(2, "big")
            + at.to_bytes(2, "big")
            + b"\0"
            + child.to_bytes(4, "big")
        )
        pointers = b"".join((at + 5 * n).to_bytes(2, "big") for n in range(cells))
        body = (child.to_bytes(4, "big") + b"\x01") * cells
        pages[(page - 1) * 4096 : page * 4096] = (head + pointers).ljust(at, b"\0") + body
    path.write_bytes(pages)


@pytest.mark.parametrize("table", ["streams", "dropped"])
def test_a_file_whose_tables_repeat_a_page_is_damaged(path: Path, table: str) -> None:
    """It holds 64 million pages of rows by its own account, in 100 kB; reading stops at what fits in it."""
    altered(path, "DROP INDEX streams_by_start", "INSERT INTO dropped VALUES (1.0, 1)")
    repeated_page(path, table)
    with pytest.raises(JournalError, match="is damaged"):
        read(path)


def test_no_journal_has_as_many_rows_as_the_bound_allows(path: Path) -> None:
    journal = Journal(path, max_days=None, threaded=False)
    for _ in range(3000):
        journal.write(a_record(started_at=T, request_model="", server_address="", provider="", operation=""))
    assert journal.close(60)

    assert len(read(path).records) == 3003
    assert path.stat().st_size > 1.5 * BYTES_PER_ROW * 3003


SPAN = '{"at_s": %s, "length_s": 1.0, "phase": "text", "hidden": %s, "shared": false, "open": false}'


@pytest.mark.parametrize(
    "change",
    [
        "duration_s = 1e400",
        "duration_s = -1e400",
        "started_at = 1e400",
        "started_at = 'soon'",
        "chunks = 1e400",
        "chunks = 9223372036854775807",
        "max_gap_s = x'00'",
        f"freeze_spans = '[{SPAN % ('1e400', 'false')}]'",
        f"freeze_spans = '[{SPAN % (1.0, '1e400')}]'",
        f"freeze_spans = '[{SPAN % (1.0, '[]')}]'",
        "freeze_spans = '" + "[" * 100_000 + "'",
        "attributes = '" + '{"a":' * 100_000 + "'",
        "finish_reasons = '[" + "9" * 5000 + "]'",
        "attributes = '{\"team\": 1e400}'",
        "outcome = 7",
        "request_model = x'ff'",
        "buffered = 1e400",
    ],
    ids=lambda change: change[:40],
)
def test_a_damaged_row_costs_itself_alone(path: Path, change: str) -> None:
    altered(path, f"UPDATE streams SET {change} WHERE chunks = 2")  # noqa: S608 - our own words
    contents = read(path)

    assert [record.chunks for record in contents.records] == [1, 3]
    assert contents.skipped == 1


@pytest.mark.parametrize("records", ["1e400", "9223372036854775807", "'many'", "x'ff'", "-5"])
def test_a_damaged_count_of_dropped_records_costs_itself_alone(path: Path, records: str) -> None:
    altered(path, f"INSERT INTO dropped VALUES ({T}, {records}), ({T}, 9223372036854775807), ({T}, 4)")  # noqa: S608 - our own words
    contents = read(path)

    assert (len(contents.records), contents.skipped, contents.dropped) == (3, 0, 4)


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_ctrl_c_ends_a_read(tmp_path: Path) -> None:
    """While SQLite sorts 40 MB of rows, which takes a while and returns nothing yet."""
    path = tmp_path / "streams.db"
    journal = Journal(path, max_days=None, threaded=False)
    journal.write(a_record(started_at=T))
    assert journal.close(60)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP INDEX streams_by_start")
        names = [row[1] for row in connection.execute("PRAGMA table_info(streams)")][1:]
        for _ in range(17):
            connection.execute(
                f"INSERT INTO streams ({', '.join(names)}) SELECT {', '.join(names)} FROM streams"  # noqa: S608 - our own words
            )
    program = f"from midstream.journal import read; print('reading', flush=True); read({str(path)!r})"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        since = time.monotonic()
        _, err = process.communicate(timeout=60)
    assert time.monotonic() - since < 2
    assert err.rstrip().endswith("KeyboardInterrupt")


def test_a_journal_that_changes_while_it_is_read_is_read_again(path: Path) -> None:
    """A writer opens it in the middle, writes and closes it: what is returned is of one moment."""
    counts: list[int] = []

    def count(reader: Reader) -> int:
        (rows,) = reader.connection.execute("SELECT count(*) FROM streams").fetchone()
        if not counts:
            journal = Journal(path, max_days=None, threaded=False)
            journal.write(a_record(started_at=T + 4, chunks=4))
            assert journal.close(60)
        counts.append(rows)
        return int(rows)

    assert read_with(path, count) == 4
    assert counts == [3, 4]
