"""How long answers were, against the limits that were asked for: two plots of the page. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from midstream._support.numbers import plural
from midstream.report.figure import Figure, Json, axis, upright
from midstream.report.summary import is_finished, limit_used
from midstream.stream.finish_reasons import stream_finish_label
from midstream.stream.model import StreamRecord

LENGTH_BINS = 40
MOST_LIMITS = 6


def lengths(records: Sequence[StreamRecord]) -> Figure | None:
    """Draw how long answers were, and the limits that were asked for; None where no server reported it."""
    known = [(record, record.output_tokens) for record in records if record.output_tokens is not None]
    if not known:
        return None
    limits = Counter(record.token_limit for record in records if record.token_limit is not None)
    longest = max(tokens for _, tokens in known)
    width = max(1, math.ceil((longest + 1) / LENGTH_BINS))
    kinds: tuple[tuple[str, str], ...] = (
        ("ended of themselves", "<good>"),
        ("ended at a limit", "<limit>"),
        ("cut short", "<stream>"),
    )
    counts = {name: Counter[int]() for name, _ in kinds}
    for record, tokens in known:
        counts[_ending(record)][tokens // width] += 1
    bins = range(longest // width + 1)
    data: list[Json] = [
        {
            "type": "bar",
            "name": f"{name} ({sum(counts[name].values()):,})",
            "x": [(n + 0.5) * width for n in bins],
            "y": [counts[name][n] for n in bins],
            "width": width * 0.95,
            "marker": {"color": colour},
            "hovertext": [
                f"{n * width:,} to {(n + 1) * width - 1:,} tokens: {counts[name][n]:,} {name}" for n in bins
            ],
            "hoverinfo": "text",
            "textposition": "none",
        }
        for name, colour in kinds
        if counts[name]
    ]
    common = sorted(limit for limit, _ in limits.most_common(MOST_LIMITS))
    unknown = len(records) - len(known)
    return Figure(
        "lengths",
        "Lengths of answers against their limits",
        "Output tokens as the servers reported them. An answer that ended at a limit, or was cut short, would have "
        "been longer; by how much is not known."
        + (f" Dashed lines: {_which(limits, common)}." if common else " No stream asked for a limit.")
        + (f" Of {plural(unknown, 'stream')} the length is unknown." if unknown else ""),
        data,
        {
            "barmode": "stack",
            "xaxis": axis("output tokens", range=[0, max([longest, *common]) * 1.04]),
            "yaxis": axis("streams"),
            "shapes": [upright(limit, "<limit>", "dash") for limit in common],
        },
    )


def limit_use(records: Sequence[StreamRecord]) -> Figure | None:
    """Draw how much of their limits answers used; None where that is not known."""
    used = [each for record in records if (each := limit_used(record)) is not None]
    if not used:
        return None
    # Whatever reached the limit stands apart: in a bar of its own.
    counts = Counter(20 if each >= 1 else int(each * 20) for each in used)
    data: list[Json] = [
        {
            "type": "bar",
            "x": [5 * n + 2.5 for n in bins],
            "y": [counts[n] for n in bins],
            "width": 4.75,
            "marker": {"color": colour},
            "hovertext": [
                f"{counts[n]:,} reached their limit"
                if n == 20
                else f"{5 * n} to {5 * n + 5} %: {counts[n]:,}"
                for n in bins
            ],
            "hoverinfo": "text",
            "textposition": "none",
            "showlegend": False,
        }
        for bins, colour in ((range(20), "<good>"), (range(20, 21), "<limit>"))
    ]
    return Figure(
        "limit-use",
        "How much of their limits answers used",
        f"Output tokens over the limit asked for, of {plural(len(used), 'answer')}. What a limit leaves unused is set "
        "aside for nothing on a server that reserves memory by the limit.",
        data,
        {
            "xaxis": axis(
                "share of the limit",
                tickvals=[0, 25, 50, 75, 102.5],
                ticktext=["0 %", "25 %", "50 %", "75 %", "reached"],
                range=[0, 105],
            ),
            "yaxis": axis("streams"),
        },
        260,
    )


def _ending(record: StreamRecord) -> str:
    if record.limit_hit or stream_finish_label(record.finish_reasons) == "length":
        return "ended at a limit"
    return "ended of themselves" if is_finished(record) else "cut short"


def _which(limits: Counter[int], common: Sequence[int]) -> str:
    named = ", ".join(f"{limit:,} ({plural(limits[limit], 'stream')})" for limit in common)
    more = len(limits) - len(common)
    return f"the limits asked for, {named}" + (f", and {more:,} others are not drawn" if more else "")
