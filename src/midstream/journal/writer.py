"""The writer of a journal, off the hot path: one thread for each journal of a process, while there is work."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Final

from midstream._support.idle import on_idle
from midstream._support.internal_errors import report_internal_error
from midstream._support.lifecycle import EXIT_S, Stage, Worker, parts, register, run_exit_in_pool_workers
from midstream._support.limits import positive_or_none
from midstream.journal._backlog import BUSY_RETRY_S, Backlog
from midstream.journal._store import Store, StoreError
from midstream.stream.model import StreamRecord

IDLE_S = 10.0
"""How long the thread waits for the next record before it closes the journal and ends."""
FLUSH_S = 2.0
PAUSE_S = 1.0
"""How long a fork may wait for a commit that is under way."""
AFTER_FAULT_S = 1.0


class Journal:
    """The writer of one journal in one process. No method raises for what is wrong with the file or its disk.

    `path`: the file, made for its owner alone when the first stream opens; its directory must exist.
    `max_mb`, `max_days`: how large in millions of bytes, and how old, it may become; None for no limit. The oldest rows
    go first. Raises ValueError or TypeError for a limit that is no positive number.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_mb: float | None = 100.0,
        max_days: float | None = 30.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        threaded: bool = True,
    ) -> None:
        self.path: Final = Path(path).expanduser().absolute()
        self.store = Store(
            self.path,
            max_mb=positive_or_none("max_mb", max_mb),
            max_days=positive_or_none("max_days", max_days),
        )
        self._clock = clock
        self._wall = wall
        self._threaded = threaded
        self._reset()
        register(self, Stage.JOURNALS)

    def __repr__(self) -> str:
        return f"<Journal {self.path} waiting={len(self._backlog)} dropped={self.dropped}>"

    @property
    def dropped(self) -> int:
        """Records that this process could not keep."""
        return self._backlog.dropped

    def prepare(self) -> None:
        """Have the file opened, and made if need be: a stream is open, and its record should be written at once."""
        if self._worker.thread is None and self._threaded:
            self._worker.start(run_exit_in_pool_workers)

    def write(self, record: StreamRecord) -> None:
        """Have the record written soon. Costs the caller one entry in a queue, or nothing if that is full."""
        self._backlog.put(record)
        self.prepare()  # while the interpreter exits no thread can be started: then the exit writes what is left

    def commit_soon(self) -> None:
        """Commit what is queued without waiting for more: no stream is open, and the process may end at any time."""
        self._backlog.commit_soon()

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Wait until what was given so far is written; False if it cannot be now, or not in `timeout_s` seconds."""
        until = time.monotonic() + timeout_s
        done = self._backlog.request_flush()
        thread = self._worker.thread
        if thread is None or not thread.is_alive() or self._worker.is_current:
            while not done.is_set() and time.monotonic() < until:
                self.flush_due(self._clock())
                done.wait(BUSY_RETRY_S if self._backlog.failures else 0.0)
        done.wait(max(0.0, until - time.monotonic()))
        return done.is_set() and not self._backlog.failures

    def close(self, timeout_s: float = FLUSH_S) -> bool:
        """Flush, and close the file. Whatever is written later opens it again."""
        written = self.flush(timeout_s)
        with self._flushing:
            self.store.close()
        return written

    def flush_due(self, now: float) -> float | None:
        """Do what is due at `now`, as the thread does. Return when to call again, or None if nothing is left to do."""
        with self._flushing:
            return self._backlog.flush_due(now)

    # For the process

    def at_exit(self, timeout_s: float) -> None:
        """Write what is left: the process exits."""
        until = time.monotonic() + timeout_s
        if not self.flush(timeout_s):
            lost = f"{len(self._backlog)} records could not be written into the journal {self.path}"
            self._backlog.warn_once("lost", f"{lost} before the process ended")
        if self._flushing.acquire(timeout=max(0.0, until - time.monotonic())):
            self.store.close()  # the last connection to close removes the write-ahead log
            self._flushing.release()

    def before_fork(self) -> bool:
        """Close the file, and hold everything up until the fork is made; False if that took too long."""
        if not self._flushing.acquire(timeout=PAUSE_S):
            return False
        self.store.close()
        return True

    def after_fork_in_parent(self) -> None:
        """Go on in the parent, after the fork."""
        self._flushing.release()

    def after_fork_in_child(self) -> None:
        """Reset in a forked child: queue, thread, file and unwritten records belong to the parent."""
        self.store.abandon()
        self._reset()

    # The thread

    def _reset(self) -> None:
        self._backlog = Backlog(self.store, self._wall)
        self._flushing = threading.Lock()
        self._worker = Worker("midstream-journal", self._run)

    def _run(self) -> None:
        backlog = self._backlog
        self._open()
        while True:
            try:
                again = self.flush_due(self._clock())
            except Exception as exc:  # noqa: BLE001 - the thread must outlive a fault
                report_internal_error("journal", exc)
                again = self._clock() + AFTER_FAULT_S
            if again is not None:
                backlog.wake.wait(max(0.0, again - self._clock()))
                continue
            try:
                record = backlog.queue.get(timeout=IDLE_S)
            except Empty:
                if self._end():
                    return
            else:
                with self._flushing:
                    backlog.accept(record)

    def _open(self) -> None:
        try:
            with self._flushing:
                self.store.prepare()
        except StoreError:
            pass  # reported with the first record, if it lasts
        except Exception as exc:  # noqa: BLE001 - the thread must outlive a fault
            report_internal_error("journal", exc)

    def _end(self) -> bool:
        with self._flushing:
            self.store.close()
        return self._worker.end_if(self._backlog.queue.empty)  # the next record starts another


def flush(timeout_s: float = EXIT_S) -> bool:
    """Wait until every journal of this process is written; False if one cannot be now, or not in `timeout_s` seconds.

    For programs that are frozen or killed between requests, as on serverless platforms.
    """
    until = time.monotonic() + timeout_s
    writers = [part for part in parts(Stage.JOURNALS) if isinstance(part, Journal)]
    written = [writer.flush(max(0.0, until - time.monotonic())) for writer in writers]
    return all(written)


def _commit_soon() -> None:
    for writer in parts(Stage.JOURNALS):
        if isinstance(writer, Journal):
            writer.commit_soon()


on_idle(_commit_soon)


def journal_at(path: Path, max_mb: float | None, max_days: float | None) -> Journal:
    """The writer of this journal, one for each path of a process; its limits are those given last."""
    for writer in parts(Stage.JOURNALS):
        if isinstance(writer, Journal) and writer.path == path:
            writer.store.max_mb, writer.store.max_days = max_mb, max_days
            return writer
    return Journal(path, max_mb=max_mb, max_days=max_days)
