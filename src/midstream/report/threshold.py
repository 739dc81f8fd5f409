"""The silence from which the streams of a report counted as frozen, told from the records. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from midstream._model import Settings, StreamRecord
from midstream.report.numbers import seconds
from midstream.report.summary import is_measured

_USUAL_S = (Settings().freeze_after_s or 5.0, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 10.0, 15.0, 20.0, 30.0, 60.0)
"""What people set, the default first."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Where to draw it, in seconds, if anywhere; `words` are for the reader."""

    value_s: float | None
    words: str


def threshold_of(records: Sequence[StreamRecord]) -> Threshold:
    """Return the threshold that explains which streams count as frozen. A record does not name it.

    Every silence below it is no freeze, and every one above it is: so it lies between the longest silence of the
    streams that did not freeze, and the shortest freeze.
    """
    seen = [record for record in records if is_measured(record)]
    longest = max((r.max_gap_s for r in seen if not r.freezes and r.max_gap_s is not None), default=0.0)
    shortest = min((s for r in seen if r.freezes and (s := _shortest(r)) is not None), default=None)
    usual = [each for each in _USUAL_S if longest < each and (shortest is None or each <= shortest)]
    if shortest is None:
        if usual[:1] == [_USUAL_S[0]]:
            return Threshold(
                _USUAL_S[0], f"nothing reached {_USUAL_S[0]:g} s, from which a silence is a freeze"
            )
        return Threshold(None, f"no silence counted as a freeze, not even the longest of {seconds(longest)}")
    if usual:
        return Threshold(usual[0], f"a silence of {usual[0]:g} s is a freeze")
    if longest < shortest:
        return Threshold(
            shortest, f"a silence of {seconds(shortest)} is a freeze, the shortest that there was"
        )
    return Threshold(
        None,
        f"these streams were watched with several thresholds: a silence of {seconds(shortest)} counted as a freeze, "
        f"and one of {seconds(longest)} did not",
    )


def _shortest(record: StreamRecord) -> float | None:
    """Return the shortest freeze of a stream that is known."""
    lengths = [span.length_s for span in record.spans if not span.hidden]
    if lengths:
        return min(lengths)
    return record.frozen_s if record.freezes == 1 else record.max_gap_s
