"""A report for scripts: everything in the tables, as numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import tzinfo
from typing import Any

from midstream.advice.threshold import threshold_of
from midstream.report.grouping import grouped
from midstream.report.phases import by_phase
from midstream.report.summary import summarise
from midstream.report.words import in_words
from midstream.stream.model import StreamRecord


def document(
    records: Sequence[StreamRecord], bys: Sequence[str], zone: tzinfo | None = None
) -> dict[str, Any]:
    """Return what JSON can hold: durations are seconds, times are Unix seconds, what is not known is null."""
    threshold = threshold_of(records)
    return {
        "streams": len(records),
        "first_started_at": min((record.started_at for record in records), default=None),
        "last_started_at": max((record.started_at for record in records), default=None),
        "freeze_after_s": threshold.value_s,
        "words": list(in_words(records, zone)),
        "phases": [asdict(phase) for phase in by_phase(records)],
        "total": asdict(summarise(records)),
        "by": {
            by: [
                {"name": group.name, **asdict(group.summary)}
                for group in grouped(records, by, top=len(records)).groups
            ]
            for by in bys
        },
    }
