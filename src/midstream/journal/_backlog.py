"""What waits to be written into the journal: a bounded queue, two commits a second, new attempts after failures.

Whatever happens to the disk is said once. What is here is kept and tried again until the cause is gone; when the queue
is full, further records are dropped and counted, and the count is written as soon as it can be. Time is an argument.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from midstream._support.internal_errors import report_internal_error, safe_log
from midstream.journal._kinds import Value
from midstream.journal._rows import row_of
from midstream.journal._store import Store, StoreError
from midstream.stream.model import StreamRecord

LONGEST_QUEUE = 10_000
"""Records that may wait, about 1 KiB each."""
COMMIT_EVERY_S = 0.5
"""How long a record may wait for its commit; half of what may be lost, so that a slow commit fits in as well."""
MOST_ROWS = 2000
"""Rows of one commit, so that other processes get their turn."""
FIRST_RETRY_S, BUSY_RETRY_S, LAST_RETRY_S = 1.0, 0.05, 30.0
BUSY_SAID_AFTER = 8
"""Attempts that found the journal locked before anybody hears of it: some are usual among many processes."""


def retry_after(failures: int, *, busy: bool) -> float:
    """Seconds until the next attempt after so many failures in a row: twice as long each time, up to a bound."""
    first, last = (BUSY_RETRY_S, FIRST_RETRY_S) if busy else (FIRST_RETRY_S, LAST_RETRY_S)
    return min(last, first * 2.0 ** min(failures - 1, 10))


class Backlog:
    """The records on their way into one store. Anybody may `put` and `ask`; one thread at a time takes a `turn`."""

    def __init__(self, store: Store, wall: Callable[[], float]) -> None:
        self.store = store
        self.hurry = threading.Event()
        """Set when the next turn should not wait until it is due."""
        self.failures = 0
        """Attempts to write that failed, since the last that did not."""
        self.dropped = 0
        """Records that could not be kept."""
        self.queue: SimpleQueue[StreamRecord | None] = SimpleQueue()
        self._wall = wall
        self._asked: SimpleQueue[threading.Event] = SimpleQueue()
        self._waiting: list[threading.Event] = []  # who wants to know when everything is written
        self._rows: list[tuple[Value, ...]] = []
        self._due = math.inf  # when the rows at hand are to be written
        self._counting = threading.Lock()
        self._untold = 0  # drops that the journal does not know of yet
        self._dropped_at = 0.0
        self._said: set[str] = set()
        self._told = False  # whether anybody knows of the failures in a row

    def __len__(self) -> int:
        return self.queue.qsize() + len(self._rows)

    def put(self, record: StreamRecord) -> None:
        """Queue a record. It costs one entry, or nothing if the queue is full."""
        ahead = self.queue.qsize()
        if ahead < LONGEST_QUEUE:
            self.queue.put(record)
            if ahead >= MOST_ROWS:
                self.hurry.set()
        else:
            self._drop(1)
            self.say(
                "full",
                f"the journal {self.store.path} is behind; records are dropped, and their number is kept",
            )

    def ask(self) -> threading.Event:
        """Ask for everything to be written at once. The event is set when it is, or when it cannot be now."""
        done = threading.Event()
        self._asked.put(done)
        self.queue.put(None)
        self.hurry.set()
        return done

    def accept(self, record: StreamRecord | None) -> None:
        """Make a row of what came out of the queue."""
        if record is None:
            return
        try:
            self._rows.append(row_of(record))
        except (TypeError, ValueError, AttributeError, OverflowError) as exc:
            self._drop(1)
            report_internal_error("journal", exc, "a record is missing from it; your stream is unaffected")

    def turn(self, now: float) -> float | None:
        """Take what is queued and write what is due; say when to come back, or None if nothing is left to do."""
        self.hurry.clear()
        while not self._asked.empty():
            self._waiting.append(self._asked.get())
        self._take()
        if not self._rows and not self._untold:
            self._answer()
            return None
        self._due = min(self._due, now + COMMIT_EVERY_S)
        full = len(self._rows) >= MOST_ROWS and not self.failures
        if now < self._due and not full and not self._waiting:
            return self._due
        try:
            self._write()
        except StoreError as error:
            return self._failed(error, now)
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with these rows will be so the next time
            self._drop(len(self._rows))
            self._rows = []
            report_internal_error("journal", exc, "records are missing from it; your stream is unaffected")
        return self._written(now)

    def say(self, key: str, message: str) -> None:
        """Warn of something once."""
        if key not in self._said:
            self._said.add(key)
            safe_log(logging.WARNING, "midstream: %s", message)

    def _take(self) -> None:
        try:
            while len(self._rows) < MOST_ROWS:
                self.accept(self.queue.get_nowait())
        except Empty:
            return

    def _write(self) -> None:
        untold = self._untold
        self.store.write(self._rows, untold, self._dropped_at)
        self._rows = []
        with self._counting:
            self._untold -= untold
        try:
            while self.store.trim(self._wall()) and self.queue.empty():
                pass  # what is left may wait until there is less to do
        except StoreError as error:
            if not error.busy:
                self.say("limits", f"old rows cannot be deleted: the journal {error}")

    def _written(self, now: float) -> float | None:
        if self._told:
            safe_log(logging.INFO, "midstream: the journal %s is written again", self.store.path)
        self._told = False
        self.failures = 0
        self._due = math.inf
        if not self.queue.empty():
            return now
        self._answer()
        return None

    def _failed(self, error: StoreError, now: float) -> float:
        self.failures += 1
        if not error.busy or self.failures >= BUSY_SAID_AFTER:
            self.say("file", f"the journal {error}; streams are unaffected, and it is tried again")
            self._told = True
            self._answer()
        self._due = now + retry_after(self.failures, busy=error.busy)
        return self._due

    def _drop(self, records: int) -> None:
        with self._counting:
            self.dropped += records
            self._untold += records
            self._dropped_at = self._wall()

    def _answer(self) -> None:
        for done in self._waiting:
            done.set()
        self._waiting.clear()
