"""The silence from which the streams of a report counted as frozen, told from the records. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from midstream._model import Settings, StreamRecord
from midstream.report.numbers import seconds
from midstream.report.summary import is_measured

_DEFAULT_S = Settings().freeze_after_s or 5.0
_USUAL_S = (0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, _DEFAULT_S, 10.0, 15.0, 20.0, 30.0, 60.0)
"""What people set."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The silence in seconds from which streams counted as frozen; `words` are for the reader."""

    value_s: float | None
    """One that tells these streams apart as they were told apart; None if none does."""
    exact: bool
    """Whether it is the only one to be expected, and may be named and drawn; otherwise it lies in a range."""
    words: str

    @property
    def exact_s(self) -> float | None:
        """The threshold in seconds if it may be named; None if it is not known or only known to lie in a range."""
        return self.value_s if self.exact else None


def threshold_of(records: Sequence[StreamRecord]) -> Threshold:
    """Return the threshold that explains which streams count as frozen. A record does not name it.

    Every silence below it is no freeze, and every one above it is: so it lies between the longest silence of the
    streams that did not freeze, and the shortest freeze. The default is taken for it if it lies there, or else the
    one usual number that does.
    """
    seen = [record for record in records if is_measured(record)]
    longest = max((r.max_gap_s for r in seen if not r.freezes and r.max_gap_s is not None), default=0.0)
    shortest = min((s for r in seen if r.freezes and (s := _shortest(r)) is not None), default=None)
    if shortest is None:
        if longest < _DEFAULT_S:
            words = f"nothing reached {_DEFAULT_S:g} s, from which a silence is a freeze"
            return Threshold(_DEFAULT_S, True, words)
        return Threshold(
            None, False, f"no silence counted as a freeze, not even the longest of {seconds(longest)}"
        )
    usual = [each for each in _USUAL_S if longest < each <= shortest]
    value_s = _DEFAULT_S if _DEFAULT_S in usual else max(usual, default=shortest)
    if value_s == _DEFAULT_S or len(usual) == 1:
        return Threshold(value_s, True, f"a silence of {value_s:g} s is a freeze")
    if longest < shortest:
        return Threshold(value_s, False, f"the threshold of a freeze {_range(longest, shortest)}")
    return Threshold(
        None,
        False,
        f"these streams were watched with several thresholds: a silence of {seconds(shortest)} counted as a freeze, "
        f"and one of {seconds(longest)} did not",
    )


def _range(longest: float, shortest: float) -> str:
    if not longest:
        return f"is {seconds(shortest)} or less"
    return f"lies somewhere between {seconds(longest)} and {seconds(shortest)}"


def _shortest(record: StreamRecord) -> float | None:
    """Return the shortest freeze of a stream that is known."""
    lengths = [span.length_s for span in record.spans if not span.hidden]
    if lengths:
        return min(lengths)
    return record.frozen_s if record.freezes == 1 else record.max_gap_s
