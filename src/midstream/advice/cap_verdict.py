"""What a search for a cap came to: the verdict in a sentence, and what in the simulation speaks against any cap."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from midstream._support.numbers import percent
from midstream.advice.cap_search import ENGINE_KNOBS, CapGoal, Search, SimulationConfig, Trial
from midstream.advice.capacity import Caps
from midstream.advice.doubts import Doubt, Ground
from midstream.advice.pool import Pool
from midstream.advice.promise import Promise
from midstream.advice.today import Today

_SECONDS_MATTER = 1.0


@dataclass(frozen=True, slots=True)
class CapAdvice:
    """How many may run at once, all that the number rests on, and what speaks against any cap."""

    pool: Pool
    limits: Caps
    """The two caps by the lengths alone."""
    config: SimulationConfig
    found: Search
    doubts: tuple[Doubt, ...]
    today: Today | None = None
    """Today's setting, measured beside simulated."""
    promise: Promise | None = None
    """What to expect of the chosen cap; None if there is none, or the model does not reproduce the records."""

    @property
    def cap(self) -> int | None:
        """The advised cap; None if none is needed, or none meets the goals, or a cap ends no freeze there."""
        if self.found.chosen is None or not ENGINE_KNOBS[self.config.engine].preempts:
            return None
        return self.found.chosen.cap

    @property
    def verdict(self) -> str:
        """The advice in a sentence."""
        return cap_verdict(self)


def goal_text(goal: CapGoal) -> str:
    """Write a goal in words."""
    if goal.name == "p99-gap":
        return f"a p99 gap of {goal.most:g} s at most"
    share = percent(goal.most)
    if goal.name == "freeze-share":
        return f"at most {share} of answers frozen or broken off"
    return f"at most {share} of throughput given up"


def cap_verdict(advice: CapAdvice) -> str:
    """Return how many may run at once, and what that costs, in a sentence."""
    found, config = advice.found, advice.config
    free = found.trials[-1]
    goals = " and ".join(goal_text(goal) for goal in found.goals)
    if not ENGINE_KNOBS[config.engine].preempts:
        return (
            f"{config.engine} never preempts an answer, so a cap ends no freeze here: requests wait for their "
            "first token instead, and the setting that matters is max_tokens (`midstream advise max-tokens`)."
        )
    if found.chosen is None:
        return f"No cap meets {goals}: {_nearest(found)}."
    if found.chosen.cap is None:
        return f"No cap is needed for {goals}: with {config.most_at_once} at once {_froze(free)} without one."
    chosen = found.chosen
    return (
        f"Let at most {chosen.cap} run at once for {goals}: {_froze(chosen)} instead of "
        f"{percent(free.all('freeze-share'))}, with {percent(max(0.0, found.given_up(chosen)))} less "
        "throughput than "
        f"the fastest cap{_first(chosen, free)}."
    )


def simulated_doubts(found: Search, known: Container[Ground]) -> list[Doubt]:
    """Return what in the simulation speaks against a cap, beside the grounds that are known already."""
    chosen = found.chosen or found.trials[0]
    run = chosen.runs[len(chosen.runs) // 2]
    waiting = run.mean_inside - run.mean_running
    if "out of capacity" not in known and waiting > run.mean_running:
        at = "without a cap" if chosen.cap is None else f"with a cap of {chosen.cap}"
        return [
            Doubt(
                "out of capacity",
                f"{at.capitalize()} more requests wait ({waiting:.0f}) than run ({run.mean_running:.0f}): the "
                "server is "
                "out of capacity for this load, and a cap only moves the wait to before the first token.",
            )
        ]
    return []


def _froze(trial: Trial) -> str:
    return f"{percent(trial.all('freeze-share'))} freeze or break off"


def arrivals_text(config: SimulationConfig) -> str:
    """Write how calls come in the simulation."""
    if config.users is not None:
        return f"{config.users} clients in turn, {config.requests} requests"
    return f"{config.most_at_once} requests as they came"


def _first(chosen: Trial, free: Trial) -> str:
    before, after = free.all("first-token"), chosen.all("first-token")
    if abs(after - before) < _SECONDS_MATTER:
        return ""
    return f"; the first token comes within {after:.0f} s (p95) instead of {before:.0f} s"


def _nearest(found: Search) -> str:
    """Say which goal stands in the way: the caps that meet the others miss it by least."""
    parts = []
    for goal in found.goals:
        best = min(found.trials, key=lambda trial: found.value(trial, goal))
        value = found.value(best, goal)
        at = "without a cap" if best.cap is None else f"with {best.cap}"
        written = f"{value:.1f} s" if goal.name == "p99-gap" else percent(max(0.0, value))
        parts.append(f"the best for the {goal.name.replace('-', ' ')} is {written} {at}")
    return ", ".join(parts) + ("; the goals exclude each other" if len(parts) > 1 else "")
