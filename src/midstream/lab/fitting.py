"""Fits a hardware profile to recorded loads in which nothing froze.

A client sees chunks, not steps; but the streams that decode together get their tokens step by step, so the
time that passes between tokens, at several batch sizes and contexts, tells the costs of a step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from midstream.lab.hardware import HardwareProfile
from midstream.lab.observed import ObservedLoad, ObservedStream

_SLICE_S = 1.0
"""Loads are cut into slices of about this length; within one, the context counts as constant."""

_SAME_STEP_S = 0.008
"""Chunks of different streams that arrive closer together than this come from one step."""


_INDEPENDENT = 1e-6
"""Below this ratio of singular values two of the costs cannot be told apart."""


@dataclass(frozen=True, slots=True)
class _Slice:
    """Some steps that had the same requests in them."""

    steps: float
    seconds: float
    sequences: int
    context: float


def fit_profile(loads: Sequence[ObservedLoad]) -> HardwareProfile:
    """Return the profile under which these loads would have taken as long as they did.

    The loads must hold at least two batch sizes, and no preemptions. Prefill is fitted as so many tokens a
    second: what attention adds to long prompts cannot be told apart, and is left at nothing. What passes before
    a call is in the engine's queue is taken to be the front end's work, as far as that can be: calls that came
    close together and were served soon after leave less of it. The rest is latency. Raises ValueError when the
    loads do not determine the costs.
    """
    name = " and ".join(load.name for load in loads)
    slices = [piece for load in loads for piece in _slices(load)]
    if len({piece.sequences for piece in slices}) < 2:
        raise ValueError(
            f"{name or 'nothing'} shows one batch size only; a fit needs at least two, each held for a second"
        )
    step_s, sequence_s, context_s = _least_squares(slices)
    decoding = HardwareProfile(name, max(step_s, 1e-6), max(sequence_s, 0.0), max(context_s, 0.0), 0.0)
    firsts = [first for load in loads for first in _first_tokens(load)]
    costs = [
        (first.seconds - decoding.decode_s(first.sequences, first.context)) / first.prompt for first in firsts
    ]
    if not costs:
        raise ValueError(
            f"no stream of {name} starts while another runs, so prefill cannot be told from waiting"
        )
    prefill_s = max(median(costs), 0.0)
    alone = min(load.streams[0].times_s[0] - load.streams[0].start_s for load in loads)
    lone_step_s = decoding.step_s + prefill_s * median(load.streams[0].prompt_tokens for load in loads)
    waited = [first.began_s - first.stream_start_s for first in firsts]
    on_its_way_s = max(min(alone - lone_step_s, *waited), 0.0)
    front_end_s = min(on_its_way_s, *(_front_end_at_most(load) for load in loads))
    return HardwareProfile(
        name=name,
        step_s=decoding.step_s,
        sequence_s=decoding.sequence_s,
        context_s=decoding.context_s,
        prefill_token_s=prefill_s,
        latency_s=on_its_way_s - front_end_s,
        front_end_s=front_end_s,
        source=f"fitted to {name}",
    )


def _slices(load: ObservedLoad) -> list[_Slice]:
    """Cut a load where streams start and end, and into slices of about a second in between."""
    edges = sorted({edge for stream in load.streams for edge in (stream.times_s[0], stream.times_s[-1])})
    slices = []
    for start, end in pairwise(edges):
        count = round((end - start) / _SLICE_S)
        active = [
            stream for stream in load.streams if stream.times_s[0] <= start and end <= stream.times_s[-1]
        ]
        for index in range(count if active else 0):
            width = (end - start) / count
            slices.append(_slice(active, start + index * width, start + (index + 1) * width))
    return slices


def _slice(active: Sequence[ObservedStream], start_s: float, end_s: float) -> _Slice:
    tokens = [_tokens_by(stream, end_s) - _tokens_by(stream, start_s) for stream in active]
    halfway = (start_s + end_s) / 2
    context = sum(stream.prompt_tokens + _tokens_by(stream, halfway) for stream in active)
    return _Slice(sum(tokens) / len(tokens), end_s - start_s, len(active), context)


def _tokens_by(stream: ObservedStream, at_s: float) -> float:
    """Estimate the tokens that a stream had by then: now and then several come in one chunk."""
    return bisect_left(stream.times_s, at_s) * stream.answer_tokens / len(stream.times_s)


@dataclass(frozen=True, slots=True)
class _First:
    """The step that made a stream's first token, with the decoding that went on in it."""

    stream_start_s: float
    began_s: float
    seconds: float
    prompt: int
    sequences: int
    context: float


def _first_tokens(load: ObservedLoad) -> list[_First]:
    """Find the steps that prefilled one stream while others decoded."""
    arrivals = sorted((at, stream.id) for stream in load.streams for at in stream.times_s)
    steps = [arrivals[0][0]] + [
        after[0] for before, after in pairwise(arrivals) if after[0] - before[0] > _SAME_STEP_S
    ]
    found: dict[int, list[ObservedStream]] = {}
    for stream in load.streams:
        found.setdefault(bisect_left(steps, stream.times_s[0] + 1e-9) - 1, []).append(stream)
    firsts = []
    for index, streams in found.items():
        began = steps[index - 1]
        others = [s for s in load.streams if s.times_s[0] <= began + _SAME_STEP_S and s.times_s[-1] > began]
        if index > 0 and others and len(streams) == 1:
            context = sum(other.prompt_tokens + _tokens_by(other, began) for other in others)
            seconds = steps[index] - began
            firsts.append(
                _First(streams[0].start_s, began, seconds, streams[0].prompt_tokens, len(others), context)
            )
    return firsts


def _front_end_at_most(load: ObservedLoad) -> float:
    """Return the longest that a call may take, one at a time, for every first token to be out when it was."""
    streams = load.streams
    return min(
        (last.times_s[0] - first.start_s) / (calls + 1)
        for index, first in enumerate(streams)
        for calls, last in enumerate(streams[index:])
    )


def _least_squares(slices: Sequence[_Slice]) -> tuple[float, float, float]:
    """Solve seconds = steps * (a + b * sequences + c * context) for a, b and c; each step weighs the same."""
    import numpy as np  # noqa: PLC0415 - a part of an extra, and heavy

    weights = np.sqrt([piece.steps for piece in slices])
    terms = np.array([(1.0, piece.sequences, piece.context) for piece in slices]) * weights[:, None]
    seconds_a_step = np.array([piece.seconds / piece.steps for piece in slices]) * weights
    # Columns of the same length: a context counts thousands of tokens, where a batch counts requests.
    scale = np.linalg.norm(terms, axis=0)
    costs, _, rank, _ = np.linalg.lstsq(terms / scale, seconds_a_step, rcond=_INDEPENDENT)
    if rank < len(scale):
        raise ValueError("these loads vary too little in batch size and context to fit three costs")
    a, b, c = (float(cost) for cost in costs / scale)
    return a, b, c
