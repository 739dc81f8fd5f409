"""The journal's writer, with time moved by hand and a real file: when it commits, what it does when it cannot."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from midstream._support import internal_errors
from midstream.journal import Journal, read, read_records
from midstream.journal._backlog import LONGEST_QUEUE, MOST_ROWS, retry_after
from midstream.journal._file import open_to_write
from midstream.journal._schema import STEPS, upgrade
from midstream.journal._store import Store
from midstream.testing import ManualClock
from support.records import a_record
from support.waiting import until

T = 1_790_000_000.0
DAY = 86_400.0
AND_SO_ON = "streams are unaffected, and it is tried again"
NEWER = (
    "was written by a newer midstream (its version is 5, and this one knows 4); "
    "update midstream, or choose another file"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "streams.db"


class ByHand:
    """A journal without a thread, and the clock that moves it. Wall time begins at T."""

    def __init__(self, path: Path, **limits: float | None) -> None:
        self.clock = ManualClock()
        self.journal = Journal(
            path, clock=self.clock, wall=lambda: T + self.clock.now, threaded=False, **limits
        )
        self.clock.watch(self.journal.flush_due)

    def write(self, *chunks: int) -> None:
        for n in chunks:
            self.journal.write(a_record(started_at=T + self.clock.now, chunks=n))


@pytest.fixture
def hand(path: Path) -> Iterator[ByHand]:
    by_hand = ByHand(path)
    yield by_hand
    by_hand.journal.store.close()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records]


def chunks_in(path: Path) -> list[int]:
    return [record.chunks for record in read_records(path)]


def test_records_of_an_idle_process_are_committed_at_once(hand: ByHand, path: Path) -> None:
    """No stream is open, and the process may be killed: it does not wait for more, twenty times a second at most."""
    hand.write(1)
    hand.journal.commit_soon()
    hand.clock.advance(0.0)
    assert chunks_in(path) == [1]

    hand.write(2)
    hand.journal.commit_soon()
    hand.clock.advance(0.04)
    assert chunks_in(path) == [1]
    hand.clock.advance(0.02)
    assert chunks_in(path) == [1, 2]

    hand.write(3)
    hand.clock.advance(0.4)
    assert chunks_in(path) == [1, 2]
    hand.clock.advance(0.1)
    assert chunks_in(path) == [1, 2, 3]


def test_an_idle_process_does_not_try_a_failed_journal_more_often(hand: ByHand, path: Path) -> None:
    """The attempts keep their distance, whatever streams end meanwhile."""
    path.mkdir()
    hand.write(1)
    hand.journal.commit_soon()
    hand.clock.advance(0.0)
    path.rmdir()
    hand.write(2)
    hand.journal.commit_soon()
    hand.clock.advance(0.4)
    assert not path.exists()
    hand.clock.advance(0.7)
    assert chunks_in(path) == [1, 2]


def test_records_are_committed_together_half_a_second_after_the_first(hand: ByHand, path: Path) -> None:
    """What a kill can lose is half of the second that is promised."""
    hand.write(1)
    hand.clock.advance(0.0)
    hand.clock.advance(0.4)
    hand.write(2)
    hand.clock.advance(0.09)
    assert not path.exists()

    hand.clock.advance(0.02)
    assert chunks_in(path) == [1, 2]

    hand.write(3)
    hand.clock.advance(0.0)
    assert chunks_in(path) == [1, 2]
    hand.clock.advance(0.5)
    assert chunks_in(path) == [1, 2, 3]


def test_nothing_is_opened_before_there_is_something_to_write(hand: ByHand, path: Path) -> None:
    """A program that never streams has no journal."""
    hand.clock.advance(60.0)

    assert not path.exists()


def test_many_records_are_written_before_they_are_due(hand: ByHand, path: Path) -> None:
    """So that the queue has room again."""
    hand.write(*range(MOST_ROWS + 10))
    hand.clock.advance(0.0)

    assert len(chunks_in(path)) == MOST_ROWS
    hand.clock.advance(0.5)
    assert chunks_in(path) == list(range(MOST_ROWS + 10))


def test_flush_writes_at_once(hand: ByHand, path: Path) -> None:
    """However much there is."""
    assert hand.journal.flush(60)
    hand.write(*range(2 * MOST_ROWS))

    assert hand.journal.flush(60)
    assert len(chunks_in(path)) == 2 * MOST_ROWS


def test_journal_is_private_from_its_first_moment(hand: ByHand, path: Path) -> None:
    """Whatever the umask says; so are the files that SQLite puts beside it."""
    before = os.umask(0)
    try:
        hand.write(1)
        assert hand.journal.flush(60)
    finally:
        os.umask(before)

    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"streams.db": 0o600, "streams.db-wal": 0o600, "streams.db-shm": 0o600}


def test_mode_that_somebody_gave_to_a_journal_stays(path: Path) -> None:
    """Its owner may share it with a group, though not with all users."""
    path.touch()
    path.chmod(0o640)
    hand = ByHand(path)
    hand.write(1)
    assert hand.journal.close(60)

    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_header_says_whose_file_it_is(hand: ByHand, path: Path) -> None:
    """SQLite's own tools can tell, and so can `file`."""
    hand.write(1)
    assert hand.journal.flush(60)

    with closing(sqlite3.connect(path)) as connection:
        pragmas = ("application_id", "user_version", "journal_mode", "auto_vacuum")
        assert [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas] == [
            0x4D645374,
            len(STEPS),
            "wal",
            2,
        ]


# What may go wrong


def test_full_queue_drops_and_counts(hand: ByHand, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It never blocks, it is said once, and the journal itself knows how many are missing."""
    hand.write(*range(LONGEST_QUEUE + 3))
    assert hand.journal.dropped == 3
    assert repr(hand.journal) == f"<Journal {path} waiting={LONGEST_QUEUE} dropped=3>"
    assert said(caplog) == [f"the journal {path} is behind; records are dropped, and their number is kept"]

    assert hand.journal.flush(60)
    contents = read(path)
    assert (len(contents.records), contents.dropped) == (LONGEST_QUEUE, 3)
    hand.write(1)
    assert hand.journal.flush(60)
    assert (len(read_records(path)), read(path).dropped) == (LONGEST_QUEUE + 1, 3)


def test_missing_directory_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The volume is mounted later than the program starts, say: what waited is written then."""
    caplog.set_level(logging.INFO)
    path = tmp_path / "later" / "streams.db"
    hand = ByHand(path)
    hand.write(1)
    hand.clock.advance(20.0)
    assert not hand.journal.flush()
    hand.write(2)
    path.parent.mkdir()
    hand.clock.advance(30.0)

    assert chunks_in(path) == [1, 2]
    assert said(caplog) == [
        f"the journal {path} cannot be made: its directory does not exist; {AND_SO_ON}",
        f"the journal {path} is written again",
    ]
    assert hand.journal.close(60)


@pytest.mark.parametrize(
    ("busy", "seconds"),
    [
        (True, [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]),
        (False, [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]),
    ],
)
def test_attempts_become_rarer_up_to_a_bound(busy: bool, seconds: list[float]) -> None:
    """A lock is gone soon; a full disk takes longer."""
    assert [retry_after(failures, busy=busy) for failures in range(1, 8)] == seconds
    assert retry_after(10**6, busy=busy) == seconds[-1]


def test_lock_of_another_process_is_waited_out(
    hand: ByHand, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One attempt finds it locked for longer than it waits; nothing is lost, and nothing is worth a word."""
    hand.write(1)
    assert hand.journal.flush(60)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        hand.write(2)
        hand.clock.advance(0.0)
        hand.clock.advance(0.6)
        assert chunks_in(path) == [1]
        other.execute("ROLLBACK")
    hand.clock.advance(1.0)

    assert chunks_in(path) == [1, 2]
    assert caplog.records == []


def test_lock_that_stays_is_said_once(hand: ByHand, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody has left a transaction open in a shell."""
    hand.write(1)
    assert hand.journal.flush(60)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        hand.write(2)
        hand.clock.advance(10.0)
        assert not hand.journal.flush(timeout_s=5.0)
    assert hand.journal.flush(60)

    assert chunks_in(path) == [1, 2]
    assert said(caplog) == [f"the journal {path} cannot be written: database is locked; {AND_SO_ON}"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"prompt,answer\n1,2\n", "cannot be written: file is not a database"),
        ("shop", "is a database, but not a midstream journal"),
        ("newer", NEWER),
    ],
)
def test_file_that_is_not_ours_is_never_written_to(
    path: Path, caplog: pytest.LogCaptureFixture, content: bytes | str, sentence: str
) -> None:
    """Not one byte of it changes, and it is said once."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            if content == "newer":
                upgrade(other, [*STEPS, ["CREATE TABLE future (x)"]])
            else:
                other.execute("CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()
    hand = ByHand(path)
    hand.write(1, 2)
    hand.clock.advance(120.0)

    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert said(caplog) == [f"the journal {path} {sentence}; {AND_SO_ON}"]


def test_journal_that_becomes_newer_under_our_hands_is_left_alone(hand: ByHand, path: Path) -> None:
    """Another process was updated first, and has brought the file up to its version."""
    hand.write(1)
    assert hand.journal.flush(60)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        upgrade(other, [*STEPS, ["ALTER TABLE streams ADD COLUMN mood TEXT"]])
    hand.write(2)

    assert not hand.journal.flush()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT chunks FROM streams").fetchall() == [(1,)]


def test_pipe_is_not_waited_for(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nor is any other thing that is no file."""
    os.mkfifo(path)
    hand = ByHand(path)
    hand.write(1)

    assert not hand.journal.flush()
    assert "is no regular file; a journal is a file of its own" in caplog.text


def test_file_that_is_removed_or_replaced_is_noticed(hand: ByHand, path: Path) -> None:
    """What is written after that goes into the file which has the name now, and not into one that nobody can find."""
    hand.write(1)
    assert hand.journal.flush(60)
    for file in list(path.parent.iterdir()):
        file.unlink()
    hand.write(2)
    assert hand.journal.flush(60)
    assert chunks_in(path) == [2]

    path.rename(path.with_suffix(".old"))
    hand.write(3)
    assert hand.journal.flush(60)
    assert chunks_in(path) == [3]


def test_record_that_cannot_be_written_spoils_no_other(
    hand: ByHand, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a fault of ours, it is said once, and it counts as dropped."""
    monkeypatch.setattr(internal_errors, "RAISE", False)
    monkeypatch.setattr(internal_errors, "_internal_errors", internal_errors.OnceLog())
    hand.write(1)
    hand.journal.write(a_record(chunks="many"))
    hand.journal.write(a_record(frozen_s=float("nan")))
    hand.write(2)
    assert hand.journal.flush(60)

    assert chunks_in(path) == [1, 2]
    assert (hand.journal.dropped, read(path).dropped) == (2, 2)
    assert said(caplog) == [
        "the journal failed with TypeError; a record is missing from it; your stream is unaffected"
    ]


# Limits


def test_old_rows_go(path: Path) -> None:
    """Their age counts from the call."""
    hand = ByHand(path, max_days=2.0)
    for day in range(5):
        hand.write(day)
        assert hand.journal.flush(60)
        hand.clock.advance(DAY)
    hand.write(5)
    assert hand.journal.close(60)

    assert chunks_in(path) == [3, 4, 5]


def test_journal_stays_within_its_size(path: Path) -> None:
    """The oldest rows go, and the file is used again."""
    hand = ByHand(path, max_mb=0.5, max_days=None)
    sizes = []
    for n in range(20):
        hand.write(*range(500 * n, 500 * n + 500))
        hand.clock.advance(1.0)
        assert hand.journal.flush(60)
        sizes.append(path.stat().st_size)
    assert hand.journal.close(60)

    kept = chunks_in(path)
    assert kept == list(range(10_000 - len(kept), 10_000))
    assert len(kept) > 1000
    assert max(sizes) < 0.7e6
    assert path.stat().st_size <= 0.51e6


def test_lower_limit_shrinks_a_journal_that_is_there(path: Path) -> None:
    """The next commit begins, and the commits after it go on."""
    hand = ByHand(path, max_mb=None, max_days=None)
    hand.write(*range(8000))
    assert hand.journal.close(60)
    assert path.stat().st_size > 1.0e6

    hand = ByHand(path, max_mb=0.4, max_days=None)
    hand.write(8000)
    assert hand.journal.close(60)
    assert path.stat().st_size <= 0.41e6
    assert chunks_in(path)[-1] == 8000


@pytest.mark.parametrize(("max_mb", "max_days"), [(0.0, None), (1.0, -1.0), (float("nan"), 1.0)])
def test_limit_that_is_none_is_refused(path: Path, max_mb: float, max_days: float | None) -> None:
    """Nothing raises later."""
    with pytest.raises(ValueError, match="must be a positive number, got "):
        Journal(path, max_mb=max_mb, max_days=max_days)


# Versions


def test_journal_of_an_older_version_is_brought_up_to_date_and_keeps_its_rows(path: Path) -> None:
    """By whoever writes next; a reader leaves it as it is."""
    hand = ByHand(path)
    hand.write(1, 2)
    assert hand.journal.close(60)
    newer = [*STEPS, ["ALTER TABLE streams ADD COLUMN mood TEXT DEFAULT 'fine'"], ["CREATE TABLE more (x)"]]

    store = Store(path, max_mb=None, max_days=None, steps=newer)
    store.write([], 3, T)
    store.close()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(STEPS) + 2,)
        assert connection.execute("SELECT chunks, mood FROM streams").fetchall() == [(1, "fine"), (2, "fine")]
        assert connection.execute("SELECT x FROM more").fetchall() == []


def test_step_that_fails_leaves_the_journal_as_it_was(path: Path) -> None:
    """Whole or not at all: the version still says what the tables are."""
    hand = ByHand(path)
    hand.write(1)
    assert hand.journal.close(60)

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            upgrade(connection, [*STEPS, ["CREATE TABLE more (x)", "NONSENSE"]])
        assert connection.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
    assert chunks_in(path) == [1]


# The thread


def test_thread_writes_by_itself_and_ends_when_nothing_is_left(path: Path) -> None:
    """Without a flush the record is there within a second."""
    others = set(threading.enumerate())
    journal = Journal(path, max_days=None)
    journal.write(a_record(started_at=T))

    until(lambda: path.exists() and len(read_records(path)) == 1)
    started = [each for each in set(threading.enumerate()) - others if each.name == "midstream-journal"]
    assert [thread.daemon for thread in started] == [True]
    assert journal.close(60)


def test_many_threads_may_write(path: Path) -> None:
    """None of their records is lost or doubled."""
    journal = Journal(path, max_days=None)

    def write(first: int) -> None:
        for n in range(250):
            journal.write(a_record(chunks=first + n))

    writers = [threading.Thread(target=write, args=(1000 * n,)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert journal.close(timeout_s=10.0)
    assert sorted(chunks_in(path)) == [1000 * n + k for n in range(8) for k in range(250)]


def test_a_journal_is_made_while_the_first_stream_is_open(path: Path) -> None:
    """So that its record is committed as soon as it ends."""
    journal = Journal(path, max_days=None)
    journal.prepare()
    until(lambda: path.exists() and read(path).records == [])

    journal.write(a_record())
    journal.commit_soon()
    until(lambda: len(read_records(path)) == 1)
    journal.close()


def test_a_journal_that_another_process_is_making_is_waited_for(path: Path) -> None:
    """SQLite itself does not wait when a new database is given its write-ahead log."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        path.chmod(0o600)
        other.execute("PRAGMA journal_mode = MEMORY")
        other.execute("BEGIN EXCLUSIVE")
        release = threading.Timer(0.05, other.execute, ["COMMIT"])
        release.start()
        with closing(open_to_write(path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        release.join()
