"""What waits to be written into the journal: a bounded queue, two commits a second, new attempts after failures.

A disk failure is logged once. Queued records are kept and retried until the cause is gone; when the queue is full,
further records are dropped and counted, and the count is written with the next commit. Time is an argument.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from midstream._support.internal_errors import OnceLog, report_internal_error, safe_log
from midstream.journal._kinds import Value
from midstream.journal._rows import row_of
from midstream.journal._store import Store, StoreError
from midstream.stream.model import StreamRecord

LONGEST_QUEUE = 10_000
"""Records that may wait, about 1 KiB each."""
COMMIT_EVERY_S = 0.5
"""How long a record may wait for its commit; half of what may be lost, so that a slow commit fits in as well."""
IDLE_COMMIT_EVERY_S = 0.05
"""The least time between two commits that are made because no stream is open any more."""
MOST_ROWS = 2000
"""Rows of one commit, so that other processes can commit in between."""
FIRST_RETRY_S, BUSY_RETRY_S, LAST_RETRY_S = 1.0, 0.05, 30.0
BUSY_LOGGED_AFTER = 8
"""Attempts that find the journal locked before it is logged: with many processes a few are normal."""


def retry_after(failures: int, *, busy: bool) -> float:
    """Seconds until the next attempt after so many failures in a row: twice as long each time, up to a bound."""
    first, last = (BUSY_RETRY_S, FIRST_RETRY_S) if busy else (FIRST_RETRY_S, LAST_RETRY_S)
    return min(last, first * 2.0 ** min(failures - 1, 10))


class Backlog:
    """The records on their way into one store.

    Any thread may call `put` and `request_flush`; `flush_due` runs in one thread at a time.
    """

    def __init__(self, store: Store, wall: Callable[[], float]) -> None:
        self.store = store
        self.wake = threading.Event()
        """Set when the next `flush_due` should run at once."""
        self.failures = 0
        """Attempts to write that failed, since the last that did not."""
        self.dropped = 0
        """Records that could not be kept."""
        self.queue: SimpleQueue[StreamRecord | None] = SimpleQueue()
        self._wall = wall
        self._flush_requests: SimpleQueue[threading.Event] = SimpleQueue()
        self._to_notify: list[threading.Event] = []  # set once everything is written
        self._rows: list[tuple[Value, ...]] = []
        self._commit_soon = False
        self._rows_soon = False  # the same, of the rows at hand
        self._committed = -math.inf  # when the last commit was made
        self._due = math.inf  # when the rows at hand are to be written
        self._counting = threading.Lock()
        self._uncommitted_drops = 0  # drops whose number is not in the journal yet
        self._dropped_at = 0.0
        self._once = OnceLog()
        self._failure_logged = False  # whether the present failures have been logged

    def __len__(self) -> int:
        return self.queue.qsize() + len(self._rows)

    def put(self, record: StreamRecord) -> None:
        """Queue a record. It costs one entry, or nothing if the queue is full."""
        ahead = self.queue.qsize()
        if ahead < LONGEST_QUEUE:
            self.queue.put(record)
            if ahead >= MOST_ROWS:
                self.wake.set()
        else:
            self._drop(1)
            self.warn_once(
                "full",
                f"the journal {self.store.path} is behind; records are dropped, and their number is kept",
            )

    def request_flush(self) -> threading.Event:
        """Ask for everything to be written at once. The event is set when it is, or when it cannot be now."""
        done = threading.Event()
        self._flush_requests.put(done)
        self.queue.put(None)
        self.wake.set()
        return done

    def commit_soon(self) -> None:
        """Have the next call of `flush_due` commit what is queued, at once if the last commit was not a moment ago."""
        self._commit_soon = True
        self.wake.set()

    def accept(self, record: StreamRecord | None) -> None:
        """Turn a queued record into a row."""
        if record is None:
            return
        try:
            self._rows.append(row_of(record))
        except (TypeError, ValueError, AttributeError, OverflowError) as exc:
            self._drop(1)
            report_internal_error("journal", exc, "a record is missing from it; your stream is unaffected")

    def flush_due(self, now: float) -> float | None:
        """Take what is queued and write what is due. Return when to call again, or None if nothing is left to do."""
        self.wake.clear()
        if self._commit_soon:  # a record that is queued from here on sets it again, for the next call
            self._commit_soon = False
            self._rows_soon = True
        while not self._flush_requests.empty():
            self._to_notify.append(self._flush_requests.get())
        self._take()
        if not self._rows and not self._uncommitted_drops:
            self._rows_soon = False
            self._notify_flushed()
            return None
        self._due = min(self._due, now + COMMIT_EVERY_S)
        full = len(self._rows) >= MOST_ROWS and not self.failures
        if self._rows_soon and not self.failures:
            self._due = min(self._due, max(now, self._committed + IDLE_COMMIT_EVERY_S))
        if now < self._due and not full and not self._to_notify:
            return self._due
        try:
            self._write()
        except StoreError as error:
            return self._on_failure(error, now)
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with these rows will be so the next time
            self._drop(len(self._rows))
            self._rows = []
            report_internal_error("journal", exc, "records are missing from it; your stream is unaffected")
        return self._on_written(now)

    def warn_once(self, key: str, message: str) -> None:
        """Warn of something once."""
        self._once.warn(key, "%s", message)

    def _take(self) -> None:
        try:
            while len(self._rows) < MOST_ROWS:
                self.accept(self.queue.get_nowait())
        except Empty:
            return

    def _write(self) -> None:
        uncommitted = self._uncommitted_drops
        self.store.write(self._rows, uncommitted, self._dropped_at)
        self._rows = []
        with self._counting:
            self._uncommitted_drops -= uncommitted
        try:
            while self.store.trim(self._wall()) and self.queue.empty():
                pass  # what is left may wait until there is less to do
        except StoreError as error:
            if not error.busy:
                self.warn_once("limits", f"old rows cannot be deleted: the journal {error}")

    def _on_written(self, now: float) -> float | None:
        if self._failure_logged:
            safe_log(logging.INFO, "the journal %s is written again", self.store.path)
        self._failure_logged = False
        self.failures = 0
        self._due = math.inf
        self._committed = now
        self._rows_soon = False
        if not self.queue.empty():
            return now
        self._notify_flushed()
        return None

    def _on_failure(self, error: StoreError, now: float) -> float:
        self.failures += 1
        if not error.busy or self.failures >= BUSY_LOGGED_AFTER:
            self.warn_once("file", f"the journal {error}; streams are unaffected, and it is tried again")
            self._failure_logged = True
            self._notify_flushed()
        self._due = now + retry_after(self.failures, busy=error.busy)
        return self._due

    def _drop(self, records: int) -> None:
        with self._counting:
            self.dropped += records
            self._uncommitted_drops += records
            self._dropped_at = self._wall()

    def _notify_flushed(self) -> None:
        for done in self._to_notify:
            done.set()
        self._to_notify.clear()
