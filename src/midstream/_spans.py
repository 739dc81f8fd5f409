"""The freezes of one stream, one by one, until its record takes them: in order, and not too many."""

from __future__ import annotations

from midstream._model import FreezeSpan

MOST_SPANS = 64
"""A stream that freezes more often than this is told well enough by its longest freezes."""


class Spans:
    """The longest freezes of one stream. Its iterator and the watcher may both add; under one lock, please."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[FreezeSpan] = []

    def add(self, span: FreezeSpan) -> None:
        """Keep a freeze that is over, in place of the shortest if there are too many."""
        self._kept.append(span)
        if len(self._kept) > MOST_SPANS:
            self._kept.remove(min(self._kept, key=lambda kept: kept.length_s))

    def in_order(self) -> tuple[FreezeSpan, ...]:
        """What was kept, in the order in which the freezes began."""
        return tuple(sorted(self._kept, key=lambda kept: kept.at_s))
