"""The freezes of one stream, one by one, until its record takes them: in order, and not too many."""

from __future__ import annotations

from midstream.stream.model import FreezeSpan

MOST_SPANS = 64
"""A stream that freezes more often than this is told well enough by its longest freezes."""


def keep(spans: tuple[FreezeSpan, ...], span: FreezeSpan) -> tuple[FreezeSpan, ...]:
    """The longest freezes of one stream with one more that is over, in the order in which they began."""
    spans = tuple(sorted((*spans, span), key=lambda kept: kept.at_s))
    if len(spans) <= MOST_SPANS:
        return spans
    shortest = min(spans, key=lambda kept: kept.length_s)
    return tuple(kept for kept in spans if kept is not shortest)
