"""How often the interval of `midstream advise timeout` holds the truth: `python -m benchmarks.timeouts [RUNS]`.

Each run is a world drawn at random, with a seed of its own: how long gaps last that end by themselves (lognormal, or
mostly short with a share of long freezes, or with a tail that falls like a power), how many never end, and how long
readers wait before they leave (some are impatient, the others leave it to a time limit). The advice sees how long
each gap lasted until it ended or was given up. Beside each other: how often the interval held the true timeout; how
often the advised value ended at most the share that was allowed; the share of all runs that were told a wrong interval
(`misled`); and how far the estimate was off, beside the plain quantile that takes each gap that was given up as it is.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist, median

import numpy as np

from midstream.advice.survival import Quantile, naive_limit
from midstream.advice.timeouts import rounded_up_s
from midstream.advice.timeouts_recovery import milliseconds, recovery_of, timeout_for

RUNS = 200
CASES = ((1000, 0.01), (5000, 0.01), (20_000, 0.001), (50_000, 0.001))
DEAD = (0.0, 0.001, 0.01)
LONGEST_S = 600.0
"""The time limit of the patient."""

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class World:
    """How gaps end, and how long readers wait. `above` is the true share of gaps that end later than a time."""

    draw: Callable[[np.random.Generator, int], Floats]
    above: Callable[[float], float]
    impatient: float
    patience_s: float


def a_world(rng: np.random.Generator) -> World:
    """Draw a world."""
    impatient, patience_s = rng.uniform(0.0, 1.0), float(np.exp(rng.uniform(math.log(10), math.log(200))))
    middle, sigma = float(np.exp(rng.uniform(math.log(0.05), math.log(2)))), rng.uniform(0.4, 1.1)
    kind = rng.integers(3)
    if kind == 0:
        return World(
            lambda r, n: r.lognormal(math.log(middle), sigma, n),
            lambda t: _lognormal_above(t, middle, sigma),
            impatient,
            patience_s,
        )
    if kind == 1:
        share, long, spread = rng.uniform(0.002, 0.1), rng.uniform(3, 25), rng.uniform(0.2, 0.7)
        return World(
            lambda r, n: np.where(
                r.random(n) < share,
                r.lognormal(math.log(long), spread, n),
                r.lognormal(math.log(middle), sigma, n),
            ),
            lambda t: (
                share * _lognormal_above(t, long, spread) + (1 - share) * _lognormal_above(t, middle, sigma)
            ),
            impatient,
            patience_s,
        )
    power = rng.uniform(1.8, 3.0)
    return World(
        lambda r, n: middle * r.random(n) ** (-1 / power) - middle,
        lambda t: (1 + t / middle) ** -power,
        impatient,
        patience_s,
    )


def _lognormal_above(t: float, middle: float, sigma: float) -> float:
    return 1 - NormalDist().cdf((math.log(t) - math.log(middle)) / sigma)


def true_timeout(world: World, kill: float) -> float:
    """Return the smallest timeout in seconds that ends at most a share of the gaps that end by themselves."""
    low, high = 1e-6, 1e7
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if world.above(middle) <= kill else (middle, high)
    return high


def observed(
    world: World, rng: np.random.Generator, count: int, dead: float
) -> tuple[list[float], list[float]]:
    """Return how long the gaps lasted that ended by themselves, and those that were given up."""
    gaps = np.where(rng.random(count) < dead, np.inf, world.draw(rng, count))
    leaves = np.where(
        rng.random(count) < world.impatient, rng.exponential(world.patience_s, count), LONGEST_S
    )
    return gaps[gaps <= leaves].tolist(), leaves[gaps > leaves].tolist()


def run(count: int, kill: float, dead: float, runs: int) -> tuple[str, ...]:
    """Ask for the advice in many worlds, and return the line to print."""
    held, kept, refused, errors, naive, spare = 0, 0, 0, [], [], []
    for seed in range(runs):
        rng = np.random.default_rng([seed, count, round(1e6 * dead)])
        world = a_world(rng)
        truth_s = true_timeout(world, kill)
        ended, given_up = observed(world, rng, count, dead)
        found = timeout_for(recovery_of(ended, given_up), kill)
        if not isinstance(found, Quantile):
            refused += 1
            continue
        held += found.low <= 1000 * truth_s + 0.5 and 1000 * truth_s - 0.5 <= found.high
        advised_s = rounded_up_s((found.high + 1) / 1000)
        kept += world.above(advised_s) <= kill
        errors.append(found.limit / 1000 / truth_s - 1)
        spare.append(advised_s / truth_s)
        naive.append(naive_limit([milliseconds(s) for s in [*ended, *given_up]], kill) / 1000 / truth_s - 1)
    answered = runs - refused
    return (
        f"{count:,}",
        f"{kill:.1%}",
        f"{dead:.1%}",
        f"{held / answered:.1%}" if answered else "-",
        f"{kept / answered:.1%}" if answered else "-",
        f"{(answered - held) / runs:.1%}",
        f"{median(errors):+.1%}" if errors else "-",
        f"{median(spare):.2f}" if spare else "-",
        f"{median(naive):+.0%}" if naive else "-",
        f"{refused / runs:.0%}",
    )


def main(runs: int = RUNS) -> None:
    """Print the table."""
    started = time.perf_counter()
    heads = (
        "streams",
        "may be ended",
        "never end",
        "interval holds the truth",
        "share kept",
        "misled",
        "off by",
        "advised over truth",
        "plain quantile off by",
        "refused",
    )
    print(" | ".join(heads))
    print(" | ".join("---" for _ in heads))
    for count, kill in CASES:
        for dead in DEAD:
            print(" | ".join(run(count, kill, dead, runs)), flush=True)
    print(f"\n{runs} runs each, {time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
