"""The journal's file: opened for writing, made private if it is not there yet, or for reading, which changes nothing.

SQLite is imported only here and only when a journal is opened, so that nobody else pays for it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from midstream.journal._schema import APPLICATION_ID, STEPS, upgrade

if TYPE_CHECKING:
    from sqlite3 import Connection

BUSY_S = 0.25
"""How long one statement of the writer waits for another process; it tries again, and lets go of its lock meanwhile."""
READ_BUSY_S = 5.0
WAL_LIMIT_BYTES = 4 << 20
"""What the write-ahead log is cut back to once its content is in the journal itself."""


class JournalError(ValueError):
    """A journal that cannot be read or written, in one sentence: which, why, and what to do."""


def open_to_write(path: Path, steps: Sequence[Sequence[str]] = STEPS) -> Connection:
    """Open the journal, made and brought up to date if need be.

    Raises JournalError for a file that is somebody else's or of a newer version: such a file is never written to.
    Raises OSError or sqlite3.Error for everything that may get better by itself: no room, no right, locked.
    """
    import sqlite3  # noqa: PLC0415 - see above

    _make(path)
    connection = sqlite3.connect(
        _uri(path, "rw"), uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    try:
        version = _check_is_journal(connection, path, len(steps))
        if version == 0:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # counts only before the first page
        connection.execute("PRAGMA journal_mode = WAL")
        # A process that is killed loses nothing that was committed. If the machine dies, the last commits may be lost.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        connection.execute("PRAGMA trusted_schema = OFF")
        if version < len(steps):
            upgrade(connection, steps)
    except BaseException:
        connection.close()
        raise
    return connection


def open_to_read(path: Path) -> Connection:
    """Open the journal for reading, while others may write. Raises JournalError if there is none that can be read."""
    import sqlite3  # noqa: PLC0415 - see above

    try:
        found = _stat(path)
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from None
    if found is None:
        raise JournalError(
            f"there is no journal at {path}; monitor(..., journal=PATH) or MIDSTREAM_JOURNAL writes one"
        )
    _refuse_specials(path, found)
    if not os.access(path, os.R_OK):
        raise JournalError(f"{path} cannot be read by this user; a journal is made for its owner alone")
    try:
        connection = _connect_to_read(path)
        try:
            _check_is_journal(connection, path, len(STEPS))
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    return connection


def unreadable(path: Path, error: Exception) -> JournalError:
    """Say in one sentence why SQLite could not read a journal."""
    import sqlite3  # noqa: PLC0415 - see above

    if isinstance(error, UnicodeDecodeError):
        # SQLite quotes what is broken, and its bindings cannot decode the quotation.
        error = sqlite3.DatabaseError("its schema is no text")
    if isinstance(error, sqlite3.OperationalError):
        return JournalError(f"{path} cannot be read: {error}")
    if "not a database" in str(error):
        return JournalError(f"{path} is not a midstream journal, nor any SQLite database")
    return JournalError(f"{path} is damaged ({error}); `sqlite3 {path} .recover` may save what is left")


def _connect_to_read(path: Path) -> Connection:
    import sqlite3  # noqa: PLC0415 - see above

    def connect(mode: str) -> Connection:
        connection = sqlite3.connect(_uri(path, mode), uri=True, timeout=READ_BUSY_S, isolation_level=None)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    try:
        # Even a reader shares memory with writers, through files beside the journal; only who may write removes them.
        return connect("rw" if os.access(path, os.W_OK) else "ro")
    except sqlite3.OperationalError:
        # Where no such file can be made, nobody writes either. Unless a log was left behind, the journal is whole.
        log = _stat(path.with_name(path.name + "-wal"))
        if log is not None and log.st_size > 0:
            raise
        return connect("ro&immutable=1")


def _check_is_journal(connection: Connection, path: Path, latest: int) -> int:
    """Give the journal's version, 0 for one without tables yet."""
    connection.execute("BEGIN")  # another process may be making the journal: all three of one moment
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    connection.execute("COMMIT")
    if application != APPLICATION_ID and (application or version or tables):
        raise JournalError(f"{path} is a database, but not a midstream journal")
    if version > latest:
        raise JournalError(
            f"{path} was written by a newer midstream (its version is {version}, and this one knows {latest}); "
            "update midstream, or choose another file"
        )
    return int(version)


def _make(path: Path) -> None:
    """Create the file for its owner alone, from its first moment on. SQLite gives its side files the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        found = _stat(path)
        if found is not None:
            _refuse_specials(path, found)


def _refuse_specials(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise JournalError(f"{path} is {what}; a journal is a file of its own")


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"
