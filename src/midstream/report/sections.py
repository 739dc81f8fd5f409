"""What the page shows of streams, part by part. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from midstream.advice.threshold import threshold_of
from midstream.report.answer_lengths import lengths, limit_use
from midstream.report.before_after import section
from midstream.report.gaps import by_model, exceedance, gap_counts
from midstream.report.grouping import grouped
from midstream.report.phases import phase_table
from midstream.report.section import Section
from midstream.report.tables import tables
from midstream.report.timeline import timeline
from midstream.report.words import in_words
from midstream.stream.model import StreamRecord


def sections(
    records: Sequence[StreamRecord],
    bys: Sequence[str],
    top: int,
    *,
    halves: tuple[Sequence[StreamRecord], Sequence[StreamRecord]] | None = None,
    lost: Sequence[str] = (),
    zone: tzinfo | None = None,
) -> list[Section]:
    """Return the parts of a page about these streams, of which there must be at least one.

    `halves` are the streams from before a change and after it, if there was one, and `lost` says what is
    missing. Times are in this zone, or the machine's.
    """
    threshold = threshold_of(records)
    models = by_model(records)
    gaps = (gap_counts(models, threshold), exceedance(models, threshold))
    phases = phase_table(records)
    tokens = (lengths(records), limit_use(records))
    parts = [
        Section("In short", sentences=(*in_words(records, zone), *(f"Note: {note}." for note in lost))),
        *(() if halves is None else (section(*halves),)),
        Section("When", figures=(timeline(records, zone),)),
        Section(
            "How long",
            sentences=() if any(gaps) else ("No gap could be measured, so there is none to draw.",),
            figures=tuple(figure for figure in gaps if figure is not None),
            tables=() if phases is None else (phases,),
        ),
        Section(
            "Lengths and limits",
            sentences=()
            if any(tokens)
            else ("The servers reported no token counts, so the lengths are unknown.",),
            figures=tuple(figure for figure in tokens if figure is not None),
        ),
    ]
    return [*parts, *(Section(f"By {by}", tables=tables(grouped(records, by, top), threshold)) for by in bys)]
