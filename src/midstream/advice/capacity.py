"""How many answers fit into a KV cache at once, by their mean and by their long ones."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caps:
    """Two numbers of requests that may run at once; both are at least 1.

    `never`: if even the long answers met, hardly anything would be evicted. `average`: what the pool holds of
    average requests; above it, evictions are what happens on average.
    """

    never: int
    average: int


def caps(pool_tokens: int, mean_prompt: float, mean_answer: float, p95_answer: float) -> Caps:
    """Return the published caps for a KV cache of `pool_tokens`; the other lengths are in tokens, too.

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
