"""What a number of streams were like together: gaps, freezes, first content, endings, limits. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from midstream._support.statistics import Share, quantile, share
from midstream.advice.threshold import is_measured
from midstream.stream.finish_reasons import stream_finish_label
from midstream.stream.model import Outcome, StreamRecord


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of `count` values; each None if there is no value."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """Streams together. Durations are seconds; what no stream shows is None, never 0."""

    streams: int
    buffered: int
    """Answers that came in one burst, in which no gap can be measured: not in `gap` and not in `froze`."""
    gap: Quantiles
    """Each stream's longest gap, where it has one."""
    froze: Share
    """Streams that froze, of those in which a gap could be measured."""
    freezes: int
    frozen_s: float
    never_ended: int
    """Streams that ended in a freeze: how long it would have lasted is not known."""
    hidden: int
    """Freezes that a busy caller did not wait for; not among `freezes`."""
    shared: Share
    """Freezes in which the server's other streams had a gap, too."""
    suspected: Mapping[str, int]
    """What the longest gap was (`stall`, `withheld`, `unknown`), over the streams that froze."""
    first_content: Quantiles
    outcomes: Mapping[str, int]
    finished: int
    """Streams whose answer came to an end: completed, or at their limit."""
    length: Share
    """Those whose finish reason is `length`, of the finished."""
    length_without_limit: int
    """Those of them that asked for no limit: the server's own, or the context's, ended them."""
    limit_hits: Share
    """Those that reached the limit asked for, whatever their finish reason says, of the finished."""
    limits: int
    """Streams that asked for a limit."""
    limit_used: Quantiles
    """Output tokens over the limit asked for, where both are known in full."""
    output_tokens: Quantiles


def summarise(records: Sequence[StreamRecord]) -> StreamSummary:
    """Return what these streams were like together."""
    seen = [record for record in records if is_measured(record)]
    frozen = [record for record in seen if record.freezes]
    finished = [record for record in records if is_finished(record)]
    ended_by_length = [
        record for record in finished if stream_finish_label(record.finish_reasons) == "length"
    ]
    freezes = sum(record.freezes for record in records)
    return StreamSummary(
        streams=len(records),
        buffered=sum(record.buffered for record in records),
        gap=quantiles([record.max_gap_s for record in seen if record.max_gap_s is not None]),
        froze=share(len(frozen), len(seen)),
        freezes=freezes,
        frozen_s=sum(record.frozen_s for record in records),
        never_ended=sum(
            record.max_gap_open or any(span.open for span in record.freeze_spans) for record in frozen
        ),
        hidden=sum(record.hidden for record in records),
        # A record of another version may count one twice; a share beyond all would end the report.
        shared=share(min(freezes, sum(record.shared for record in records)), freezes),
        suspected=dict(Counter(str(record.suspected) for record in frozen)),
        first_content=quantiles(
            [r.time_to_first_content_s for r in records if r.time_to_first_content_s is not None]
        ),
        outcomes=dict(Counter(record.outcome.value for record in records)),
        finished=len(finished),
        length=share(len(ended_by_length), len(finished)),
        length_without_limit=sum(record.token_limit is None for record in ended_by_length),
        limit_hits=share(sum(record.limit_hit for record in finished), len(finished)),
        limits=sum(record.token_limit is not None for record in records),
        limit_used=quantiles([used for record in records if (used := limit_used(record)) is not None]),
        output_tokens=quantiles(
            [float(r.output_tokens) for r in records if r.usage_complete and r.output_tokens is not None]
        ),
    )


def quantiles(values: Sequence[float]) -> Quantiles:
    """Return the usual quantiles."""
    return Quantiles(
        len(values),
        quantile(values, 0.5),
        quantile(values, 0.95),
        quantile(values, 0.99),
        max(values, default=None),
    )


def is_finished(record: StreamRecord) -> bool:
    """Whether the answer came to an end of its own: only then does its finish reason describe its length."""
    return record.outcome is Outcome.COMPLETED or record.limit_hit


def limit_used(record: StreamRecord) -> float | None:
    """Return the share of its limit that a stream used; None unless both are known in full."""
    if record.output_tokens is None or not record.token_limit or not record.usage_complete:
        return None
    # The limit is for each choice, usage for all of them together.
    return record.output_tokens / (record.token_limit * max(1, len(record.finish_reasons)))
