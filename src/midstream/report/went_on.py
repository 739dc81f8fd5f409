"""Which freezes were certainly not the whole server's: another stream of it went on meanwhile. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from midstream.report.grouping import server_of
from midstream.report.lanes import spans
from midstream.stream.model import FreezeSpan, StreamRecord


def went_on(records: Sequence[StreamRecord]) -> int:
    """Return in how many freezes that were not shared another stream of the same server went on.

    That is a stream that was in mid-answer all the while and did not freeze meanwhile. Where there is none, a freeze
    that is not marked as shared may be of a stream that was alone with its server, which shows nothing of others.
    """
    witnesses: dict[str, list[tuple[float, StreamRecord]]] = {}
    for record in records:
        if _is_witness(record):
            since = record.started_at + (record.time_to_first_content_s or 0.0)
            witnesses.setdefault(server_of(record), []).append((since, record))
    for found in witnesses.values():
        found.sort(key=lambda each: each[0])
    longest = max((record.duration_s for record in records), default=0.0)
    return sum(
        _has_witness(record, span, witnesses.get(server_of(record), []), longest)
        for record in records
        if record.freezes
        for span in spans(record)
        if not (span.hidden or span.shared)
    )


def _is_witness(record: StreamRecord) -> bool:
    """Whether it is known of every moment of this answer whether it was frozen."""
    return (
        record.time_to_first_content_s is not None
        and record.max_gap_s is not None
        and not record.buffered
        and len(record.freeze_spans) == record.freezes + record.hidden
    )


def _has_witness(
    frozen: StreamRecord, span: FreezeSpan, witnesses: Sequence[tuple[float, StreamRecord]], longest_s: float
) -> bool:
    start = frozen.started_at + span.at_s
    end = start + span.length_s
    nth = bisect_right(witnesses, start, key=lambda each: each[0])
    # The nearest are the likeliest; of those that began too long ago none can still be there.
    while nth and witnesses[nth - 1][0] >= end - longest_s:
        nth -= 1
        other = witnesses[nth][1]
        there = other is not frozen and other.started_at + other.duration_s >= end
        if there and all(until <= start or since >= end for since, until in _frozen(other)):
            return True
    return False


def _frozen(record: StreamRecord) -> Iterator[tuple[float, float]]:
    for span in record.freeze_spans:
        yield record.started_at + span.at_s, record.started_at + span.at_s + span.length_s
