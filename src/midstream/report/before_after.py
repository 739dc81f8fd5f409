"""Two sets of streams side by side: before a change and after it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from midstream._support.numbers import counted, few_or_percent, interval, seconds
from midstream.advice.before_after import CompareGoal, compare
from midstream.advice.comparison_words import verdict
from midstream.advice.threshold import threshold_of
from midstream.report.gaps import Series, exceedance
from midstream.report.section import Section
from midstream.report.summary import StreamSummary, summarise
from midstream.report.tables import ReportRow, Table, froze_note
from midstream.stream.model import StreamRecord

NAMES = ("before", "after")

_ROWS: tuple[tuple[str, Callable[[StreamSummary], str]], ...] = (
    ("streams", lambda s: f"{s.streams:,}"),
    ("a gap could be measured in", lambda s: f"{s.gap.count:,}"),
    ("froze", lambda s: counted(s.froze)),
    ("share, with 95 % confidence", lambda s: interval(s.froze)),
    ("frozen for each stream", lambda s: seconds(s.frozen_s / s.froze.total if s.froze.total else None)),
    ("longest gap, p50", lambda s: seconds(s.gap.p50)),
    ("longest gap, p95", lambda s: seconds(s.gap.p95)),
    ("longest gap, p99", lambda s: seconds(s.gap.p99)),
    ("longest gap, worst", lambda s: seconds(s.gap.max)),
    ("first content, p50", lambda s: seconds(s.first_content.p50)),
    ("first content, p95", lambda s: seconds(s.first_content.p95)),
    ("completed", lambda s: f"{s.outcomes.get('completed', 0):,}"),
    ("ended by length", lambda s: few_or_percent(s.length)),
    ("hit the limit", lambda s: few_or_percent(s.limit_hits)),
)


def side_by_side(before: Sequence[StreamRecord], after: Sequence[StreamRecord]) -> Table:
    """Return the table of both."""
    summaries = [summarise(records) for records in (before, after)]
    few = [name for name, each in zip(NAMES, summaries, strict=True) if 0 < each.gap.count < 100]
    return Table(
        title="Before and after",
        by="",
        columns=NAMES,
        rows=tuple(ReportRow(name, tuple(cell(each) for each in summaries)) for name, cell in _ROWS),
        notes=(
            *filter(None, [froze_note(summarise([*before, *after]), threshold_of([*before, *after]))]),
            *((f"Of fewer than 100 streams ({', '.join(few)}), the p99 is the longest.",) if few else ()),
        ),
    )


def judged(before: Sequence[StreamRecord], after: Sequence[StreamRecord]) -> str:
    """Say in a sentence whether the change did good, as `midstream compare` does."""
    return verdict(compare(before, after), CompareGoal())


def section(before: Sequence[StreamRecord], after: Sequence[StreamRecord]) -> Section:
    """Return the part of the page about both."""
    series = [Series(name, records) for name, records in zip(NAMES, (before, after), strict=True)]
    figure = exceedance(series, threshold_of([*before, *after]))
    if figure is not None:
        figure = figure.renamed("before-after")
    return Section(
        "Before and after",
        sentences=(judged(before, after), "The intervals behind it shows `midstream compare`."),
        figures=() if figure is None else (figure,),
        tables=(side_by_side(before, after),),
    )
