"""What to expect of an advised cap: intervals that hold what then happens, and not one number."""

from __future__ import annotations

from dataclasses import dataclass

from midstream._support.numbers import percent
from midstream.advice.cap_search import Trial
from midstream.advice.today import Today

RUNS = 20
"""Of so many runs the next lies between the least and the most 19 times in 21, if it is like them."""
_FROZEN, _TOKENS = 0.03, 0.05
"""A real server is never quite the model: intervals are wider by 3 points of frozen answers, 5 % of the tokens/s."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Intervals for the next load of as many `requests`: the share of answers that freeze or break off, tokens/s.

    `tokens_per_s` is None where the pace is assumed and not measured.
    """

    requests: int
    frozen: tuple[float, float]
    tokens_per_s: tuple[float, float] | None

    def sentence(self) -> str:
        """Write the intervals out."""
        low, high = (percent(edge) for edge in self.frozen)
        speed = ""
        if self.tokens_per_s is not None:
            speed = f", at {self.tokens_per_s[0]:,.0f} to {self.tokens_per_s[1]:,.0f} tokens/s"
        return f"Expect {low} to {high} of the next {self.requests:,} answers to freeze or break off{speed}."


def promise_of(trial: Trial, today: Today) -> Promise | None:
    """Return the promise from the runs of the chosen cap; None if the model does not reproduce today's setting.

    The intervals reach from the least run to the most, are widened by how far the model is off today, and by a margin
    for what no model has.
    """
    if today.disagrees is not None:
        return None
    frozen, speed = sorted(trial.each("freeze-share")), sorted(trial.each("throughput"))
    simulated = today.each("frozen")
    missed = max(0.0, today.measured.frozen - sum(simulated) / len(simulated)) / 2
    tokens = None
    if today.paced:
        tokens = speed[0] * (1 - _TOKENS), speed[-1] * (1 + _TOKENS)
    edges = max(0.0, frozen[0] - _FROZEN), min(1.0, frozen[-1] + _FROZEN + missed)
    return Promise(len(trial.runs[0].requests), edges, tokens)
