"""The journal's file: what it may look like, and how it is opened for writing.

Nothing here follows a file beside the journal that no journal has. SQLite is imported only when a journal is opened,
so that programs without a journal do not pay for it.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from midstream.journal._schema import APPLICATION_ID, STEPS, upgrade

if TYPE_CHECKING:
    from sqlite3 import Connection

BUSY_S = 0.25
"""How long one statement of the writer waits for another process; it tries again, and lets go of its lock meanwhile."""
OPEN_RETRY_S = 0.002
"""The pause between attempts to open a file that another process is just making: SQLite does not wait for that."""
WAL_LIMIT_BYTES = 4 << 20
"""What the write-ahead log is cut back to once its content is in the journal itself."""
TABLES = ("streams", "dropped")


_open_here: Counter[tuple[int, int]] = Counter()


class JournalError(ValueError):
    """A journal that cannot be read or written, in one sentence: which, why, and what to do."""


def open_to_write(path: Path, steps: Sequence[Sequence[str]] = STEPS) -> Connection:
    """Open the journal, made and brought up to date if need be, and readable by its owner alone.

    Raises JournalError for a file that is not a journal, is another user's, or of a newer version: such a file is
    never written to. Raises OSError or sqlite3.Error for what may pass: no room, no permission, locked.
    """
    until = time.monotonic() + BUSY_S
    while True:
        try:
            return _open(path, steps)
        except Exception as error:
            if not is_busy(error) or time.monotonic() >= until:
                raise
        time.sleep(OPEN_RETRY_S)


def is_busy(error: BaseException) -> bool:
    """Whether this is an error of SQLite's that says no more than that another process is writing."""
    # Codes have names only from Python 3.11 on; these texts are SQLite's own and have never changed.
    if "locked" not in str(error):
        return False
    import sqlite3  # noqa: PLC0415 - see above

    return isinstance(error, sqlite3.OperationalError | sqlite3.InternalError)


def _open(path: Path, steps: Sequence[Sequence[str]]) -> Connection:
    import sqlite3  # noqa: PLC0415 - see above

    path = path.resolve()  # SQLite looks for the files beside a journal where a link leads
    _make(path)
    connection = sqlite3.connect(
        uri_of(path, "mode=rw"), uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        version = check_is_journal(connection, path, len(steps))
        if version == 0:
            # Made without a rollback journal beside it, which would be foreign. Another process may be making the
            # same file, and have come as far as its first page or its write-ahead log.
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            if mode != "wal":
                connection.execute("PRAGMA journal_mode = MEMORY")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # counts only before the first page
        connection.execute("PRAGMA journal_mode = WAL")
        # A process that is killed loses nothing that was committed. If the machine dies, the last commits may be lost.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        if version < len(steps):
            upgrade(connection, steps)
    except BaseException:
        connection.close()
        raise
    return connection


def check_is_journal(connection: Connection, path: Path, latest: int) -> int:
    """Return the journal's version, 0 for one without tables yet. Raises JournalError for any other database.

    Its tables must be tables: a view, a virtual table or a computed column would run a program of the
    file's author, which need not end.
    """
    connection.execute("BEGIN")  # another process may be making the journal: everything of one moment
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    found = dict(
        connection.execute(
            "SELECT name, type = 'table' AND rootpage > 0 FROM sqlite_master "
            "WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite^_%' ESCAPE '^' LIMIT 1000"
        ).fetchall()
    )
    computed = any(
        hidden for table in TABLES for *_, hidden in connection.execute(f"PRAGMA table_xinfo({table})")
    )
    connection.execute("COMMIT")
    if application != APPLICATION_ID and (application or version or found):
        raise JournalError(f"{path} is a database, but not a midstream journal")
    if version and (computed or not all(found.get(table) for table in TABLES)):
        raise JournalError(
            f"{path} is not a midstream journal: its tables are not those that midstream makes; name another file"
        )
    if version > latest:
        raise JournalError(
            f"{path} was written by a newer midstream (its version is {version}, and this one knows {latest}); "
            "update midstream, or choose another file"
        )
    return int(version)


def check_files(path: Path) -> None:
    """Raise JournalError unless the journal and the files beside it are such as a writer leaves.

    A rollback journal (`-journal`) is never one of them: SQLite would play it back into the journal, and delete any
    file that it names.
    """
    rollback = beside(path, "-journal")
    if os.path.lexists(rollback):
        raise JournalError(
            f"{path} has a rollback journal beside it, which midstream never makes and SQLite would follow; "
            f"remove {rollback} if you did not put it there"
        )
    for file in (beside(path, "-wal"), beside(path, "-shm")):
        found = lstat(file)
        if found is not None and (not stat.S_ISREG(found.st_mode) or found.st_nlink > 1):
            raise JournalError(f"{file} is not a file that a journal's writer makes; remove it")


def opened_here(identity: tuple[int, int], change: int) -> None:
    """Count the writers of this process that have the file with this device and number open."""
    _open_here[identity] += change


def is_open_here(path: Path) -> bool:
    """Whether a writer of this process has the file open.

    It may then be opened through SQLite alone: to close any other handle of it lets go of the process's locks.
    """
    found = lstat(path)
    return found is not None and _open_here[found.st_dev, found.st_ino] > 0


def check_is_regular(path: Path, found: os.stat_result) -> None:
    """Raise JournalError for a directory, a pipe, a device."""
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise JournalError(f"{path} is {what}; a journal is a file of its own")


def beside(path: Path, suffix: str) -> Path:
    """Return the path of one of the files that SQLite keeps beside a database."""
    return path.with_name(path.name + suffix)


def lstat(path: Path) -> os.stat_result | None:
    """Return what is at this path, without following a link; None if there is nothing."""
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def uri_of(path: Path, options: str) -> str:
    """Return the address by which SQLite opens a file with these options."""
    return f"{path.absolute().as_uri()}?{options}"


def _make(path: Path) -> None:
    """Create the file for its owner alone, from its first moment on.

    SQLite gives the files beside it the same mode. Raises JournalError for what cannot be made private.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    check_files(path)
    found = lstat(path)
    if found is not None:
        check_is_regular(path, found)
        _make_private(path, found)


def _make_private(path: Path, found: os.stat_result) -> None:
    """Take the access of all users away from the journal and the files beside it; a group that has it keeps it."""
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o007:
        mode = _restrict(path, found, 0o600)
    for file in (beside(path, "-wal"), beside(path, "-shm")):
        status = lstat(file)
        if status is not None and stat.S_IMODE(status.st_mode) & 0o007:
            _restrict(file, status, mode)


def _restrict(path: Path, found: os.stat_result, mode: int) -> int:
    if hasattr(os, "geteuid"):
        if found.st_uid != os.geteuid():
            raise JournalError(
                f"{path} cannot be written: it is another user's, and open to all; choose another"
            )
        path.chmod(mode)
    return mode
