"""The freezes that come to a journal while it is watched."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from midstream.journal import read
from midstream.sources.select import Condition
from midstream.stream.model import FreezeSpan, StreamRecord

LONGEST_S = 3600.0
"""A stream that was open for longer than this when it ended is not seen: the journal is searched by beginnings."""
_IDLE = 20.0
"""Reading takes no more than one part in so many of the time, however large the journal."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """One freeze of one ended stream, in Unix seconds."""

    record: StreamRecord
    span: FreezeSpan

    @property
    def start(self) -> float:
        """When the gap began."""
        return self.record.started_at + self.span.at_s

    @property
    def end(self) -> float:
        """When it ended, or the stream did."""
        return self.start + self.span.length_s


class Tail:
    """Reads a journal again and again. The first look decides what is old; raises JournalError if it cannot.

    A journal that is not there yet, in a folder that is, is waited for: its first stream makes it.
    """

    def __init__(
        self,
        journal: Path,
        conditions: Sequence[Condition] = (),
        *,
        clock: Callable[[], float] = time.time,
        since: float | None = None,
    ) -> None:
        self._journal = journal
        self._conditions = conditions
        self._clock = clock
        self._since = clock() if since is None else since
        self._seen: set[tuple[object, ...]] = set()
        self._next = 0.0
        self.waiting = True
        """True until the journal is there."""
        self.poll()

    def poll(self, *, last: bool = False) -> list[Frozen]:
        """Return the freezes that ended since the first look and were not returned before, in order.

        Returns none, and reads nothing, if it was asked a short time ago and is to be asked again: the `last` time
        it always reads. Raises JournalError.
        """
        now = self._clock()
        if now < self._next and not last:
            return []
        self.waiting = self.waiting and _absent(self._journal)
        if self.waiting:
            return []
        records = read(self._journal, since=now - LONGEST_S).records
        self._next = now + _IDLE * (self._clock() - now)
        found = []
        for record in records:
            if record.freeze_spans and all(holds(record) for holds in self._conditions):
                found += [
                    freeze for span in record.freeze_spans if self._is_new(freeze := Frozen(record, span))
                ]
        return sorted(found, key=lambda freeze: freeze.start)

    def _is_new(self, freeze: Frozen) -> bool:
        record = freeze.record
        key = (record.started_at, record.trace_id, record.duration_s, record.request_model, freeze.span.at_s)
        if freeze.end < self._since or key in self._seen:
            return False
        self._seen.add(key)
        return True


def _absent(journal: Path) -> bool:
    """Tell whether there is no file, in a folder where there could be one. All else is for the reader to say."""
    try:
        journal.stat()
    except FileNotFoundError:
        return journal.parent.is_dir()
    except OSError:
        return False
    return False
