"""The journal as its writer sees it: opened when needed, one transaction at a time, failures in one sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from midstream.journal._file import JournalError, is_busy, open_to_write, opened_here
from midstream.journal._kinds import Value
from midstream.journal._limits import DAY_S, trim
from midstream.journal._rows import COLUMNS
from midstream.journal._schema import STEPS

if TYPE_CHECKING:
    from sqlite3 import Connection

TRIM_EVERY_S = 60.0
"""How often the age of rows is looked at; the size is at each commit."""

_INSERT: Final = f"INSERT INTO streams ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608


class StoreError(Exception):
    """Nothing was written, and it is worth trying again. `busy`: only because another process is writing."""

    def __init__(self, reason: str, *, busy: bool = False) -> None:
        super().__init__(reason)
        self.busy = busy


class Store:
    """One connection to one journal, for one thread at a time.

    After a failure the connection is closed, so that the next attempt finds whatever is there by then.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_mb: float | None,
        max_days: float | None,
        steps: Sequence[Sequence[str]] = STEPS,
    ) -> None:
        self.path = path
        self.max_mb = max_mb
        self.max_days = max_days
        self._steps = steps
        self._connection: Connection | None = None
        self._identity = (0, 0)
        self._aged_at = float("-inf")

    def prepare(self) -> None:
        """Open the file, and make it if need be. Raises StoreError."""
        with self._closing_on_failure():
            self._opened()

    def write(self, rows: Sequence[tuple[Value, ...]], dropped: int, at: float) -> None:
        """Commit these rows, and how many records were dropped before `at` (Unix seconds), whole or not at all.

        Raises StoreError; anything else means that the rows themselves cannot be written, now or later.
        """
        with self._closing_on_failure():
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            self._check_version(connection)
            connection.executemany(_INSERT, rows)
            if dropped:
                connection.execute("INSERT INTO dropped VALUES (?, ?)", (at, dropped))
            connection.execute("COMMIT")

    def trim(self, at: float) -> bool:
        """Keep the journal within its limits at `at` (Unix seconds); True if there is more to do. Raises StoreError."""
        with self._closing_on_failure():
            connection = self._opened()
            oldest = None
            if self.max_days is not None and not 0.0 <= at - self._aged_at < TRIM_EVERY_S:
                oldest = at - self.max_days * DAY_S
            more = trim(
                connection, oldest=oldest, max_bytes=None if self.max_mb is None else self.max_mb * 1e6
            )
            if oldest is not None and not more:
                self._aged_at = at
            return more

    @contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        """Close the file if what is done with it fails, and say why in a StoreError if the reason is a known one."""
        try:
            yield
        except BaseException as error:
            self.close()
            known = self._explained(error)
            if known is None:
                raise
            raise known from error

    def close(self) -> None:
        """Close the file. What was not committed is as if it had never been."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            opened_here(self._identity, -1)

    def abandon(self) -> None:
        """Let go of a connection of our parent's, in a forked child, without closing it: its locks are the parent's."""
        connection, self._connection = self._connection, None
        if connection is not None:
            opened_here(self._identity, -1)
            import ctypes  # noqa: PLC0415 - for what hardly ever happens

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))  # or it is closed when it is collected

    def _opened(self) -> Connection:
        if self._connection is not None and self._identity != self._identify():
            self.close()  # the file was removed or replaced, and what we hold is no longer the journal
        if self._connection is None:
            self._connection = open_to_write(self.path, self._steps)
            self._identity = self._identify()
            opened_here(self._identity, +1)
        return self._connection

    def _identify(self) -> tuple[int, int]:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return (0, 0)
        return (found.st_dev, found.st_ino)

    def _check_version(self, connection: Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != len(self._steps):
            raise JournalError(
                f"{self.path} has become version {version} meanwhile; restart with that midstream"
            )

    def _explained(self, error: BaseException) -> StoreError | None:
        """What the user reads of this error; None for one that no disk and no other process can be the cause of."""
        if isinstance(error, JournalError):
            return StoreError(str(error))
        if isinstance(error, FileNotFoundError):
            return StoreError(f"{self.path} cannot be made: its directory does not exist")
        if isinstance(error, OSError):
            return StoreError(f"{self.path} cannot be written: {error.strerror or type(error).__name__}")
        if isinstance(error, ImportError):
            return StoreError(f"{self.path} cannot be written: Python's sqlite3 cannot be loaded")
        import sqlite3  # noqa: PLC0415 - only now: it takes a file descriptor, and there may be none left

        if isinstance(error, sqlite3.OperationalError | sqlite3.InternalError):
            return StoreError(f"{self.path} cannot be written: {error}", busy=is_busy(error))
        if type(error) is sqlite3.DatabaseError:
            return StoreError(f"{self.path} cannot be written: {error}")
        return None
