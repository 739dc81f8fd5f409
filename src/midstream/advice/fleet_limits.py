"""Limits and caps for a fleet of which only metrics are known: bounds by bucket, for each model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from midstream._support.numbers import percent, rounded_up
from midstream._support.sanitize import clean
from midstream.advice.buckets import Bounds, bounds_for, cut_off_of
from midstream.advice.capacity import Caps, caps
from midstream.sources.fleet import Summary
from midstream.telemetry.instruments import MODEL, OPERATION

BY = (MODEL, OPERATION)
"""The attributes by which streams of a fleet are grouped."""


@dataclass(frozen=True, slots=True)
class FleetLimit:
    """What the metrics of one model's answers to one kind of request show."""

    model: str
    operation: str
    bounds: Bounds


def fleet_limits(summaries: Iterable[Summary], cut: float, confidence: float) -> tuple[list[FleetLimit], int]:
    """Return the bounds for each model and operation, most answers first, and how many groups show no length at all."""
    found, silent = [], 0
    for summary in summaries:
        tokens = summary.output_tokens
        if tokens is None or tokens.count < 1:
            silent += 1
            continue
        bounds = bounds_for(tokens.buckets, cut, cut_off=cut_off_of(summary), confidence=confidence)
        model, operation = (clean(summary.labels.get(label, "")) for label in (MODEL, OPERATION))
        found.append(FleetLimit(model, operation, bounds))
    return sorted(found, key=lambda each: -each.bounds.answers), silent


def fleet_limit_verdict(limit: FleetLimit) -> str:
    """Return which limit to set, or why the data do not show one, in a sentence."""
    bounds = limit.bounds
    cut = percent(bounds.cut)
    if bounds.high is not None:
        return (
            f"Set max_tokens to {bounds.high:,.0f} at most: the smallest limit that cuts {cut} of answers is above "
            f"{bounds.low:,.0f}, and within the bucket that ends there; a journal has the exact lengths."
        )
    known = f"it is above {bounds.low:,.0f}"
    if bounds.more:
        return (
            f"Which limit cuts {cut} of answers cannot be determined from {bounds.answers:,} answers: about "
            f"{rounded_up(bounds.more):,} more {'is' if bounds.more == 1 else 'are'} needed; {known}."
        )
    if bounds.cut_off_share > bounds.cut / 2:
        return (
            f"Which limit cuts {cut} of answers cannot be determined: {percent(bounds.cut_off_share)} of them "
            "ended early, and "
            f"metrics do not show how long they were. Use a journal, or raise today's limit for a while; {known}."
        )
    return (
        f"Which limit cuts {cut} of answers cannot be determined: it lies in the last bucket, which has no end; "
        f"{known}."
    )


def fleet_caps(total: Summary, pool_tokens: int) -> Caps:
    """Return the published caps by means and the upper bound of the 95th percentile. ValueError without lengths."""
    prompts, answers = total.input_tokens, total.output_tokens
    if prompts is None or answers is None or prompts.mean is None or answers.mean is None:
        raise ValueError("the metrics hold no lengths of prompts and answers; ask servers for usage")
    long = answers.bucket_of(0.95)
    p95 = answers.mean if long is None else (long.low if math.isinf(long.high) else long.high)
    return caps(pool_tokens, prompts.mean, answers.mean, p95)
