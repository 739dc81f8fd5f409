"""The tables of a report, in words and numbers: the same for the terminal and for the page. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from midstream._support.numbers import ABSENT, counted, few_or_percent, interval, percent, plural, seconds
from midstream.advice.threshold import Threshold
from midstream.report.grouping import Grouping
from midstream.report.summary import StreamSummary
from midstream.stream.model import Outcome

_ALARMING = ("froze", "time\nfrozen")
"""The columns of what froze, and for how long."""


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One line: the name of what it is about, and its cells."""

    name: str
    cells: tuple[str, ...]
    frozen: bool = False
    total: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its title, the head of the first column and of the others, its rows, and what must be known of it."""

    title: str
    by: str
    columns: tuple[str, ...]
    rows: tuple[ReportRow, ...]
    notes: tuple[str, ...]

    def alarming(self, row: ReportRow, column: int) -> bool:
        """Whether this cell shows a freeze: it is highlighted, and what is unknown or zero beside it is not."""
        cell = row.cells[column]
        return row.frozen and self.columns[column] in _ALARMING and cell.split()[0] not in {"0", ABSENT}


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    cell: Callable[[StreamSummary], str]


def tables(grouping: Grouping, threshold: Threshold | None = None) -> tuple[Table, ...]:
    """Return all tables of streams that were grouped by one thing.

    `threshold` is the gap from which they counted as frozen, as far as it is known.
    """
    total = grouping.total
    shown = [
        _table("Longest gap of each stream", grouping, _GAPS, _gap_notes(total)),
        _table("Freezes", grouping, _FREEZES, _freeze_notes(total, threshold)),
        _table("Answers", grouping, _answers(total), ()),
        _table("Limits", grouping, _LIMITS, _limit_notes(total)),
    ]
    if total.freezes or total.hidden:
        shown.insert(2, _table("Attribution of freezes", grouping, _whose(total), _whose_notes(total)))
    return tuple(shown)


def _table(title: str, grouping: Grouping, columns: Sequence[_Column], notes: Sequence[str]) -> Table:
    def row(name: str, summary: StreamSummary, *, total: bool = False) -> ReportRow:
        cells = tuple(column.cell(summary) for column in columns)
        return ReportRow(name, cells, frozen=bool(summary.freezes) and not total, total=total)

    rows = [row(group.name, group.summary) for group in grouping.groups]
    if grouping.rest is not None:
        rows.append(row(f"{grouping.left_out:,} others", grouping.rest))
    if len(rows) > 1:
        rows.append(row("all", grouping.total, total=True))
    return Table(
        title,
        grouping.by,
        tuple(column.head for column in columns),
        tuple(rows),
        tuple(note for note in notes if note),
    )


def _gap_notes(total: StreamSummary) -> list[str]:
    without = total.streams - total.froze.total
    parts = [
        f"{total.buffered:,} that came in one burst, which hides any gap" if total.buffered else "",
        f"{without - total.buffered:,} with fewer than two pieces of output"
        if without > total.buffered
        else "",
    ]
    return [
        f"Left out, since no gap can be measured in them: {' and '.join(filter(None, parts))}."
        if without
        else "",
        "The p99 of fewer than 100 streams is the longest of them." if 0 < total.gap.count < 100 else "",
    ]


def froze_note(total: StreamSummary, threshold: Threshold | None) -> str:
    """Say what froze means in a table, or nothing where nothing froze."""
    if threshold is None or not total.froze.count:
        return ""
    if threshold.value_s is None:
        return f"froze: {threshold.words}."
    return f"froze: a gap of {threshold.value_s:g} s or more."


def _freeze_notes(total: StreamSummary, threshold: Threshold | None) -> list[str]:
    return [
        froze_note(total, threshold),
        "share: of all streams like these, with 95 % confidence; after the share of those seen, if they are 30 or more."
        if total.froze.total
        else "",
        f"{plural(total.never_ended, 'stream')} ended in a freeze: how long it would have lasted is not known."
        if total.never_ended
        else "",
    ]


def _whose(total: StreamSummary) -> list[_Column]:
    columns = [_Column("hidden", lambda s: f"{s.hidden:,}"), _Column("shared", lambda s: counted(s.shared))]
    # Most servers do not count tokens on every chunk, and then the two cannot be distinguished.
    if _told(total):
        columns += [_Column(word, partial(_suspected, word)) for word in ("stall", "withheld", "unknown")]
    return columns


def _whose_notes(total: StreamSummary) -> list[str]:
    return [
        "hidden: the server froze, and the program was busy and did not wait; these are not among the freezes."
        if total.hidden
        else "",
        "shared: the server's other streams had a gap, too; a stream that is alone there counts as not shared."
        if total.freezes
        else "",
        "stall, withheld: nothing was made, or it was made and held back; of the streams that froze, by their longest "
        "gap."
        if _told(total)
        else "Whether output was not made or held back is unknown: it takes a server that counts tokens on every chunk."
        if total.froze.count
        else "",
    ]


def _answers(total: StreamSummary) -> list[_Column]:
    return [
        _Column("first\ncontent\np50", lambda s: seconds(s.first_content.p50)),
        _Column("first\ncontent\np95", lambda s: seconds(s.first_content.p95)),
        *(
            _Column(outcome.value, partial(_outcomes, outcome.value))
            for outcome in Outcome
            if outcome.value in total.outcomes
        ),
    ]


def _limit_notes(total: StreamSummary) -> list[str]:
    unfinished = total.streams - total.finished
    return [
        f"{plural(unfinished, 'stream')} did not finish, and {'is' if unfinished == 1 else 'are'} not among those that "
        "ended by length."
        if unfinished
        else "",
        f"{plural(total.length_without_limit, 'answer')} ended by length without a limit in the request: at the "
        "server's own, or at the end of the context."
        if total.length_without_limit
        else "",
        "The server reported no usage in full, so how much of the limits was used is unknown."
        if total.limits and not total.limit_used.count
        else "",
    ]


def _told(total: StreamSummary) -> bool:
    return "stall" in total.suspected or "withheld" in total.suspected


def _suspected(word: str, summary: StreamSummary) -> str:
    return f"{summary.suspected.get(word, 0):,} of {summary.froze.count:,}" if summary.froze.count else ABSENT


def _outcomes(word: str, summary: StreamSummary) -> str:
    return f"{summary.outcomes.get(word, 0):,}"


def _tokens(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}"


_GAPS = (
    _Column("streams", lambda s: f"{s.streams:,}"),
    _Column("seen in", lambda s: f"{s.gap.count:,}"),
    _Column("p50", lambda s: seconds(s.gap.p50)),
    _Column("p95", lambda s: seconds(s.gap.p95)),
    _Column("p99", lambda s: seconds(s.gap.p99)),
    _Column("worst", lambda s: seconds(s.gap.max)),
)
_FREEZES = (
    _Column("froze", lambda s: counted(s.froze)),
    _Column("share", lambda s: interval(s.froze)),
    _Column("freezes", lambda s: f"{s.freezes:,}" if s.froze.total else ABSENT),
    _Column("time\nfrozen", lambda s: seconds(s.frozen_s) if s.froze.total else ABSENT),
    _Column("never\nended", lambda s: f"{s.never_ended:,}" if s.froze.total else ABSENT),
)
_LIMITS = (
    _Column("finished", lambda s: f"{s.finished:,}"),
    _Column("by\nlength", lambda s: few_or_percent(s.length)),
    _Column("hit\nlimit", lambda s: few_or_percent(s.limit_hits)),
    _Column("with\nlimit", lambda s: f"{s.limits:,}"),
    _Column("limit\nused\np50", lambda s: percent(s.limit_used.p50)),
    _Column("limit\nused\np95", lambda s: percent(s.limit_used.p95)),
    _Column("tokens\np50", lambda s: _tokens(s.output_tokens.p50)),
    _Column("tokens\np95", lambda s: _tokens(s.output_tokens.p95)),
)
