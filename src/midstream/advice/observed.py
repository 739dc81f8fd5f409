"""What happened to streams by how many were open with them: for servers whose memory is not known."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from midstream._support.statistics import nearest_rank
from midstream.stream.model import StreamRecord

ENOUGH = 50
"""A share of fewer streams means nothing."""


@dataclass(frozen=True, slots=True)
class Level:
    """The streams that were never beside more than `at_once` others, themselves included.

    `gap_p99_s` is None where none of them had a gap.
    """

    at_once: int
    streams: int
    frozen: int
    gap_p99_s: float | None

    @property
    def frozen_share(self) -> float:
        """The share of them that froze."""
        return self.frozen / self.streams


def levels_of(records: Sequence[StreamRecord]) -> list[Level]:
    """Return, for each number of streams at once that occurred, what happened up to it."""
    paired = sorted(zip(_most_beside(records), records, strict=True), key=lambda pair: pair[0])
    levels, frozen, gaps = [], 0, []
    for index, (at_once, record) in enumerate(paired):
        frozen += record.freezes > 0
        if record.max_gap_s is not None:
            gaps.append(record.max_gap_s)
        if index + 1 == len(paired) or paired[index + 1][0] > at_once:
            gap = nearest_rank(sorted(gaps), 0.99) if gaps else None
            levels.append(Level(at_once, index + 1, frozen, gap))
    return levels


def observed_cap(levels: Sequence[Level], most_frozen: float, *, enough: int = ENOUGH) -> Level | None:
    """Return the highest level up to which at most a share froze, as at all levels below with `enough` streams.

    None if that holds nowhere, or no level has enough streams.
    """
    found = None
    for level in levels:
        if level.streams < enough:
            continue
        if level.frozen_share > most_frozen:
            break
        found = level
    return found


def _most_beside(records: Sequence[StreamRecord]) -> list[int]:
    """Return for each stream how many were open at once while it was, at most, itself included."""
    edges = sorted(
        edge
        for record in records
        for edge in ((record.started_at, 1), (record.started_at + max(record.duration_s, 1e-9), -1))
    )
    times, levels, level = [at for at, _ in edges], [], 0
    for _, change in edges:
        level += change
        levels.append(level)
    most = []
    for record in records:
        first = bisect_left(times, record.started_at)
        last = bisect_right(times, record.started_at + record.duration_s)
        most.append(max(1, *levels[first:last]))
    return most
