"""Which stream to look at next: of many open ones only those whose moment has come are touched.

Pure: keys in, moments in, keys out. One thread uses it.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Sized
from typing import Protocol

SPARE = 1024
"""How many entries of streams that have ended are carried along before they are thrown out."""


class Open(Container[int], Sized, Protocol):
    """The keys of what is open, as a dictionary or a set has them."""


class Schedule:
    """A moment for each key; a later one for the same key replaces the earlier."""

    __slots__ = ("_heap", "_moment")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._moment: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._moment)

    def put(self, key: int, moment: float) -> None:
        """Have `key` come up at `moment`."""
        self._moment[key] = moment
        heapq.heappush(self._heap, (moment, key))

    def due(self, now: float) -> Iterator[int]:
        """Take out what is due, the earliest first."""
        while self._heap and self._heap[0][0] <= now:
            moment, key = heapq.heappop(self._heap)
            if self._moment.get(key) == moment:
                del self._moment[key]
                yield key

    def next(self, still_open: Open) -> float | None:
        """When the next one that is still open is due; None if there is none."""
        if len(self._heap) > 2 * len(still_open) + SPARE:
            self._rebuild((key, moment) for key, moment in self._moment.items() if key in still_open)
        while self._heap:
            moment, key = self._heap[0]
            if key in still_open and self._moment.get(key) == moment:
                return moment
            heapq.heappop(self._heap)
            if self._moment.get(key) == moment:
                del self._moment[key]
        return None

    def _rebuild(self, kept: Iterable[tuple[int, float]]) -> None:
        self._moment = dict(kept)
        self._heap = [(moment, key) for key, moment in self._moment.items()]
        heapq.heapify(self._heap)
