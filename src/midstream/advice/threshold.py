"""The gap from which the streams of a report counted as frozen, as their records have it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from midstream.stream.model import FREEZE_AFTER_S, StreamRecord


@dataclass(frozen=True, slots=True)
class Threshold:
    """The gap in seconds from which all of the streams counted as frozen; `words` are for the reader."""

    value_s: float | None
    """None if there is no such one: they had several, or none, or it is not known."""
    words: str


def is_measured(record: StreamRecord) -> bool:
    """Whether a gap could be measured in this stream: two pieces of output, or a gap in progress, and not buffered."""
    return record.max_gap_s is not None and not record.buffered


def froze_past(record: StreamRecord, freeze_after_s: float) -> bool:
    """Whether the longest gap of a stream reached `freeze_after_s`.

    In reasoning the stream's own threshold applies if it is longer: such a pause is normal there.
    """
    own = record.freeze_after_s if record.max_gap_phase == "reasoning" else None
    return (record.max_gap_s or 0.0) >= max(freeze_after_s, own or 0.0)


def threshold_of(records: Sequence[StreamRecord]) -> Threshold:
    """Return the threshold with which these streams were watched; the default if there are none."""
    seen = [record for record in records if is_measured(record)]
    known = sorted({record.freeze_after_s for record in seen if record.freeze_after_s is not None})
    froze = any(record.freezes for record in seen)
    if len(known) > 1:
        several = ", ".join(f"{each:g}" for each in known)
        return Threshold(None, f"these streams were watched with several thresholds: {several} s")
    if not known and seen:
        words = "the threshold is not known" if froze else "no gap of these streams counted as a freeze"
        return Threshold(None, words)
    (value_s,) = known or (FREEZE_AFTER_S,)
    if froze:
        return Threshold(value_s, f"a gap of {value_s:g} s is a freeze")
    return Threshold(value_s, f"nothing reached {value_s:g} s, from which a gap is a freeze")
