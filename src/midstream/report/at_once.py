"""How many streams were open at once, and how many frozen: the curves above the timeline. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from midstream.report.figure import Json
from midstream.report.lanes import spans
from midstream.stream.model import StreamRecord

BINS = 400
"""Into so many parts the time is cut to count the streams that are open."""


def at_once(records: Sequence[StreamRecord], when: Callable[[float], int]) -> Iterator[Json]:
    """Draw how many streams were open over time, and how many of them frozen; `when` turns a time into Plotly's."""
    start = min(record.started_at for record in records)
    end = max(record.started_at + record.duration_s for record in records)
    step = max((end - start) / BINS, 1e-3)
    whole = [(r.started_at, r.started_at + r.duration_s) for r in records]
    frozen = [
        (r.started_at + span.at_s, r.started_at + span.at_s + span.length_s)
        for r in records
        for span in spans(r)
    ]
    for name, colour, lasting in (("open at once", "<good>", whole), ("frozen at once", "<freeze>", frozen)):
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": [when(start + n * step) for n in range(BINS + 1)],
            "y": most_at_once(lasting, start, step),
            "yaxis": "y2",
            "line": {"color": colour, "width": 1.5, "shape": "hv"},
            "hovertemplate": f"%{{y}} {name}<extra></extra>",
        }


def most_at_once(lasting: Sequence[tuple[float, float]], start: float, step: float) -> list[int]:
    """Return for each of BINS + 1 parts of time, `step` seconds each, the most that lasted at one moment of it."""
    changes: list[list[tuple[float, int]]] = [[] for _ in range(BINS + 1)]
    for begin, end in lasting:
        for at, change in ((begin, 1), (end, -1)):
            changes[min(BINS, max(0, int((at - start) / step)))].append((at, change))
    now, most = 0, []
    for part in changes:
        counts = list(accumulate((change for _, change in sorted(part)), initial=now))
        most.append(max(counts))
        now = counts[-1]
    return most
