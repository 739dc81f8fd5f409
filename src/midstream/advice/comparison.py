"""The values of a comparison: its two sides, what counts as good, and the answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from midstream._support.statistics import Interval
from midstream.advice.intervals import Distribution
from midstream.sources.fleet import Slice

Judgement: TypeAlias = Literal["better", "worse", "same", "unclear", "unknown"]
"""unclear: there are data, and too few of them. unknown: there are none, or far too few."""
Verdict: TypeAlias = Literal["better", "worse", "unchanged", "cannot tell"]


FROZE = "streams that froze"
TAIL_GAP = "longest gap, p99"
TOKENS = "tokens per second"
FIRST_CONTENT = "first content, p95"
"""The names of the four measures."""


@dataclass(frozen=True, slots=True)
class Side:
    """What was measured on one side of the change. Times are Unix seconds."""

    since: float
    until: float
    streams: float
    """Streams that ended."""
    judged: float
    """Those in which a gap could be measured."""
    froze: float
    """Those of them that froze."""
    gaps: Distribution
    first_content: Distribution
    slices: tuple[Slice, ...]
    at_once: float | None
    """Streams that were open at once, on average while any was; None: not known."""
    notes: tuple[str, ...] = ()
    why_no_tokens: str = ""
    """Why tokens per second are not known, where it is not that there are too few streams."""

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens per second of the time in which any stream was open; None if they are not known."""
        known = [
            (piece.tokens, piece.seconds)
            for piece in self.slices
            if piece.tokens is not None and piece.seconds is not None
        ]
        seconds = sum(seconds for _, seconds in known)
        return sum(tokens for tokens, _ in known) / seconds if seconds > 0 else None


@dataclass(frozen=True, slots=True)
class CompareGoal:
    """What counts as good."""

    give_up: float = 0.10
    """The share of tokens per second that may be lost."""
    bearable_s: float = 10.0
    """The 95th percentile of the time to first content that users put up with."""
    margin: float = 0.01
    """A change of the freeze share that is too small to matter."""
    tail_margin_s: float = 0.1
    tail_margin: float = 0.10
    """A change of the p99 that is too small to matter: both in seconds and as a share of what it was."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One question and its answer. `change` is after less before, or for tokens after over before."""

    name: str
    before: float | None
    after: float | None
    change: Interval | None
    judgement: Judgement
    why: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answers, and what they come to."""

    froze: Measure
    tail: Measure
    tokens: Measure
    first: Measure
    verdict: Verdict
    more_streams: int | None
    """About how many more streams on each side would decide it at these shares; None if others are missing."""
    design_effect: float
    notes: tuple[str, ...]
