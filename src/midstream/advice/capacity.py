"""How many answers fit into a KV cache at once, by their mean and by their long ones."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean

from midstream._support.statistics import nearest_rank


@dataclass(frozen=True, slots=True)
class Caps:
    """Two numbers of requests that may run at once; both are at least 1.

    `never`: hardly anything is preempted even if long answers run at the same time. `average`: the average requests
    that the cache holds; above it, preemption is what happens on average.
    """

    never: int
    average: int


def safe_concurrency(pool_tokens: int, lengths: Iterable[tuple[int, int]]) -> Caps:
    """Return the two caps for a KV cache of `pool_tokens` tokens and requests of these lengths.

    `lengths` are the prompt's and the answer's tokens of each request. `never` is
    `pool / (mean prompt + 95th percentile of answers)`, `average` is `pool / (mean prompt + mean answer)`, both rounded
    down and at least 1. The percentile is the nearest rank. Source: the write-up in docs/lab-writeup.md. The useful cap
    lies between the two; `advise_concurrency` finds it by simulation.

    Raises ValueError without lengths, for a length below 0, and for a pool below 1.

    >>> safe_concurrency(45_000, [(150, 1_000), (150, 2_000), (150, 5_520)])
    Caps(never=7, average=15)
    """
    pairs = list(lengths)
    if not pairs:
        raise ValueError("there are no lengths; give the tokens of prompt and answer of each request")
    answers = sorted(answer for _, answer in pairs)
    if answers[0] < 0 or min(prompt for prompt, _ in pairs) < 0:
        raise ValueError("a length is a number of tokens, 0 or more")
    return caps(pool_tokens, mean(prompt for prompt, _ in pairs), mean(answers), nearest_rank(answers, 0.95))


def caps(pool_tokens: int, mean_prompt: float, mean_answer: float, p95_answer: float) -> Caps:
    """Return the two caps of `safe_concurrency` from the means and the percentile; all are in tokens.

    `never = pool / (mean_prompt + p95_answer)` and `average = pool / (mean_prompt + mean_answer)`, rounded down;
    1 where not even one such request fits. Where p95 is below the mean, as with few answers of which one is huge,
    both are computed from the mean, so `never` never exceeds `average`.
    """
    lengths = {"mean_prompt": mean_prompt, "mean_answer": mean_answer, "p95_answer": p95_answer}
    for name, value in lengths.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a number of tokens, 0 or more, got {value!r}")
    if pool_tokens < 1:
        raise ValueError(f"the pool must hold at least one token, got {pool_tokens!r}")
    average = mean_prompt + mean_answer
    long = mean_prompt + max(p95_answer, mean_answer)
    if not average > 0:
        raise ValueError("prompts and answers must have a length, got 0 for both")
    return Caps(never=max(1, int(pool_tokens / long)), average=max(1, int(pool_tokens / average)))
