"""What `midstream watch` prints where nothing can be redrawn: a line for each reading, as it comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from midstream.cli.watch.run import Event, Read, ReadingFailed
from midstream.cli.watch.show import (
    Matched,
    clock,
    header,
    line,
    notes,
    row,
    title,
    together,
    unknown_row,
    zone,
)


class Lines:
    """Prints events to standard output; the title and the notes stand before the first reading."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._title = ""
        self._problem: str | None = None

    def __call__(self, event: Event) -> None:
        """Print one event."""
        if isinstance(event, Read):
            self._read(event)
        elif isinstance(event, ReadingFailed):
            if event.problem != self._problem:
                _print(f"{clock(event.at)}  unknown since {clock(event.since)}: {event.problem}")
            self._problem = event.problem
            _print(line(unknown_row(event.at)))
        else:
            self.freezes([event])
        sys.stdout.flush()

    def freezes(self, found: Sequence[Matched]) -> None:
        """Print the freezes of one step, with the time of the step, since they began before lines above."""
        now = clock(time.time())
        _print(*(f"{now}  freeze at {words}" for words in together(found)))
        sys.stdout.flush()

    def _read(self, event: Read) -> None:
        view = event.scraped.view
        if event.back_after_s is not None:
            _print(f"{clock(event.scraped.at)}  back after {event.back_after_s:.1f} s")
        if event.between is not None and event.between.restarted:
            _print(f"{clock(event.scraped.at)}  restarted: its counters began anew")
        self._problem = None
        head = title(view, self._url)
        if head != self._title:
            self._title = head
            _print(head, *notes(view), zone(), "", line(header(view)))
        _print(line(row(event.scraped.at, view, event.between)))


def _print(*lines: str) -> None:
    for each in lines:
        sys.stdout.write(f"{each}\n")
