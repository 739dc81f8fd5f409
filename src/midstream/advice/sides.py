"""One side of a comparison: made of recorded streams, or of a fleet's metrics."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from midstream._support.statistics import nearest_rank
from midstream.advice.comparison import Side
from midstream.advice.lengths import chunks_are_tokens
from midstream.advice.threshold import froze_past
from midstream.sources.fleet import Fleet, Histogram, Slice
from midstream.stream.model import Outcome, StreamRecord

SLICES = 40
PER_SLICE = 5
"""A side is cut into as many slices as have so many streams each, but no more than SLICES."""
WITHOUT_USAGE = 0.05
"""The share of streams without reported tokens from which tokens per second are not known."""
LEFT = (Outcome.LEFT_EARLY, Outcome.CANCELLED)
"""What a caller ended, who then cannot see the usage at the end."""
NEARLY = 0.9
"""Content chunks count for tokens if the answers with both have at least so many of them for each token."""

DOUBTFUL = 0.005
"""The share of streams that may lie in the bucket around the threshold: half a point, half of what matters."""


@dataclass(frozen=True, slots=True)
class Values:
    """Values of streams, in order."""

    ordered: tuple[float, ...]

    @property
    def count(self) -> float:
        """How many there are."""
        return len(self.ordered)

    def quantile(self, q: float) -> float | None:
        """Return the smallest value that at least a share `q` of all does not exceed; None of no values."""
        return nearest_rank(self.ordered, q) if self.ordered else None


def side_of_records(records: Sequence[StreamRecord], freeze_after_s: float) -> Side:
    """Make a side of recorded streams, which began in order. A gap from `freeze_after_s` on is a freeze."""
    seen = [record for record in records if record.max_gap_s is not None and not record.buffered]
    gaps = Values(tuple(sorted(record.max_gap_s or 0.0 for record in seen)))
    first = (record.time_to_first_content_s for record in records)
    busy = _union((record.started_at, record.started_at + record.duration_s) for record in records)
    seconds = sum(end - start for start, end in busy)
    content = [record for record in records if record.content_chunks]
    tokens = _tokens(records)
    without_tokens = [
        record
        for record, count in zip(records, tokens, strict=True)
        if record.content_chunks and count is None
    ]
    known = bool(content) and len(without_tokens) <= WITHOUT_USAGE * len(content)
    notes, why = [], ""
    if content and not known:
        why = f"{len(without_tokens):,} of {len(content):,} reported no tokens; at most {100 * WITHOUT_USAGE:.0f} % may"
        notes.append(
            f"{len(without_tokens):,} of {len(content):,} streams reported no tokens; {_remedy(without_tokens)}"
        )
    return Side(
        since=records[0].started_at if records else 0.0,
        until=max((record.started_at + record.duration_s for record in records), default=0.0),
        streams=len(records),
        judged=len(seen),
        froze=sum(froze_past(record, freeze_after_s) for record in seen),
        gaps=gaps,
        first_content=Values(tuple(sorted(value for value in first if value is not None))),
        slices=tuple(_slices(records, tokens if known else None, seen, busy, freeze_after_s)),
        at_once=sum(record.duration_s for record in records) / seconds if seconds > 0 else None,
        notes=tuple(notes),
        why_no_tokens=why,
    )


def side_of_fleet(fleet: Fleet, freeze_after_s: float) -> Side:
    """Make a side of a fleet's metrics.

    Raises ValueError if the fleet has no histogram of gaps, or one whose buckets are too wide at `freeze_after_s`
    to tell how many streams froze.
    """
    total = fleet.total
    if total.max_gap is None:
        raise ValueError("there is no histogram of gaps (stream_max_gap_seconds) in this range")
    least, most = total.max_gap.above(freeze_after_s)
    doubtful = (most - least) / total.max_gap.count if total.max_gap.count > 0 else 0.0
    if doubtful > DOUBTFUL:
        raise ValueError(
            f"the histogram of gaps has no bound at {freeze_after_s:g} s, so that freezes cannot be counted; "
            "give --freeze-after a bound that it has"
        )
    notes = list(fleet.notes)
    if doubtful > 1e-6:
        notes.append(
            f"the share of frozen streams is known to {100 * doubtful:.2g} points, the width of a bucket"
        )
    missing = (total.usage_missing or 0.0) / total.streams if total.streams else 0.0
    why = ""
    if missing > WITHOUT_USAGE:
        why = f"{100 * missing:.0f} % reported no tokens; at most {100 * WITHOUT_USAGE:.0f} % may"
        notes.append(
            f"{100 * missing:.0f} % of the streams reported no tokens: tokens per second are not known"
        )
    if not why and any(piece.seconds is None for piece in fleet.slices):
        why = "the metrics do not show when a stream was open (stream_active)"
    # A slice in which a stream was open counts, whether any ended in it or not; idle time does not.
    slices = [piece for piece in fleet.slices if piece.streams > 0 or piece.seconds]
    seconds = sum(piece.seconds or 0.0 for piece in slices)
    duration = total.duration
    open_s = duration.total if duration is not None else None
    return Side(
        since=fleet.since,
        until=fleet.until,
        streams=total.streams if total.streams is not None else total.max_gap.count,
        judged=total.max_gap.count,
        froze=(least + most) / 2,
        gaps=total.max_gap,
        first_content=total.first_content if total.first_content is not None else Histogram(()),
        slices=tuple(replace(piece, tokens=None) if missing > WITHOUT_USAGE else piece for piece in slices),
        at_once=open_s / seconds if open_s is not None and seconds > 0 else None,
        notes=tuple(notes),
        why_no_tokens=why,
    )


def _tokens(records: Sequence[StreamRecord]) -> list[float | None]:
    """Return the tokens of each stream; None if they are not known.

    Usage comes at the end, so that a stream that its caller left has none: its chunks are counted, where the others
    show that a chunk is a token.
    """
    both = [record for record in records if record.outcome is Outcome.COMPLETED and record.output_tokens]
    chunks = sum(record.content_chunks for record in both)
    counted = chunks_are_tokens(records) and chunks >= NEARLY * sum(
        record.output_tokens or 0 for record in both
    )
    return [
        record.content_chunks
        if counted and record.output_tokens is None and record.outcome in LEFT
        else record.output_tokens
        for record in records
    ]


def _remedy(without_tokens: Sequence[StreamRecord]) -> str:
    if all(record.outcome in LEFT for record in without_tokens):
        return "their callers left before the end, where usage comes, and a chunk of theirs is not a token"
    return "include_usage=True makes servers report them"


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _slices(
    records: Sequence[StreamRecord],
    counts: Sequence[float | None] | None,
    seen: Sequence[StreamRecord],
    busy: Sequence[tuple[float, float]],
    freeze_after_s: float,
) -> Iterable[Slice]:
    """Cut the time into equal pieces. A stream counts where its answer began, its tokens while they came.

    `counts` are the tokens of each record; None where too few of them are known.
    """
    if not busy or busy[-1][1] <= busy[0][0]:
        return
    start, end = busy[0][0], busy[-1][1]
    pieces = max(1, min(SLICES, len(seen) // PER_SLICE))
    width = (end - start) / pieces
    edges = [start + width * index for index in range(pieces + 1)]
    tokens = [0.0] * pieces
    for record, count in zip(records, counts or (), strict=counts is not None):
        if count:
            began = record.started_at + (record.time_to_first_content_s or 0.0)
            _spread(tokens, edges, began, record.started_at + record.duration_s, count)
    streams, froze = [0] * pieces, [0] * pieces
    for record in seen:
        index = min(pieces - 1, max(0, bisect_right(edges, record.started_at) - 1))
        streams[index] += 1
        froze[index] += froze_past(record, freeze_after_s)
    for index in range(pieces):
        low, high = edges[index], edges[index + 1]
        seconds = sum(max(0.0, min(high, until) - max(low, since)) for since, until in busy)
        if seconds > 0:
            yield Slice(low, seconds, streams[index], froze[index], None if counts is None else tokens[index])


def _spread(into: list[float], edges: Sequence[float], began: float, ended: float, amount: float) -> None:
    """Share an amount out over the pieces that a span of time touches."""
    last = len(into) - 1
    first = min(last, max(0, bisect_right(edges, began) - 1))
    final = min(last, max(first, bisect_left(edges, ended) - 1))
    length = ended - began
    if first == final or length <= 0:
        into[first] += amount
        return
    for index in range(first, final + 1):
        part = min(ended, edges[index + 1]) - max(began, edges[index])
        into[index] += amount * max(0.0, part) / length
