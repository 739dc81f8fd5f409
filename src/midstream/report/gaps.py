"""How long the longest gaps were, counted and as shares: two plots of the page. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from midstream._support.numbers import plural, seconds
from midstream.advice.threshold import Threshold, is_measured
from midstream.report.figure import SERIES, Figure, Json, axis, label, upright
from midstream.report.grouping import name_of
from midstream.stream.model import StreamRecord

PER_DECADE = 5
LOWEST_S = 0.001
"""Shorter gaps are the noise of a clock, and fall into the first bucket."""

_TICKS = (
    (0.001, "1 ms"),
    (0.01, "10 ms"),
    (0.1, "0.1 s"),
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (600, "10 min"),
    (3600, "1 h"),
)


@dataclass(frozen=True, slots=True)
class Series:
    """Some streams under one name, which is shown as it is."""

    name: str
    records: Sequence[StreamRecord]


def by_model(records: Sequence[StreamRecord]) -> list[Series]:
    """Return the models with the most streams as series, the others as one."""
    found: dict[str, list[StreamRecord]] = {}
    for record in records:
        found.setdefault(name_of(record, "model"), []).append(record)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    room = len(SERIES)
    kept = ordered if len(ordered) <= room else ordered[: room - 1]
    rest = [record for _, group in ordered[len(kept) :] for record in group]
    others = [Series(f"{len(ordered) - len(kept)} other models", rest)] if rest else []
    return [*(Series(name, group) for name, group in kept), *others]


def gap_counts(series: Sequence[Series], threshold: Threshold) -> Figure | None:
    """Draw the longest gap of each stream in buckets that grow like its logarithm; None without any."""
    gaps = [(each.name, gaps_of(each.records)) for each in series]
    everything = [gap for _, found in gaps for gap in found]
    if not everything:
        return None
    first, last = bucket(min(everything)), bucket(max(everything))
    data: list[Json] = []
    for (name, found), colour in zip(gaps, SERIES, strict=False):
        counts = Counter(map(bucket, found))
        data.append(
            {
                "type": "bar",
                "name": f"{label(name, 40)} ({plural(len(found), 'stream')})",
                "x": [_middle(n) for n in range(first, last + 1)],
                "y": [counts[n] for n in range(first, last + 1)],
                "hovertext": [
                    f"{seconds(_edge(n))} to {seconds(_edge(n + 1))}: {counts[n]:,} of {label(name)}"
                    for n in range(first, last + 1)
                ],
                "hoverinfo": "text",
                "textposition": "none",
                "marker": {"color": colour},
            }
        )
    return Figure(
        "gaps",
        "Longest gap of each stream",
        f"Each stream counts once, with its longest gap; {threshold.words}. The scale of gaps is "
        "logarithmic. Answers that came in one burst are left out: no gap can be measured in them.",
        data,
        {
            "barmode": "stack" if len(data) > 1 else "relative",
            "showlegend": True,
            "xaxis": _log_axis(first, last + 1, threshold),
            "yaxis": axis("streams"),
            **_threshold_line(threshold),
        },
    )


def exceedance(series: Sequence[Series], threshold: Threshold) -> Figure | None:
    """Draw which share of streams had a gap of at least each length; None without any gap."""
    data: list[Json] = []
    everything: list[float] = []
    for each, colour in zip(series, SERIES, strict=False):
        found = sorted(gaps_of(each.records))
        if not found:
            continue
        everything += found
        points = _thinned(
            [(math.log10(max(gap, LOWEST_S)), 1 - n / len(found)) for n, gap in enumerate(found)]
        )
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{label(each.name, 40)} ({plural(len(found), 'stream')})",
                "x": [round(x, 4) for x, _ in points],
                "y": [round(y, 6) for _, y in points],
                "line": {"color": colour, "width": 2, "shape": "vh"},
                "hovertext": [
                    f"{y:.2%} of {label(each.name)}: {seconds(10**x)} or longer" for x, y in points
                ],
                "hoverinfo": "text",
            }
        )
    if not everything:
        return None
    smallest = min(trace["y"][-1] for trace in data)
    return Figure(
        "exceedance",
        "How many had a gap this long",
        "The share of streams whose longest gap was as long as this or longer. Both scales are logarithmic, so "
        "that one stream in a thousand can be read as well as one in ten; the end of a curve rests on a single stream.",
        data,
        {
            "showlegend": True,
            "xaxis": _log_axis(bucket(min(everything)), bucket(max(everything)) + 1, threshold),
            "yaxis": axis(
                "share of streams",
                type="log",
                tickformat=".1~%",
                dtick=1,
                range=[math.log10(smallest) - 0.1, 0.1],
            ),
            **_threshold_line(threshold),
        },
    )


def gaps_of(records: Sequence[StreamRecord]) -> list[float]:
    """Return the longest gap of each stream in which one could be seen, in seconds."""
    return [record.max_gap_s for record in records if is_measured(record) and record.max_gap_s is not None]


def bucket(gap_s: float) -> int:
    """Return the bucket of a gap: PER_DECADE of them for each power of ten, 0 beginning at LOWEST_S."""
    return max(0, math.floor(PER_DECADE * math.log10(max(gap_s, LOWEST_S) / LOWEST_S) + 1e-9))


def _edge(n: int) -> float:
    return float(LOWEST_S * 10 ** (n / PER_DECADE))


def _middle(n: int) -> float:
    return round(math.log10(_edge(n)) + 0.5 / PER_DECADE, 4)


def _log_axis(first: int, last: int, threshold: Threshold) -> Json:
    # Plotly draws bars of equal width only where the scale is even, so the scale is of logarithms.
    low, high = math.log10(_edge(first)), math.log10(_edge(last))
    if threshold.value_s is not None:
        low, high = min(low, math.log10(threshold.value_s)), max(high, math.log10(threshold.value_s) + 0.1)
    return axis(
        "longest gap",
        range=[low - 0.05, high + 0.05],
        tickvals=[round(math.log10(value), 4) for value, _ in _TICKS],
        ticktext=[text for _, text in _TICKS],
    )


def _threshold_line(threshold: Threshold) -> Json:
    if threshold.value_s is None:
        return {}
    x = round(math.log10(threshold.value_s), 4)
    return {
        "shapes": [upright(x, "<freeze>", "dash")],
        "annotations": [
            {
                "x": x,
                "y": 1,
                "yref": "paper",
                "text": f"freeze, {threshold.value_s:g} s",
                "showarrow": False,
                "xanchor": "left",
                "yanchor": "top",
                "font": {"color": "<freeze>"},
            }
        ],
    }


def _thinned(points: list[tuple[float, float]], most: int = 600) -> list[tuple[float, float]]:
    """Return the points of a curve, fewer where they are dense; the last ones all, since the tail is what matters."""
    if len(points) <= most:
        return points
    body = points[: -most // 2]
    step = math.ceil(len(body) / (most // 2))
    return [*body[::step], *points[-most // 2 :]]
