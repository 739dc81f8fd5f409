"""The timeline of the page: every stream as a bar, its freezes in it, and how many were open at once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from functools import partial

from midstream._support.numbers import plural, seconds
from midstream.report.at_once import at_once
from midstream.report.figure import Figure, Json, axis, label
from midstream.report.grouping import name_of
from midstream.report.lanes import Laid, Laying, laid_out, spans
from midstream.stream.model import FreezeSpan, StreamRecord

LANE_PX = 14
MOST_COLUMNS = 100
PLOT_PX = 1000
"""About as wide is a page's plot."""

_KINDS: tuple[tuple[str, Callable[[FreezeSpan], bool], Json], ...] = (
    ("freeze", lambda span: not span.shared and not span.hidden, {"color": "<freeze>"}),
    ("shared freeze", lambda span: span.shared and not span.hidden, {"color": "<shared>"}),
    (
        "hidden freeze",
        lambda span: span.hidden,
        {
            "color": "<paper>",
            "pattern": {"shape": "/", "fgcolor": "<hidden>"},
            "line": {"color": "<hidden>", "width": 1},
        },
    ),
)
"""The kinds of freezes: their name, which they are, how they are drawn."""


def timeline(records: Sequence[StreamRecord], zone: tzinfo | None = None) -> Figure:
    """Draw the streams over time, in this zone or the machine's; there must be at least one."""
    fixed = _fixed(min(record.started_at for record in records), zone)
    laying = laid_out(records)
    lanes = laying.blocks[-1].last + 1
    height = min(1000, max(380, 240 + LANE_PX * lanes))
    share = min(0.3, 90 / (height - 90))
    return Figure(
        "timeline",
        "Streams over time",
        _caption(laying, fixed),
        [*_bars(laying.drawn, fixed), *at_once(records, partial(_ms, zone=fixed))],
        {
            "barmode": "overlay",
            "hovermode": "closest",
            "xaxis": axis("", type="date", anchor="y"),
            "yaxis": axis(
                "",
                domain=[0, 1 - share - 0.04],
                range=[lanes - 0.4, -0.6],
                tickvals=[(block.first + block.last) / 2 for block in laying.blocks],
                ticktext=[label(block.server, 28) for block in laying.blocks],
                showgrid=False,
                zeroline=False,
            ),
            "yaxis2": axis("open", domain=[1 - share, 1], rangemode="tozero", nticks=4),
            "shapes": list(_shapes(laying, fixed)),
        },
        height,
    )


def _caption(laying: Laying, zone: timezone) -> str:
    drawn = len(laying.drawn)
    which = (
        f"Each of the {plural(drawn, 'stream')} is a bar"
        if drawn == laying.total
        else f"Drawn are the {drawn:,} streams with the longest gaps of {laying.total:,}, each as a bar; the "
        "curves above count all of them"
    )
    return (
        f"{which}, pale until its first content, with its freezes in it; a cross ends a bar whose last gap never "
        "ended. Streams of one server lie together, so that a freeze of the whole server stands as a column. Drag "
        f"over a part to enlarge it, double-click to see all, point at a bar to read what it was. Times are {zone}."
    )


def _fixed(at: float, zone: tzinfo | None) -> timezone:
    """Return the zone's offset at the beginning: the clocks of one plot are not put forward in its middle."""
    return timezone(datetime.fromtimestamp(at, zone).astimezone(zone).utcoffset() or timedelta())


def _ms(at: float, zone: timezone) -> int:
    """Return a time as Plotly counts it: milliseconds, as if the zone's clock were UTC."""
    return round((at + zone.utcoffset(None).total_seconds()) * 1000)


def _bars(drawn: Sequence[Laid], zone: timezone) -> Iterator[Json]:
    waits = [(each, _first(each.record)) for each in drawn]
    starts = [each.record.started_at for each in drawn]
    overall_s = max(each.record.started_at + each.record.duration_s for each in drawn) - min(starts)
    yield _trace(
        "until first content",
        [(each, 0.0, first, about(each.record, zone)) for each, first in waits],
        {"color": "<waiting>", "line": _edges([first for _, first in waits], overall_s)},
        zone,
    )
    answers = [
        (each, first, each.record.duration_s - first, about(each.record, zone))
        for each, first in waits
        if first < each.record.duration_s
    ]
    yield _trace(
        "answer",
        answers,
        {"color": "<stream>", "line": _edges([length_s for _, _, length_s, _ in answers], overall_s)},
        zone,
    )
    for name, belongs, marker in _KINDS:
        frozen = [
            (each, span.at_s, span.length_s, f"{_frozen(span)}<br>{about(each.record, zone)}")
            for each in drawn
            for span in spans(each.record)
            if belongs(span)
        ]
        if frozen:
            yield _trace(name, frozen, {"line": {"color": marker["color"], "width": 1}, **marker}, zone)
    ends = [each for each in drawn if any(span.open for span in spans(each.record))]
    if ends:
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": "never ended",
            "x": [_ms(each.record.started_at + each.record.duration_s, zone) for each in ends],
            "y": [each.lane for each in ends],
            "marker": {"symbol": "x", "size": 8, "color": "<ink>", "line": {"color": "<paper>", "width": 1}},
            "hoverinfo": "text",
            "hovertext": [about(each.record, zone) for each in ends],
        }


def _edges(lengths_s: Sequence[float], overall_s: float) -> Json:
    """Return an edge for each bar: of the paper's colour, so that neighbours in a lane do not touch.

    A bar that is not much wider than its edge keeps its own colour there, and stays to be seen.
    """
    wide_s = overall_s * 4 / PLOT_PX
    return {"color": ["<paper>" if each >= wide_s else "<stream>" for each in lengths_s], "width": 1}


def _trace(name: str, bars: Sequence[tuple[Laid, float, float, str]], marker: Json, zone: timezone) -> Json:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": [_ms(each.record.started_at + at_s, zone) for each, at_s, _, _ in bars],
        "x": [round(length_s * 1000) for _, _, length_s, _ in bars],
        "y": [each.lane for each, _, _, _ in bars],
        "width": 0.8,
        "marker": marker,
        "hoverinfo": "text",
        "hovertext": [text for _, _, _, text in bars],
        "textposition": "none",
    }


def _shapes(laying: Laying, zone: timezone) -> Iterator[Json]:
    longest = sorted(laying.columns, key=lambda column: column.start - column.end)[:MOST_COLUMNS]
    for column in longest:
        yield {
            "type": "rect",
            "layer": "below",
            "x0": _ms(column.start, zone),
            "x1": _ms(column.end, zone),
            "y0": column.block.first - 0.5,
            "y1": column.block.last + 0.5,
            "fillcolor": "<column>",
            "line": {"width": 0},
        }
    for block in laying.blocks[1:]:
        yield {
            "type": "line",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": block.first - 0.5,
            "y1": block.first - 0.5,
            "line": {"color": "<faint>", "width": 1},
        }


def _first(record: StreamRecord) -> float:
    """Return how long nothing came: until the first content, or all the time."""
    first = record.time_to_first_content_s
    return record.duration_s if first is None else min(first, record.duration_s)


def _frozen(span: FreezeSpan) -> str:
    kind = "hidden freeze" if span.hidden else "shared freeze" if span.shared else "freeze"
    never = ", never ended" if span.open else ""
    return (
        f"<b>{kind}: {seconds(span.length_s)}</b> at {span.at_s:.1f} s, {span.phase.replace('_', ' ')}{never}"
    )


def about(record: StreamRecord, zone: timezone) -> str:
    """Say in a few lines which stream this is, safe to be shown by Plotly."""
    reasons = ", ".join(reason or "-" for reason in record.finish_reasons)
    lines = [
        f"{label(name_of(record, 'model'))} at {label(name_of(record, 'server'))}",
        f"{datetime.fromtimestamp(record.started_at, zone):%Y-%m-%d %H:%M:%S}, {seconds(record.duration_s)}, "
        f"{record.outcome.value}" + (f" ({label(reasons)})" if reasons else ""),
        f"first content {seconds(record.time_to_first_content_s)}, longest gap {seconds(record.max_gap_s)}",
    ]
    if record.output_tokens is not None:
        limit = "no limit" if record.token_limit is None else f"of {record.token_limit:,}"
        lines.append(f"{record.output_tokens:,} tokens, {limit}")
    if record.attributes:
        lines.append(", ".join(f"{label(n, 30)}={label(v, 30)}" for n, v in record.attributes.items()))
    if record.response_id:
        lines.append(f"response {label(record.response_id)}")
    if record.trace_id:
        lines.append(f"trace {label(record.trace_id)}")
    return "<br>".join(lines)
