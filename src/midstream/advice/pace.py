"""How fast a server writes, as its streams show, so that a simulation runs at its pace and not at another machine's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from midstream._support.statistics import quantile
from midstream.advice.load import RecordedLoad
from midstream.lab.hardware import PROFILES, HardwareProfile
from midstream.stream.model import Outcome, StreamRecord

BASIS = PROFILES["l4"]
"""The costs of a step whose proportions are kept; `advise` scales them to the pace of the streams."""
MOST_PREFILL = 30
"""A token of a prompt costs at most so many times what it would by the proportions of BASIS."""
ENOUGH_TOKENS = 20
"""Shorter answers show the time to the first token, and not the pace."""


def inter_token_latency(records: Sequence[StreamRecord]) -> float | None:
    """Return the median time from token to token in seconds, freezes left out; None if no stream shows it."""
    found = [
        (record.duration_s - record.time_to_first_content_s - record.frozen_s - (record.tail_s or 0.0))
        / (record.output_tokens - 1)
        for record in records
        if record.outcome is Outcome.COMPLETED
        and record.time_to_first_content_s is not None
        and record.output_tokens is not None
        and record.output_tokens >= ENOUGH_TOKENS
        and not record.buffered
    ]
    paces = [each for each in found if each > 0]
    return median(paces) if paces else None


def prefill_latency(records: Sequence[StreamRecord]) -> float | None:
    """Return the time in seconds that a token of a prompt takes at most; None if no stream shows it.

    Of the tenth of streams with the shortest time to first content for their prompt the longest: these hardly waited
    in a queue. What the way to the server takes is in it, so it is an upper bound, and close for long prompts.
    """
    found = [
        record.time_to_first_content_s / record.input_tokens
        for record in records
        if record.time_to_first_content_s is not None and record.input_tokens
    ]
    return quantile(found, 0.1)


def hardware_of(
    records: Sequence[StreamRecord], load: RecordedLoad, running: int, otherwise: HardwareProfile
) -> HardwareProfile:
    """Return the costs of a step at which `running` requests get their tokens as these streams did.

    `otherwise` is returned if the streams do not show their pace.
    """
    pace = inter_token_latency(records)
    if pace is None:
        return otherwise
    prefill = prefill_latency(records) or 0.0
    factor = pace / BASIS.decode_s(running, running * (load.mean_prompt + load.mean_answer / 2))
    return replace(
        BASIS,
        name=f"a server that takes {1000 * pace:.3g} ms a token, as these streams show",
        step_s=BASIS.step_s * factor,
        sequence_s=BASIS.sequence_s * factor,
        context_s=BASIS.context_s * factor,
        prefill_token_s=min(
            max(BASIS.prefill_token_s * factor, prefill), MOST_PREFILL * BASIS.prefill_token_s * factor
        ),
        prefill_pair_s=BASIS.prefill_pair_s * factor,
        latency_s=0.0,
        front_end_s=0.0,
        source="the recorded streams",
    )
