"""How often the interval of `midstream advise max-tokens` holds the true quantile: `python -m benchmarks.coverage`.

Lengths are drawn from distributions whose quantiles are known, a limit cuts a known share of them, and the advice is
asked for many times. Beside each other: the share of answered runs whose 95 % interval holds the truth; the share of
all runs in which it does not (`misled`: where most runs are refused, those that are answered had short lengths by
chance); and how far the estimate and the plain quantile of the logged lengths are off. A limit cuts only three
requests in four: the fourth asked for so much that nothing is cut, as where several teams use a server.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from statistics import NormalDist, median

import numpy as np

from midstream.advice.survival import Quantile, Unsupported, curve_of, limit_for, naive_limit

RUNS = 200
UNLIMITED = 0.25
"""The share of requests whose limit cuts nothing."""

Draw = Callable[[np.random.Generator, int], "np.ndarray[tuple[int], np.dtype[np.float64]]"]


def lognormal(rng: np.random.Generator, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Chat: a median of 400 tokens and a long tail."""
    return rng.lognormal(math.log(400), 0.9, count)


def mixture(rng: np.random.Generator, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Two kinds of requests: four in five are short, one in five writes reports."""
    short = rng.lognormal(math.log(150), 0.6, count)
    long = rng.lognormal(math.log(2500), 0.5, count)
    return np.where(rng.random(count) < 0.2, long, short)


def share_above(name: str, tokens: float) -> float:
    """Return the true share of answers longer than that."""

    def above(middle: float, sigma: float) -> float:
        return 1 - NormalDist().cdf((math.log(tokens) - math.log(middle)) / sigma)

    return above(400, 0.9) if name == "lognormal" else 0.8 * above(150, 0.6) + 0.2 * above(2500, 0.5)


def true_limit(name: str, share: float) -> int:
    """Return the smallest whole number of tokens that cuts at most a share: lengths are rounded."""
    low, high = 1, 10**7
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if share_above(name, middle + 0.5) <= share else (middle + 1, high)
    return low


DRAWS: dict[str, Draw] = {"lognormal": lognormal, "mixture": mixture}


def cases() -> Iterator[tuple[str, int, float, float]]:
    """Yield a distribution, a number of answers, the share to cut, and the share that today's limit cuts."""
    for name in DRAWS:
        for count, cut in ((1000, 0.01), (5000, 0.01), (20000, 0.001)):
            for today in (0.0, 0.01, 0.1, 0.3):
                yield name, count, cut, today


def run(name: str, count: int, cut: float, today: float, runs: int) -> tuple[str, ...]:
    """Ask for the advice many times, and return the line to print."""
    truth = true_limit(name, cut)
    limit = true_limit(name, today) if today else 10**9
    held, refused, widths, errors, naive = 0, 0, [], [], []
    for seed in range(runs):
        rng = np.random.default_rng([seed, count, round(1000 * today)])
        lengths = np.maximum(1, np.rint(DRAWS[name](rng, count))).astype(int)
        cut_off = (lengths > limit) & (rng.random(count) >= UNLIMITED)
        exact, censored = lengths[~cut_off].tolist(), [limit] * int(cut_off.sum())
        found = limit_for(curve_of(exact, censored), cut)
        naive.append(naive_limit([*exact, *censored], cut) / truth - 1)
        if isinstance(found, Unsupported):
            refused += 1
        elif isinstance(found, Quantile):
            held += found.low <= truth <= found.high
            widths.append((found.high - found.low) / truth)
            errors.append(found.limit / truth - 1)
    answered = runs - refused
    return (
        name,
        f"{count:,}",
        f"{cut:.1%}",
        f"{today:.0%}",
        f"{truth:,}",
        f"{held / answered:.1%}" if answered else "-",
        f"{(answered - held) / runs:.1%}",
        f"{median(widths):.0%}" if widths else "-",
        f"{median(errors):+.1%}" if errors else "-",
        f"{median(naive):+.1%}",
        f"{refused / runs:.0%}",
    )


def main(runs: int = RUNS) -> None:
    """Print the table."""
    started = time.perf_counter()
    heads = (
        "lengths",
        "answers",
        "cut",
        "limit cuts",
        "truth",
        "interval holds it",
        "misled",
        "width",
        "off by",
        "plain",
        "refused",
    )
    print(" | ".join(heads))
    print(" | ".join("---" for _ in heads))
    for case in cases():
        print(" | ".join(run(*case, runs)), flush=True)
    print(f"\n{runs} runs each, {time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
