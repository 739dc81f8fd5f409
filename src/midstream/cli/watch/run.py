"""What `midstream watch` does at each step: reads the server and the journal, and matches one with the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from midstream.advice.matching import SLACK_S, match
from midstream.advice.watching import Between, Watched
from midstream.cli.common.errors import CliError
from midstream.cli.watch.show import Matched, Shown, row, title, unknown_row
from midstream.journal import JournalError
from midstream.sources.scrape import Scraped, ScrapeError, Scraper
from midstream.sources.tail import Frozen, Tail


@dataclass(frozen=True, slots=True)
class Read:
    """The server was read."""

    scraped: Scraped
    between: Between | None
    back_after_s: float | None
    """How long it could not be read before this; None if it could."""


@dataclass(frozen=True, slots=True)
class ReadingFailed:
    """The server could not be read. Times are Unix seconds."""

    at: float
    since: float
    problem: str


Event: TypeAlias = Read | ReadingFailed | Matched


class Run:
    """One watch of one server, with a journal or without.

    `say` is called with each event, `say_freezes` with the freezes of one step.
    """

    def __init__(self, scraper: Scraper, tail: Tail | None) -> None:
        self._scraper = scraper
        self._tail = tail
        self._watched = Watched()
        self._engine = ""
        self._pending: list[Frozen] = []
        self._matched: list[Matched] = []
        self.say: Callable[[Event], None] = lambda _event: None
        self.say_freezes: Callable[[Sequence[Matched]], None] = self._say_each
        self.shown = Shown(scraper.url, self._watched.now)

    def first(self) -> Read:
        """Read the server for the first time. Raises CliError if that fails."""
        try:
            return self._took(self._scraper.read())
        except ScrapeError as error:
            raise CliError(str(error)) from error

    def step(self) -> None:
        """Read the server and the journal once."""
        try:
            self._took(self._scraper.read())
        except ScrapeError as error:
            at = time.time()
            self._watched.failed(str(error), at)
            self.shown.now = self._watched.now
            self.shown.add(unknown_row(at))
            self.say(ReadingFailed(at, self._watched.now.unknown_since or at, str(error)))
        self._look()

    def finish(self) -> Iterator[str]:
        """Match what is left, and say what the freezes of this watch have in common."""
        self._look(last=True)
        if self._tail is None:
            return
        if not self._matched:
            yield "No stream with a freeze ended meanwhile."
            return
        matched = [each for each in self._matched if each.match.place in ("start", "end")]
        word = "freeze" if len(self._matched) == 1 else "freezes"
        said = f"{len(matched)} of {len(self._matched)} {word} began or ended with preemptions"
        chances = [each.match.chance for each in self._matched if each.match.chance is not None]
        if chances:
            said += f"; by chance it would be {sum(chances):.1f}"
        yield f"{said}."

    def _took(self, scraped: Scraped) -> Read:
        before = self._watched.now
        self._watched.read(scraped)
        now = self._watched.now
        self._engine = scraped.view.engine
        away = None if before.unknown_since is None else scraped.at - before.unknown_since
        self.shown.now = now
        self.shown.title = title(scraped.view, self._scraper.url)
        self.shown.add(row(scraped.at, scraped.view, now.between))
        event = Read(scraped, now.between, away)
        self.say(event)
        return event

    def _look(self, *, last: bool = False) -> None:
        if self._tail is None:
            return
        try:
            self._pending += self._tail.poll(last=last)
            self.shown.trouble = None
        except JournalError as error:
            self.shown.trouble = str(error)
        known = self._watched.history[-1].until if self._watched.history else 0.0
        if last or self._watched.now.problem is not None:
            known = time.time()
        ready = [freeze for freeze in self._pending if last or freeze.end + SLACK_S <= known]
        self._pending = [freeze for freeze in self._pending if freeze not in ready]
        found = [
            Matched(each, match(each.start, each.end, self._watched.history, self._engine), self._engine)
            for each in sorted(ready, key=lambda freeze: freeze.start)
        ]
        if found:
            self._matched += found
            self.shown.freezes = sorted([*self.shown.freezes, *found], key=lambda each: each.freeze.start)
            self.say_freezes(found)

    def _say_each(self, found: Sequence[Matched]) -> None:
        for each in found:
            self.say(each)
