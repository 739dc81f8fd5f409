"""What clients do: when they ask, how long prompts and answers are, which limit they send."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

from midstream.lab.admission import Request

Length: TypeAlias = Callable[[random.Random], int]
"""Draws one length in tokens."""

Pair: TypeAlias = tuple[int, int]
"""A prompt's and its answer's length in tokens."""

_P95 = 1.6448536269514722
"""The standard normal distribution's 95th percentile."""


@dataclass(frozen=True, slots=True)
class WorkloadCall:
    """A request and its client, who asks at `at_s` and hangs up `patience_s` later if not served by then.

    Where clients take turns (`Workload.users`), `at_s` is the pause before the turn.
    """

    request: Request
    at_s: float
    patience_s: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """All calls of a run, in order.

    Without `users` the calls come at their times, whatever the server does (an open loop). With `users`, that
    many clients make them in turn: a client that got its answer makes the next call, after its pause (a closed
    loop).
    """

    calls: tuple[WorkloadCall, ...]
    users: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no driver could play."""
        if self.users is not None and self.users < 1:
            raise ValueError(f"users must be at least 1, got {self.users}; leave it out for an open loop")
        if self.users is None and any(
            b.at_s < a.at_s for a, b in zip(self.calls, self.calls[1:], strict=False)
        ):
            raise ValueError("calls must be in the order of their times")


def generator(purpose: str, seed: int) -> random.Random:
    """Return a source of chance for one purpose, so that one draw more here moves nothing elsewhere."""
    return random.Random(f"{purpose} {seed}")  # noqa: S311 - a simulation needs chance that can be repeated


def fixed(tokens: int) -> Length:
    """Return a length that never varies."""
    return lambda _: tokens


def lognormal(mu: float, sigma: float, *, most: int | None = None) -> Length:
    """Return lengths whose logarithm has mean `mu` and deviation `sigma`, cut at `most`."""

    def draw(rng: random.Random) -> int:
        tokens = max(1, round(rng.lognormvariate(mu, sigma)))
        return tokens if most is None else min(tokens, most)

    return draw


def lognormal_by(*, mean: float, p95: float, most: int | None = None) -> Length:
    """Return lognormal lengths with that mean and 95th percentile.

    Of the two deviations that fit, the smaller is taken. No lognormal distribution has a 95th percentile of
    more than 3.87 times its mean; ValueError says so.
    """
    if not 0 < mean < p95:
        raise ValueError(f"p95 must exceed the mean, got a mean of {mean:g} and a p95 of {p95:g}")
    # mean = exp(mu + sigma**2 / 2) and p95 = exp(mu + z * sigma): a quadratic equation in sigma.
    discriminant = _P95**2 - 2 * math.log(p95 / mean)
    if discriminant < 0:
        raise ValueError(
            f"no lognormal distribution has a p95 above {math.exp(_P95**2 / 2):.2f} times its mean, "
            f"got {p95 / mean:.2f}; give mu and sigma, or real lengths"
        )
    sigma = _P95 - math.sqrt(discriminant)
    return lognormal(math.log(mean) - sigma**2 / 2, sigma, most=most)


def sampled(lengths: Iterable[int]) -> Length:
    """Return lengths drawn, with replacement, from those that were seen."""
    seen = tuple(lengths)
    if not seen:
        raise ValueError("there are no lengths to draw from")
    return lambda rng: rng.choice(seen)


def pairs(seed: int, count: int, prompt: Length, answer: Length) -> list[Pair]:
    """Draw prompts and answers that have nothing to do with each other."""
    rng = generator("lengths", seed)
    return [(prompt(rng), answer(rng)) for _ in range(count)]


def resampled(seed: int, count: int, seen: Iterable[Pair]) -> list[Pair]:
    """Draw prompts with the answers they got, with replacement, from those that were seen."""
    rng = generator("lengths", seed)
    known = tuple(seen)
    if not known:
        raise ValueError("there are no lengths to draw from")
    return [rng.choice(known) for _ in range(count)]


def poisson(seed: int, count: int, rate_per_s: float) -> list[float]:
    """Return the times of calls that come independently of each other, `rate_per_s` a second on average."""
    if not rate_per_s > 0:
        raise ValueError(f"the rate must be above 0 calls a second, got {rate_per_s:g}")
    rng = generator("arrivals", seed)
    return list(accumulate(rng.expovariate(rate_per_s) for _ in range(count)))


def burst(count: int, *, stagger_s: float = 0.0) -> list[float]:
    """Return the times of calls that come all at once, or `stagger_s` after each other."""
    return [index * stagger_s for index in range(count)]


def open_loop(
    times_s: Sequence[float],
    lengths: Iterable[Pair],
    *,
    max_tokens: int | None = None,
    patience_s: float | None = None,
) -> Workload:
    """Return calls at given times: poisson(), burst(), or those of a trace."""
    return Workload(
        tuple(
            WorkloadCall(Request(index, prompt, answer, max_tokens), at_s, patience_s)
            for index, (at_s, (prompt, answer)) in enumerate(zip(sorted(times_s), lengths, strict=False))
        )
    )


def closed_loop(
    users: int,
    lengths: Iterable[Pair],
    *,
    think_s: float = 0.0,
    seed: int = 0,
    max_tokens: int | None = None,
    patience_s: float | None = None,
) -> Workload:
    """Return calls that `users` clients make in turn, each after a pause of `think_s` on average."""
    rng = generator("thinking", seed)
    return Workload(
        tuple(
            WorkloadCall(
                Request(index, prompt, answer, max_tokens),
                rng.expovariate(1 / think_s) if think_s > 0 else 0.0,
                patience_s,
            )
            for index, (prompt, answer) in enumerate(lengths)
        ),
        users,
    )


def delayed(workload: Workload, most_s: float, seed: int) -> Workload:
    """Return the same calls, each made up to `most_s` later, at random.

    What a load does may hang on a few milliseconds: which call was still heard before a step began. The spread
    over several seeds tells which of its figures do.
    """
    if not (math.isfinite(most_s) and most_s >= 0):
        raise ValueError(f"the delay must not be negative, got {most_s:g} s")
    rng = generator("delays", seed)
    later = (replace(call, at_s=call.at_s + rng.uniform(0.0, most_s)) for call in workload.calls)
    return Workload(tuple(sorted(later, key=lambda call: call.at_s)), workload.users)
