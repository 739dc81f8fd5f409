"""The journal's file, opened for reading: no file is changed, made or deleted, and every read ends.

A journal that no process has open is read as it is (`immutable`), and read again if it changed meanwhile. Beside a
write-ahead log it is read together with its writers, or, where they left the log behind, from a copy.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from midstream.journal._file import (
    JournalError,
    beside,
    check_files,
    check_is_journal,
    check_is_regular,
    is_open_here,
    lstat,
    uri_of,
)
from midstream.journal._schema import STEPS

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")

READ_BUSY_S = 5.0
"""How long to wait for a writer that keeps the journal for itself: while it makes the file, for a moment."""
RETRY_S = 0.05
INSTRUCTIONS_AT_ONCE = 20_000
"""SQLite's instructions between two looks at whether to go on: about a millisecond."""
INSTRUCTIONS_PER_BYTE, INSTRUCTIONS_AT_LEAST = 10, 2_000_000
"""How many of SQLite's instructions reading may take; a journal takes about one for each byte."""
BYTES_PER_ROW, ROWS_AT_LEAST = 80, 1000
"""No row of a journal is smaller. In a damaged file, tables may refer to one page many times over."""


class _ChangedError(Exception):
    """The journal was written to while it was read without its writers' knowledge."""


class Reader:
    """An open journal. `most_rows` and `most_bytes` bound what any of its tables can hold."""

    def __init__(self, connection: Connection, path: Path, size: int) -> None:
        self.connection = connection
        self.path = path
        self.most_rows = ROWS_AT_LEAST + size // BYTES_PER_ROW
        self.most_bytes = size
        self._left = INSTRUCTIONS_AT_LEAST + INSTRUCTIONS_PER_BYTE * size
        self._stopped_by: BaseException | None = None
        connection.set_progress_handler(self._stop, INSTRUCTIONS_AT_ONCE)

    def _stop(self) -> bool:
        """Whether SQLite shall stop. What a signal handler raises here is kept, since SQLite would drop it."""
        try:
            self._left -= INSTRUCTIONS_AT_ONCE
        except BaseException as error:  # noqa: BLE001 - raised again by `failure`
            self._stopped_by = error
        return self._left < 0 or self._stopped_by is not None

    def failure(self, error: Exception) -> BaseException:
        """Return what to raise for an error of SQLite's."""
        if "interrupted" not in str(error):
            return unreadable(self.path, error)
        return self.endless() if self._left < 0 else self._stopped_by or KeyboardInterrupt()

    def endless(self) -> JournalError:
        """Return the error for a file whose tables hold more than its size allows."""
        return JournalError(
            f"{self.path} is damaged (its tables hold more than fits in it); "
            f"`sqlite3 {self.path} .recover` may save what is left"
        )


def read_with(path: Path, use: Callable[[Reader], T]) -> T:
    """Open the journal for reading, while others may write, and return what `use` makes of it.

    `use` may be called again if the journal changed. Raises JournalError if there is none that can be read.
    """
    give_up_at = time.monotonic() + READ_BUSY_S
    while True:
        try:
            return _read_once(path, use)
        except _ChangedError as error:
            if time.monotonic() > give_up_at:
                raise error.__cause__ or JournalError(
                    f"{path} is written to all the time; read a copy: `sqlite3 {path} '.backup COPY'`"
                ) from None
        time.sleep(RETRY_S)


def _read_once(path: Path, use: Callable[[Reader], T]) -> T:
    found = _find(path)
    actual = path.resolve()  # SQLite looks for the files beside a journal where a link leads
    check_files(actual)
    log = lstat(beside(actual, "-wal"))
    if found.st_size == 0:
        return _read(":memory:", path, 0, use)  # SQLite deletes what stands beside an empty file
    if log is None or log.st_size == 0:
        return _unchanged(
            actual, lambda: _read(uri_of(actual, "mode=ro&immutable=1"), path, found.st_size, use)
        )
    size = found.st_size + log.st_size
    if os.path.lexists(beside(actual, "-shm")) and _can_be_shared(actual):
        return _read(uri_of(actual, _SHARED), path, size, use)
    if is_open_here(actual):  # to close a copy's source would let go of this process's locks
        raise _ChangedError
    with tempfile.TemporaryDirectory(prefix="midstream-") as folder:
        copy = Path(folder, "journal")
        _unchanged(actual, lambda: _copy(actual, copy))
        return _read(uri_of(copy, "mode=rw"), path, size, use)


_SHARED = "mode=ro&readonly_shm=1"


def _can_be_shared(path: Path) -> bool:
    """Whether the log can be read together with its writers, or without any, and nothing be written to."""
    import sqlite3  # noqa: PLC0415 - programs that never read a journal do not pay for it

    try:
        with closing(sqlite3.connect(uri_of(path, _SHARED), uri=True, timeout=0.0)) as connection:
            connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise _ChangedError from unreadable(path, error)
        return False
    except sqlite3.Error:
        pass  # reading it says what is wrong
    return True


def _find(path: Path) -> os.stat_result:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise JournalError(
            f"there is no journal at {path}; monitor(..., journal=PATH) or MIDSTREAM_JOURNAL writes one"
        ) from None
    except (OSError, ValueError) as error:
        raise JournalError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    check_is_regular(path, found)
    if not os.access(path, os.R_OK):
        raise JournalError(f"{path} cannot be read by this user; a journal is made for its owner alone")
    return found


def _unchanged(path: Path, read: Callable[[], T]) -> T:
    before = _state(path)
    try:
        result = read()
    except JournalError as error:
        if _state(path) != before:
            raise _ChangedError from error
        raise
    if _state(path) != before:
        raise _ChangedError
    return result


def _state(path: Path) -> tuple[int, ...] | None:
    found = lstat(path)
    return None if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _copy(path: Path, copy: Path) -> None:
    try:
        shutil.copyfile(beside(path, "-wal"), beside(copy, "-wal"))
        shutil.copyfile(path, copy)
    except FileNotFoundError:
        raise _ChangedError from None
    except OSError as error:
        raise JournalError(f"{path} cannot be copied to be read: {error.strerror}") from None


def _read(address: str, path: Path, size: int, use: Callable[[Reader], T]) -> T:
    import sqlite3  # noqa: PLC0415 - see above

    try:
        connection = sqlite3.connect(address, uri=True, timeout=RETRY_S, isolation_level=None)
    except sqlite3.Error as error:
        raise unreadable(path, error) from None
    with closing(connection):
        reader = Reader(connection, path, size)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            check_is_journal(connection, path, len(STEPS))
            return use(reader)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            failure = reader.failure(error)
            if "locked" in str(error) and isinstance(error, sqlite3.OperationalError):
                raise _ChangedError from failure
            raise failure from None


def unreadable(path: Path, error: Exception) -> JournalError:
    """Return in one sentence why SQLite could not read a journal."""
    import sqlite3  # noqa: PLC0415 - see above

    if isinstance(error, UnicodeDecodeError):
        # SQLite quotes what is broken, and its bindings cannot decode the quotation.
        error = sqlite3.DatabaseError("its schema is no text")
    if isinstance(error, sqlite3.OperationalError):
        return JournalError(f"{path} cannot be read: {error}")
    if "not a database" in str(error):
        return JournalError(f"{path} is not a midstream journal, nor any SQLite database")
    return JournalError(f"{path} is damaged ({error}); `sqlite3 {path} .recover` may save what is left")
