"""Gaps and freezes by phase: a long pause is usual while a model reasons, and a fault in the middle of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from midstream._support.numbers import ABSENT, plural, seconds
from midstream.advice.threshold import is_measured
from midstream.report.summary import Quantiles, quantiles
from midstream.report.tables import ReportRow, Table
from midstream.stream.freezes import MOST_SPANS
from midstream.stream.model import Phase, StreamRecord

_COLUMNS = ("streams", "p50", "p95", "worst", "freeze\nfrom", "freezes", "time\nfrozen")


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """Gaps that began in one phase. Durations are seconds."""

    phase: Phase
    gap: Quantiles
    """The longest gap of each stream whose longest gap began in this phase."""
    freeze_after_s: tuple[float, ...]
    """The thresholds with which these streams were watched, the shortest first."""
    freezes: int
    """Freezes that began in this phase, of all streams; not those that a busy caller did not wait for."""
    frozen_s: float


def by_phase(records: Sequence[StreamRecord]) -> tuple[PhaseSummary, ...]:
    """Return the phases in which any gap or freeze began."""
    found = (_summary(phase, records) for phase in get_args(Phase))
    return tuple(each for each in found if each.gap.count or each.freezes)


def phase_table(records: Sequence[StreamRecord]) -> Table | None:
    """Return the table of phases; None where every gap began in text."""
    phases = by_phase(records)
    if all(each.phase == "text" for each in phases):
        return None
    notes = (
        "phase: what the model was writing when the gap began. streams: those whose longest gap began in it.",
        "A pause in reasoning is usual: give it a threshold of its own with freeze_after_s={'reasoning': 60}."
        if any(each.phase == "reasoning" and each.freezes for each in phases)
        else "",
        f"Of more than {MOST_SPANS} freezes of a stream only the longest are counted here."
        if any(len(record.freeze_spans) >= MOST_SPANS for record in records)
        else "",
    )
    rows = tuple(
        ReportRow(each.phase.replace("_", " "), _cells(each), frozen=each.freezes > 0) for each in phases
    )
    return Table("Gaps and freezes", "phase", _COLUMNS, rows, tuple(filter(None, notes)))


def phase_sentence(records: Sequence[StreamRecord]) -> str:
    """Say in which phases streams froze, if not in text alone."""
    phases = [each for each in by_phase(records) if each.freezes]
    elsewhere = [each for each in phases if each.phase != "text"]
    if not elsewhere:
        return ""
    parts = [
        f"{plural(each.freezes, 'freeze')} of {seconds(each.frozen_s)} together began in {_NAMES[each.phase]}"
        for each in phases
    ]
    return f"By phase: {', '.join(parts)}."


_NAMES: dict[Phase, str] = {"text": "text", "reasoning": "reasoning", "tool_call": "a tool call"}


def _summary(phase: Phase, records: Sequence[StreamRecord]) -> PhaseSummary:
    longest_in = [record for record in records if is_measured(record) and record.max_gap_phase == phase]
    spans = [
        span for record in records for span in record.freeze_spans if span.phase == phase and not span.hidden
    ]
    return PhaseSummary(
        phase,
        quantiles([record.max_gap_s for record in longest_in if record.max_gap_s is not None]),
        tuple(sorted({r.freeze_after_s for r in longest_in if r.freeze_after_s is not None})),
        len(spans),
        sum(span.length_s for span in spans),
    )


def _cells(summary: PhaseSummary) -> tuple[str, ...]:
    thresholds = ", ".join(f"{each:g} s" for each in summary.freeze_after_s)
    return (
        f"{summary.gap.count:,}",
        seconds(summary.gap.p50),
        seconds(summary.gap.p95),
        seconds(summary.gap.max),
        thresholds or ABSENT,
        f"{summary.freezes:,}",
        seconds(summary.frozen_s),
    )
