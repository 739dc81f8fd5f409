"""What all streams of a probe show together, in numbers and in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from midstream.stream.model import Outcome, StreamRecord


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one stream; no record if the server never began it. `problem` is a sentence."""

    stream: int
    record: StreamRecord | None
    problem: str | None

    @property
    def completed(self) -> bool:
        """Whether the answer is complete."""
        return self.problem is None and self.record is not None and self.record.outcome is Outcome.COMPLETED

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens over the time from the call to the end; None if the server did not report all."""
        record = self.record
        if record is None or not record.usage_complete or not record.output_tokens or not record.duration_s:
            return None
        return record.output_tokens / record.duration_s


@dataclass(frozen=True, slots=True)
class Totals:
    """All streams of a probe together. Durations are seconds; None where nothing could be measured."""

    streams: int
    completed: int
    failed: int
    frozen: int
    frozen_share: str
    freezes: int
    frozen_s: float
    shared: int
    """Freezes in which the server's other streams were silent too."""
    withheld: int
    """Frozen streams whose longest gap was output held back, not output that was not made."""
    buffered: int
    max_gap_s: float | None
    max_gap_stream: int | None
    median_max_gap_s: float | None
    max_time_to_first_content_s: float | None
    median_time_to_first_content_s: float | None
    output_tokens: int | None
    """Of all streams; None unless the server reported every one of them."""
    tokens_per_s: float | None
    """Of all streams together, over `elapsed_s`."""
    median_tokens_per_s: float | None
    """Of one stream."""
    elapsed_s: float


def totals_of(seen: Sequence[Seen], elapsed_s: float) -> Totals:
    """Return the totals of streams that took `elapsed_s` seconds together."""
    records = [each.record for each in seen if each.record is not None]
    # A gap of 0 in an answer that came in one burst is blindness, and would hide behind a median.
    gaps = [
        (each.record.max_gap_s, each.stream)
        for each in seen
        if each.record is not None and each.record.max_gap_s is not None and not each.record.buffered
    ]
    worst_gap, worst_stream = max(gaps, default=(None, None))
    firsts = [r.time_to_first_content_s for r in records if r.time_to_first_content_s is not None]
    speeds = [speed for each in seen if (speed := each.tokens_per_s) is not None]
    counts = [r.output_tokens for r in records if r.usage_complete and r.output_tokens is not None]
    tokens = sum(counts) if counts and len(counts) == len(seen) else None
    frozen = [record for record in records if record.freezes]
    return Totals(
        streams=len(seen),
        completed=sum(each.completed for each in seen),
        failed=sum(each.problem is not None for each in seen),
        frozen=len(frozen),
        frozen_share=f"{len(frozen)} of {len(seen)}",
        freezes=sum(record.freezes for record in frozen),
        frozen_s=sum(record.frozen_s for record in frozen),
        shared=sum(record.shared for record in frozen),
        withheld=sum(record.suspected == "withheld" for record in frozen),
        buffered=sum(record.buffered for record in records),
        max_gap_s=worst_gap,
        max_gap_stream=worst_stream,
        median_max_gap_s=_median([gap for gap, _ in gaps]),
        max_time_to_first_content_s=max(firsts, default=None),
        median_time_to_first_content_s=_median(firsts),
        output_tokens=tokens,
        tokens_per_s=tokens / elapsed_s if tokens is not None and elapsed_s > 0 else None,
        median_tokens_per_s=_median(speeds),
        elapsed_s=elapsed_s,
    )


def verdict(totals: Totals, at_a_time: int, *, interrupted: bool) -> str:
    """Say in plain words what the totals mean, and what to look at next."""
    sentences = []
    if interrupted:
        sentences.append(f"Interrupted: {totals.completed} of {totals.streams} streams had completed.")
    elif totals.failed:
        sentences.append(f"{totals.failed} of {totals.streams} streams failed.")
    sentences.append(_about_gaps(totals, at_a_time))
    if totals.buffered:
        sentences.append(
            f"{totals.buffered} of {totals.streams} streams arrived in one burst, which hides any freeze: "
            "something between holds answers back; look for a proxy that buffers."
        )
    return " ".join(sentences)


def _about_gaps(totals: Totals, at_a_time: int) -> str:
    if totals.frozen:
        at_worst = "" if totals.freezes == 1 else " at worst"
        return (
            f"{totals.frozen_share} streams froze, for {totals.max_gap_s or 0.0:.2f} s{at_worst}: "
            f"the server fell silent in mid-answer. {_next_step(totals, at_a_time)}"
        )
    if totals.max_gap_s is not None:
        return f"No stream froze; longest gap {totals.max_gap_s:.2f} s."
    return "No gap could be measured: that takes an answer that arrives in several pieces."


def _next_step(totals: Totals, at_a_time: int) -> str:
    if totals.shared == totals.freezes:
        return (
            "All its streams fell silent together: look in its log for a long prefill or an engine that "
            "stood still, and at the network."
        )
    if totals.withheld == totals.frozen:
        return (
            "The tokens of that gap came all at once after it, so they were held back: look at the "
            "server's parser for tool calls or reasoning, and at proxies between."
        )
    if at_a_time > 1:
        return (
            "Look in its log for preempted (vLLM) or retracted (SGLang) requests, and probe again with a "
            "lower --concurrency or --max-tokens: if that ends it, the server ran out of KV-cache memory."
        )
    return "With one stream at a time, look at what else the server was doing, and at the network."


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
