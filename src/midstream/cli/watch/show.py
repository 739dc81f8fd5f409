"""How `midstream watch` shows a server: a line for each reading, the freezes below, and what is not known and why."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table
from rich.text import Text

from midstream._support.numbers import zone_name
from midstream._support.sanitize import clean
from midstream.advice.matching import Match, sentence
from midstream.advice.watching import Between, Now
from midstream.engines.page import MetricReading
from midstream.sources.server import ServerView
from midstream.sources.tail import Frozen

UNKNOWN = "?"
ABSENT = "-"
ROWS = 12
"""How many readings stand on a terminal."""
FREEZES = 6

WIDTHS = (8, 8, 8, 7, 14, 12, 9)


@dataclass(frozen=True, slots=True)
class Matched:
    """A freeze, and what the server counted around it."""

    freeze: Frozen
    match: Match
    engine: str

    def words(self) -> str:
        """Say it in one line."""
        span = self.freeze.span
        said = sentence(self.match, span.length_s, self.engine, ended=not span.open)
        shared = "; the server's other streams were silent, too" if span.shared else ""
        return f"{clock(self.freeze.start)}  {clean(self.freeze.record.request_model)}: {said}{shared}"


def together(found: Sequence[Matched]) -> list[str]:
    """Return a line for each freeze in the order of their times; equal lines are one line with their number."""
    counts = Counter(each.words() for each in sorted(found, key=lambda each: each.freeze.start))
    return [words if count == 1 else f"{words} ({count} streams)" for words, count in counts.items()]


@dataclass
class Shown:
    """What a terminal shows: the last lines and the last freezes."""

    title: str
    now: Now
    lines: list[tuple[str, ...]] = field(default_factory=list)
    freezes: list[Matched] = field(default_factory=list)
    trouble: str | None = None
    """What is wrong with the journal."""

    def add(self, line: tuple[str, ...]) -> None:
        """Take in a line."""
        self.lines = [*self.lines[1 - ROWS :], line]

    def frame(self) -> Group:
        """Return the whole picture."""
        view = self.now.last.view if self.now.last is not None else None
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in header(view):
            table.add_column(name, justify="right", no_wrap=True)
        for line in self.lines:
            table.add_row(*line)
        below: list[Text] = []
        if self.now.problem is not None and self.now.unknown_since is not None:
            below.append(
                Text(f"unknown since {clock(self.now.unknown_since)}: {self.now.problem}", style="bold red")
            )
        below += [Text(words, style="red") for words in together(self.freezes)[-FREEZES:]]
        if self.trouble:
            below.append(Text(self.trouble, style="yellow"))
        below += [Text(line, style="dim") for line in (notes(view) if view is not None else ())]
        below.append(Text(zone(), style="dim"))
        return Group(Text(self.title, style="bold"), "", table, "", *below)


def title(view: ServerView, url: str) -> str:
    """Return the first line: which server this is, and how much its memory holds."""
    models = f", {', '.join(map(clean, view.models))}" if view.models else ""
    pool = view.pool_tokens
    holds = f"{pool.value:,.0f} tokens" if pool.value is not None else UNKNOWN
    many = f" ({pool.why})" if pool.value is not None and pool.why else ""
    return f"{view.title}{models}, {url}: KV cache {holds}{many}"


def header(view: ServerView | None) -> tuple[str, ...]:
    """Name the columns, in the engine's own words."""
    if view is not None and view.preempted_now.exists:
        return ("time", "running", "waiting", "KV use", "paused", "since start", "tokens/s")
    word = "preemptions" if view is None else view.preemptions_word
    return ("time", "running", "waiting", "KV use", f"{word}/s", "since start", "tokens/s")


def row(at: float, view: ServerView, between: Between | None) -> tuple[str, ...]:
    """Return the cells of one reading."""
    if view.preempted_now.exists:
        preempted = number(view.preempted_now)
    else:
        preempted = number(between.preemptions_per_s if between else None, digits=2)
    return (
        clock(at),
        number(view.running),
        number(view.waiting),
        share(view.kv_usage),
        preempted,
        number(view.preemptions),
        number(between.tokens_per_s if between else None),
    )


def unknown_row(at: float) -> tuple[str, ...]:
    """Return the cells of a reading that failed."""
    return (clock(at), *[UNKNOWN] * 6)


def line(cells: Sequence[str]) -> str:
    """Return one line of a table that is printed as it comes."""
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def notes(view: ServerView) -> Iterator[str]:
    """Say what is not known and why, each reason once, and what must be known of the rest."""
    reasons: dict[str, list[str]] = {}
    for name, why in view.unknown():
        reasons.setdefault(why, []).append(WORDS[name])
    for why, names in reasons.items():
        yield f"{UNKNOWN} {', '.join(names)}: {clean(why)}"
    preemptions = view.preemptions
    if preemptions.why and (preemptions.value is not None or not preemptions.exists):
        yield f"{view.preemptions_word}: {preemptions.why}"
    yield from view.notes


WORDS = {
    "running": "running",
    "waiting": "waiting",
    "kv_usage": "KV use",
    "preemptions": "since start",
    "preempted_now": "paused",
    "generated": "tokens",
    "pool_tokens": "KV cache",
}
"""What the numbers of a ServerView are called where they are shown."""


def number(reading: MetricReading | None, digits: int = 0) -> str:
    """Write a number; a dash where the engine has none, or it takes two readings and there is one."""
    if reading is None or not reading.exists:
        return ABSENT
    return UNKNOWN if reading.value is None else f"{reading.value:,.{digits}f}"


def share(reading: MetricReading) -> str:
    """Write a share in percent."""
    return number(reading) if reading.value is None else f"{100 * reading.value:.0f} %"


def zone() -> str:
    """Name the time zone of all times that are shown."""
    return f"Times are local time, {zone_name(time.time())}."


def clock(at: float) -> str:
    """Write a Unix time as the local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at))
