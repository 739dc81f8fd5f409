"""Which streams a timeline draws, and in which lane, so that no two lie on one another. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from midstream.report.grouping import name_of
from midstream.stream.model import FreezeSpan, StreamRecord

MOST_DRAWN = 1000
"""A browser moves so many bars without effort."""


@dataclass(frozen=True, slots=True)
class Laid:
    """One stream in its lane. Lanes are counted from 0, over all servers."""

    record: StreamRecord
    lane: int


@dataclass(frozen=True, slots=True)
class Block:
    """The lanes of one server, from the first to the last."""

    server: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Column:
    """A time in which streams of one server were frozen together. Times are Unix seconds."""

    block: Block
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Laying:
    """What a timeline draws, of how many."""

    drawn: tuple[Laid, ...]
    blocks: tuple[Block, ...]
    columns: tuple[Column, ...]
    total: int


def laid_out(records: Sequence[StreamRecord], most: int = MOST_DRAWN) -> Laying:
    """Choose the streams with the longest gaps if there are too many, and put each into the first free lane.

    A server's lanes lie side by side, so that what froze together stands in one column.
    """
    chosen = sorted(records, key=longest_gap, reverse=True)[:most]
    by_server: dict[str, list[StreamRecord]] = {}
    for record in sorted(chosen, key=lambda record: record.started_at):
        by_server.setdefault(name_of(record, "server"), []).append(record)
    drawn: list[Laid] = []
    blocks: list[Block] = []
    columns: list[Column] = []
    first = 0
    for server, streams in sorted(by_server.items()):
        lanes = _lanes(streams)
        block = Block(server, first, first + max(lanes))
        drawn += [Laid(record, first + lane) for record, lane in zip(streams, lanes, strict=True)]
        blocks.append(block)
        columns += [Column(block, start, end) for start, end in _together(streams)]
        first = block.last + 1
    return Laying(tuple(drawn), tuple(blocks), tuple(columns), len(records))


def longest_gap(record: StreamRecord) -> float:
    """Return the longest gap of a stream in seconds, hidden ones too; -1 where none could be seen."""
    return max([-1.0 if record.max_gap_s is None else record.max_gap_s, *(s.length_s for s in spans(record))])


def spans(record: StreamRecord) -> tuple[FreezeSpan, ...]:
    """Return the freezes of a stream, or the one that its longest gap was, if they were not written down."""
    if record.freeze_spans or not record.freezes or record.max_gap_s is None or record.max_gap_at_s is None:
        return record.freeze_spans
    return (
        FreezeSpan(
            at_s=record.max_gap_at_s,
            length_s=record.max_gap_s,
            phase=record.max_gap_phase or "text",
            hidden=False,
            shared=record.shared >= record.freezes,
            open=record.max_gap_open,
        ),
    )


def _lanes(streams: Sequence[StreamRecord]) -> list[int]:
    """Return the lane of each stream, the lowest that is free when it begins."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    lanes: list[int] = []
    for stream in streams:
        while busy and busy[0][0] <= stream.started_at:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (stream.started_at + max(stream.duration_s, 0.0), lane))
        lanes.append(lane)
    return lanes


def _together(streams: Sequence[StreamRecord]) -> list[tuple[float, float]]:
    """Return when streams were frozen together: the shared freezes that overlap, taken as one."""
    found = sorted(
        (stream.started_at + span.at_s, stream.started_at + span.at_s + span.length_s)
        for stream in streams
        for span in spans(stream)
        if span.shared
    )
    merged: list[tuple[float, float]] = []
    for start, end in found:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
