"""The tables of a fleet, from what its metrics add up to: fewer numbers than records give, and less sharp. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import tzinfo
from functools import reduce

from midstream._support.numbers import (
    ABSENT,
    bounds,
    counted,
    few_or_percent,
    interval,
    moment,
    percent,
    plural,
    seconds,
    zone_name,
)
from midstream._support.sanitize import clean
from midstream._support.statistics import Share, share
from midstream.report.grouping import UNKNOWN
from midstream.report.tables import ReportRow, Table
from midstream.sources.fleet import Fleet, Histogram, Summary
from midstream.telemetry.instruments import ADDRESS, MODEL, OPERATION

LABELS: Mapping[str, str] = {"model": MODEL, "server": ADDRESS, "operation": OPERATION}
"""OpenTelemetry's names of what streams can be grouped by."""

_Cell = Callable[[Summary], str]


def fleet_in_words(fleet: Fleet, freeze_after_s: float, zone: tzinfo | None = None) -> tuple[str, ...]:
    """Say what the metrics show, and what they cannot; times in this zone, or the machine's."""
    total = fleet.total
    streams = (
        "an unknown number of streams" if total.streams is None else plural(round(total.streams), "stream")
    )
    froze = froze_of(total, freeze_after_s)
    when = f"From {moment(fleet.since, zone)} to {moment(fleet.until, zone)} ({zone_name(fleet.since, zone)})"
    said = [f"{when}, {streams} ended."]
    if froze is None:
        said.append(f"Which share of them froze is unknown: {_why_unknown(total.max_gap, freeze_after_s)}.")
    elif not froze.total:
        said.append("No gap could be measured: that takes an answer that arrives in several pieces.")
    else:
        said.append(
            f"{froze.count:,} of {froze.total:,} had a gap of more than {freeze_after_s:g} s; with 95 % confidence, "
            f"{bounds(froze)} of all are."
        )
    said += [f"{note[0].upper()}{note[1:].rstrip('.')}." for note in fleet.notes if note]
    said.append("Metrics hold no single streams: a timeline, and a page with plots, need a journal.")
    return tuple(said)


def fleet_tables(fleet: Fleet, by: str, label: str, top: int, freeze_after_s: float) -> tuple[Table, ...]:
    """Return the tables of a fleet that was asked for by this label; the longest frozen first."""
    ordered = sorted(
        fleet.summaries,
        key=lambda each: (-(each.frozen_s or 0.0), -(each.streams or 0.0), name_in(each, label)),
    )
    kept = ordered if len(ordered) <= top + 1 else ordered[:top]
    rows = [(name_in(each, label), each) for each in kept]
    if len(ordered) > len(kept):
        rest = reduce(Summary.__add__, ordered[len(kept) :])
        rows.append((f"{len(ordered) - len(kept):,} others", rest))
    total = fleet.total

    def table(title: str, columns: Mapping[str, _Cell], *notes: str) -> Table:
        shown = [
            ReportRow(name, tuple(cell(each) for cell in columns.values()), frozen=bool(each.frozen_s))
            for name, each in rows
        ]
        if len(shown) > 1:
            shown.append(ReportRow("all", tuple(cell(total) for cell in columns.values()), total=True))
        return Table(title, clean(by), tuple(columns), tuple(shown), notes)

    return (
        table(
            "Longest gap of each stream",
            _gap_columns(),
            "Read off the buckets of a histogram: true to the bucket, not to the digit. Answers that came in one burst "
            "are left out.",
        ),
        table(
            "Freezes",
            _freezes(freeze_after_s),
            f"froze: streams with a gap of more than {freeze_after_s:g} s; freezes and time frozen count from the "
            "threshold that each program has set.",
        ),
        table("Answers", _answers(total)),
        table("Limits", _limits()),
    )


def froze_of(summary: Summary, freeze_after_s: float) -> Share | None:
    """Return the share of streams that had a longer gap; None without a histogram, or without that bound."""
    gaps = summary.max_gap
    if gaps is None:
        return None
    least, most = gaps.above(freeze_after_s)
    if round(most) != round(least):
        return None
    # What grew between two scrapes is estimated, and never a whole number.
    return share(min(round(least), round(gaps.count)), round(gaps.count))


def _why_unknown(gaps: Histogram | None, freeze_after_s: float) -> str:
    around = None if gaps is None else gaps.around(freeze_after_s)
    if around is None:
        return "there is no histogram of gaps in this time"
    nearest = [_exact(bound) for bound in (around.low, around.high) if 0 < bound < math.inf]
    known = (
        f"the nearest {'is' if len(nearest) == 1 else 'are'} {' and '.join(nearest)} s"
        if nearest
        else "there is none"
    )
    return f"{_exact(freeze_after_s)} s is not a bound of the histogram of gaps; {known}"


def _exact(bound: float) -> str:
    """Write a bound so that it can be given back: a native histogram's has many digits."""
    return f"{bound:g}" if float(f"{bound:g}") == bound else repr(bound)


def _gap_columns() -> dict[str, _Cell]:
    return {
        "streams": lambda s: _count(s.streams),
        "seen in": lambda s: _count(None if s.max_gap is None else s.max_gap.count),
        "p50": lambda s: at(s.max_gap, 0.5),
        "p95": lambda s: at(s.max_gap, 0.95),
        "p99": lambda s: at(s.max_gap, 0.99),
    }


def _freezes(freeze_after_s: float) -> dict[str, _Cell]:
    def froze(summary: Summary, write: Callable[[Share], str]) -> str:
        found = froze_of(summary, freeze_after_s)
        return ABSENT if found is None else write(found)

    return {
        "froze": lambda s: froze(s, counted),
        "share": lambda s: froze(s, interval),
        "freezes": lambda s: _count(s.freezes),
        "time\nfrozen": lambda s: seconds(s.frozen_s),
        "hidden": lambda s: _count(s.hidden_freezes),
        "one\nburst": lambda s: _count(s.buffered),
    }


def _answers(total: Summary) -> dict[str, _Cell]:
    columns: dict[str, _Cell] = {
        "first\ncontent\np50": lambda s: at(s.first_content, 0.5),
        "first\ncontent\np95": lambda s: at(s.first_content, 0.95),
    }
    for outcome in sorted(total.outcomes(), key=lambda word: (word != "completed", word)):
        columns[clean(outcome)] = _outcome(outcome)
    return columns


def _outcome(outcome: str) -> _Cell:
    return lambda s: _count(None if s.ended is None else s.outcomes().get(outcome, 0.0))


def _limits() -> dict[str, _Cell]:
    return {
        "completed": lambda s: _count(None if s.ended is None else s.outcomes().get("completed", 0.0)),
        "by\nlength": lambda s: _of_completed(s, _by_length(s)),
        "hit\nlimit": lambda s: _count(s.limit_hits),
        "limit\nused\np50": lambda s: _ratio(s.limit_used, 0.5),
        "limit\nused\np95": lambda s: _ratio(s.limit_used, 0.95),
        "tokens\np50": lambda s: _tokens(s.output_tokens, 0.5),
        "tokens\np95": lambda s: _tokens(s.output_tokens, 0.95),
    }


def at(histogram: Histogram | None, q: float) -> str:
    """Write a quantile of durations; beyond the last bound nothing is known but that."""
    found, beyond = _quantile(histogram, q)
    return ABSENT if found is None else f"{'over ' if beyond else ''}{seconds(found)}"


def _ratio(histogram: Histogram | None, q: float) -> str:
    found, beyond = _quantile(histogram, q)
    return ABSENT if found is None else f"{'over ' if beyond else ''}{percent(found)}"


def _tokens(histogram: Histogram | None, q: float) -> str:
    found, beyond = _quantile(histogram, q)
    return ABSENT if found is None else f"{'over ' if beyond else ''}{found:,.0f}"


def _quantile(histogram: Histogram | None, q: float) -> tuple[float | None, bool]:
    bucket = None if histogram is None else histogram.bucket_of(q)
    if histogram is None or bucket is None:
        return None, False
    return histogram.quantile(q), math.isinf(bucket.high)


def _by_length(summary: Summary) -> float:
    return sum(
        count
        for (outcome, reason), count in (summary.ended or {}).items()
        if outcome == "completed" and reason == "length"
    )


def _of_completed(summary: Summary, count: float) -> str:
    if summary.ended is None:
        return ABSENT
    completed = round(summary.outcomes().get("completed", 0.0))
    return few_or_percent(share(min(round(count), completed), completed))


def _count(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}"


def name_in(summary: Summary, label: str) -> str:
    """Return the name of a group, fit to be shown."""
    return clean(summary.labels.get(label, "")) or UNKNOWN
