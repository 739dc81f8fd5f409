"""The freezes of one stream: a bounded list of them, and what the token counts around a gap show."""

from __future__ import annotations

from enum import Enum

from midstream.stream.model import FreezeSpan, Suspicion

MOST_SPANS = 64
"""A stream that freezes more often than this is described well enough by its longest freezes."""


class Signal(Enum):
    """What a chunk means for the freeze in progress, as the tracker must announce it."""

    FROZE = "froze"
    """The gap crossed the threshold before the watcher saw it, and goes on."""
    THAWED = "thawed"
    """A gap at or past the threshold ended with this chunk."""


def keep(spans: tuple[FreezeSpan, ...], span: FreezeSpan) -> tuple[FreezeSpan, ...]:
    """The longest freezes of one stream with one more that is over, in the order in which they began."""
    spans = tuple(sorted((*spans, span), key=lambda kept: kept.at_s))
    if len(spans) <= MOST_SPANS:
        return spans
    shortest = min(spans, key=lambda kept: kept.length_s)
    return tuple(kept for kept in spans if kept is not shortest)


def suspect(gap: float, before: int, after: int | None, pace: float | None) -> Suspicion:
    """Tell a stall from withheld output by the tokens that came with the chunk after the gap.

    A server that made nothing resumes with a token or two (one step, perhaps a speculative one); a parser or proxy that
    withheld output resumes with the tokens that would have been made in the gap at the usual pace (`pace`, in seconds
    per token). `before` and `after` are the output tokens counted before and after it.
    """
    if after is None:
        return "unknown"
    jump = after - before
    if jump <= 2:
        return "stall"
    expected = gap / pace if pace else None
    if jump >= 5 and (expected is None or jump >= expected / 4):
        return "withheld"
    return "unknown"
