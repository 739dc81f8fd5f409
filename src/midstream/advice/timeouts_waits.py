"""How long streams waited for their server: the longest gap of each by phase, and the wait for the first content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from midstream.stream.finish_reasons import finish_label
from midstream.stream.freezes import MOST_SPANS
from midstream.stream.model import Outcome, Phase, StreamRecord

WaitKind: TypeAlias = Literal["text", "reasoning", "tool_call", "first_content"]
"""A phase, for the longest gap that began in it; or the wait for the first content."""

WAIT_KINDS: tuple[WaitKind, ...] = ("text", "reasoning", "tool_call", "first_content")

OpenCause: TypeAlias = Literal["left", "cancelled", "timed out", "cut"]
"""Why a wait did not end by itself."""

_CAUSES: dict[Outcome, OpenCause] = {
    Outcome.LEFT_EARLY: "left",
    Outcome.CANCELLED: "cancelled",
    Outcome.TIMEOUT: "timed out",
    Outcome.ERROR: "cut",
    Outcome.NO_FINISH: "cut",
}


@dataclass(frozen=True, slots=True)
class Waits:
    """The longest wait of each stream, in seconds.

    `ended` went on by themselves. `open` had not when the stream ended, each with its cause. `bounded` are streams
    whose longest gap was in another phase: in this one they waited no longer than that. `left_out` counts streams in
    which no wait could be seen.
    """

    ended: tuple[float, ...]
    open: tuple[tuple[float, OpenCause], ...]
    bounded: tuple[float, ...] = ()
    left_out: int = 0

    @property
    def streams(self) -> int:
        """How many streams count."""
        return len(self.ended) + len(self.open) + len(self.bounded)

    @property
    def seen(self) -> int:
        """In how many of them the longest wait is known, or known to be longer than it was seen."""
        return len(self.ended) + len(self.open)

    @property
    def still_silent(self) -> list[float]:
        """How long those had lasted that did not end by themselves."""
        return [seconds for seconds, _ in self.open]

    @property
    def causes(self) -> Counter[OpenCause]:
        """How many did not end by themselves, by cause."""
        return Counter(cause for _, cause in self.open)


def waits_of(records: Sequence[StreamRecord], kind: WaitKind) -> Waits:
    """Return the waits of one kind that records show.

    A record has its longest gap with the phase in which it began, and each gap that was a freeze. So the longest gap
    of a stream in another phase is known only if it was a freeze; if not, it was shorter than the longest gap, and
    than the threshold of a freeze in that phase. Freezes that the caller did not wait for do not count: the stall
    timeout would not have ended them.
    """
    return _first_content(records) if kind == "first_content" else _gaps(records, kind)


def _first_content(records: Sequence[StreamRecord]) -> Waits:
    ended: list[float] = []
    still_open: list[tuple[float, OpenCause]] = []
    left_out = 0
    for record in records:
        if record.time_to_first_content_s is not None:
            ended.append(record.time_to_first_content_s)
        elif record.outcome in _CAUSES and not record.content_chunks and record.outcome != Outcome.NO_FINISH:
            still_open.append((record.duration_s, _CAUSES[record.outcome]))
        else:
            left_out += 1
    return Waits(tuple(ended), tuple(still_open), (), left_out)


def _gaps(records: Sequence[StreamRecord], phase: Phase) -> Waits:
    ended: list[float] = []
    still_open: list[tuple[float, OpenCause]] = []
    bounded: list[float] = []
    left_out = 0
    threshold = _threshold(records, phase)
    for record in records:
        if not _was_in(record, phase):
            continue
        longest = record.max_gap_s
        if longest is None or record.buffered:
            left_out += 1
            continue
        spans = [span for span in record.freeze_spans if span.phase == phase and not span.hidden]
        known = [span.length_s for span in spans]
        if _phase(record) == phase:
            known.append(longest)
        if not known:
            bounded.append(_bound(record, longest, threshold))
            continue
        is_open = any(span.open for span in spans) or (record.max_gap_open and _phase(record) == phase)
        if is_open and record.outcome in _CAUSES:
            still_open.append((max(known), _CAUSES[record.outcome]))
        else:
            ended.append(max(known))
    return Waits(tuple(ended), tuple(still_open), tuple(bounded), left_out)


def _phase(record: StreamRecord) -> Phase | None:
    """Return the phase of the longest gap; text where a record made elsewhere names none."""
    return None if record.max_gap_s is None else record.max_gap_phase or "text"


def _was_in(record: StreamRecord, phase: Phase) -> bool:
    """Tell whether a stream is known to have been in a phase; every answer is text unless it ended in a tool call."""
    if _phase(record) == phase or any(span.phase == phase for span in record.freeze_spans):
        return True
    if phase == "reasoning":
        return bool(record.reasoning_tokens)
    calls = any(finish_label(reason) == "tool_calls" for reason in record.finish_reasons)
    return calls if phase == "tool_call" else not calls


def _threshold(records: Sequence[StreamRecord], phase: Phase) -> float | None:
    """Return from which gap one in this phase was a freeze for certain; None if that is not known."""
    own = [record.freeze_after_s for record in records if _phase(record) == phase]
    known = [each for each in own if each is not None]
    return max(known) if known and len(known) == len(own) else None


def _bound(record: StreamRecord, longest: float, threshold: float | None) -> float:
    """Return what a gap that is in no record did not exceed."""
    if threshold is None:
        return longest
    if len(record.freeze_spans) >= MOST_SPANS:
        threshold = max(threshold, min(span.length_s for span in record.freeze_spans))
    return min(longest, threshold)
