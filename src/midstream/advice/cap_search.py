"""Finds by simulation how many answers may run at once to meet a stated goal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median, stdev
from types import MappingProxyType
from typing import Literal, TypeAlias

from midstream._support.statistics import nearest_rank
from midstream.advice.calibration import Calibration
from midstream.advice.capacity import Caps
from midstream.advice.load import RecordedLoad
from midstream.engines import VARIANTS
from midstream.engines.facts import EngineKnob
from midstream.lab.admission import engine
from midstream.lab.hardware import HardwareProfile
from midstream.lab.results import RunResult
from midstream.lab.simulator import simulate

GoalName: TypeAlias = Literal["freeze-share", "p99-gap", "throughput-given-up"]


@dataclass(frozen=True, slots=True)
class CapGoal:
    """What a cap must achieve: at most this share of answers frozen or broken off, gap in seconds, throughput lost."""

    name: GoalName
    most: float

    def __post_init__(self) -> None:
        """Refuse what no run could be held against."""
        if not (math.isfinite(self.most) and self.most >= 0):
            raise ValueError(f"the goal {self.name} must be 0 or more, got {self.most:g}")
        if self.name != "p99-gap" and self.most >= 1:
            raise ValueError(f"the goal {self.name} is a share below 100 %, got {self.most:.0%}")


ENGINE_KNOBS: Mapping[str, EngineKnob] = MappingProxyType(
    {name: variant.knobs for name, variant in VARIANTS.items()}
)
"""Every engine of the lab."""


@dataclass(frozen=True, slots=True)
class SimulationConfig:
    """What is simulated, but for the cap: an engine with its pool on some hardware, and the load.

    With `users` so many clients ask in turn, `requests` times in all; without, requests come when they came.
    """

    engine: str
    pool_tokens: int
    hardware: HardwareProfile
    load: RecordedLoad
    users: int | None
    requests: int
    seeds: range
    freeze_after_s: float
    block_size: int = 16
    calibration: Calibration | None = None
    """Where the costs of a step were fitted: a run with another seed has others that are as likely."""
    settings: Mapping[str, int | bool] = field(default_factory=lambda: MappingProxyType({}))
    """Settings of the engine that its page shows."""
    today: int | None = None
    """The cap that was in force when the streams were recorded; None is none."""

    def run(self, cap: int | None, seed: int) -> RunResult:
        """Simulate one cap; None is none."""
        knob = ENGINE_KNOBS[self.engine]
        most = self.most_at_once
        flags = knob.flags(self.pool_tokens, most, cap, block_size=self.block_size)
        users = min(cap, most) if knob.cap is None and cap is not None else self.users
        known = VARIANTS[self.engine].flags
        settings = {
            name: value for name, value in self.settings.items() if name in known and name not in flags
        }
        return simulate(
            engine(self.engine, **flags, **settings),
            self.load.as_logged(seed, users, self.requests),
            self.hardware if self.calibration is None else self.calibration.of_seed(seed),
            freeze_after_s=self.freeze_after_s,
        )

    def trial(self, cap: int | None, seeds: Iterable[int], played: Callable[[], object]) -> Trial:
        """Simulate one cap with each of the seeds; `played` is called after every run."""
        runs = []
        for seed in seeds:
            runs.append(self.run(cap, seed))
            played()
        return Trial(cap, tuple(runs))

    @property
    def most_at_once(self) -> int:
        """How many requests can be there at once: above it a cap changes nothing."""
        return self.users if self.users is not None else min(self.requests, len(self.load.requests))


TrialFigure: TypeAlias = Literal["freeze-share", "p99-gap", "throughput", "first-token"]


@dataclass(frozen=True, slots=True)
class Trial:
    """The runs under one cap, a run for each seed; `cap` is None without one."""

    cap: int | None
    runs: tuple[RunResult, ...]

    def each(self, name: TrialFigure) -> list[float]:
        """Return a figure of each run: shares, seconds, or tokens a second."""
        return [_FIGURES[name]([run]) for run in self.runs]

    def all(self, name: TrialFigure) -> float:
        """Return a figure of all runs together.

        What few answers decide, freezes and the p99, is taken over the answers of all runs: a median of runs would
        overlook what happens in a third of them. The others are medians.
        """
        return _FIGURES[name](self.runs) if name in ("freeze-share", "p99-gap") else median(self.each(name))

    def high(self, name: TrialFigure) -> float:
        """Return what nine runs in ten stay below, if runs vary as these: the figure of all, and 1.28 deviations."""
        each = self.each(name)
        return self.all(name) + (1.28 * stdev(each) if len(each) > 1 else 0.0)


def _harmed(runs: Sequence[RunResult]) -> float:
    """Return the share of answers that froze or broke off; those never begun are none."""
    begun = [r for run in runs for r in run.requests if r.ending in ("stop", "length", "error")]
    return sum(r.freezes > 0 or r.ending == "error" for r in begun) / len(begun) if begun else 0.0


def _gap_p99(runs: Sequence[RunResult]) -> float:
    gaps = sorted(request.longest_gap_s or 0.0 for run in runs for request in run.served)
    return nearest_rank(gaps, 0.99) if gaps else 0.0


def _first_token_p95(runs: Sequence[RunResult]) -> float:
    return max((run.ttft_s.p95 for run in runs if run.ttft_s is not None), default=0.0)


_FIGURES: Mapping[TrialFigure, Callable[[Sequence[RunResult]], float]] = {
    "freeze-share": _harmed,
    "p99-gap": _gap_p99,
    "throughput": lambda runs: mean(run.throughput for run in runs),
    "first-token": _first_token_p95,
}


@dataclass(frozen=True, slots=True)
class Search:
    """Every cap that was tried, in rising order and the one without last, and the one that meets the goals.

    `chosen` is None if none does. `given_up` is the share of the best throughput that the chosen one gives up.
    """

    trials: tuple[Trial, ...]
    goals: tuple[CapGoal, ...]
    chosen: Trial | None

    def given_up(self, trial: Trial) -> float:
        """Return the share of the best cap's throughput that this one gives up."""
        best = max(each.all("throughput") for each in self.trials)
        return 1 - trial.all("throughput") / best if best else 0.0

    def value(self, trial: Trial, goal: CapGoal) -> float:
        """Return the figure that a goal is about."""
        return self.given_up(trial) if goal.name == "throughput-given-up" else trial.all(goal.name)

    def meets(self, trial: Trial, goal: CapGoal) -> bool:
        """Tell whether a cap meets a goal in nine runs of ten, and not only on average."""
        name = goal.name
        value = self.given_up(trial) if name == "throughput-given-up" else trial.high(name)
        return value <= goal.most + 1e-9


def candidates(limits: Caps, most: int, *, count: int = 10) -> list[int]:
    """Return caps worth trying, below `most`.

    Both published ones, and steps in equal proportion from half of `never` to twice `average`.
    """
    low, high = max(1, limits.never // 2), max(2, 2 * limits.average)
    steps = {round(low * (high / low) ** (n / (count - 1))) for n in range(count)}
    return sorted(cap for cap in steps | {limits.never, limits.average} if cap < most)


def search(
    config: SimulationConfig,
    limits: Caps,
    goals: Sequence[CapGoal],
    *,
    played: Callable[[], object] = lambda: None,
) -> Search:
    """Try caps by simulation and choose one: the highest that meets every goal, as do all caps below it.

    If the goals are about throughput only, the lowest that meets them. Between the chosen cap and the next one tried,
    a few more are tried. `played` is called after every run.
    """

    def play(cap: int | None) -> Trial:
        return config.trial(cap, config.seeds, played)

    trials = [play(cap) for cap in candidates(limits, config.most_at_once)]
    trials.append(play(None))
    found = _chosen(trials, goals)
    for cap in _between(found, config.most_at_once):
        trials.insert(-1, play(cap))
    ordered = sorted(trials, key=lambda trial: math.inf if trial.cap is None else trial.cap)
    return _chosen(ordered, goals)


def _chosen(trials: Sequence[Trial], goals: Sequence[CapGoal]) -> Search:
    asked = Search(tuple(trials), tuple(goals), None)
    calm = [goal for goal in goals if goal.name != "throughput-given-up"]
    fast = [goal for goal in goals if goal.name == "throughput-given-up"]
    good: list[Trial] = []
    for trial in trials:
        if not all(asked.meets(trial, goal) for goal in calm):
            break
        good.append(trial)
    good = [trial for trial in good if all(asked.meets(trial, goal) for goal in fast)]
    if not good:
        return asked
    return Search(asked.trials, asked.goals, good[-1] if calm else good[0])


def _between(found: Search, most: int, *, count: int = 3) -> list[int]:
    """Return a few caps between the chosen one and its neighbour on the side where a better one may be."""
    if found.chosen is None:
        return []
    place = found.trials.index(found.chosen)
    calm = any(goal.name != "throughput-given-up" for goal in found.goals)
    other = place + 1 if calm else place - 1
    if not 0 <= other < len(found.trials):
        return []
    ends = sorted(most if trial.cap is None else trial.cap for trial in (found.chosen, found.trials[other]))
    known = {trial.cap for trial in found.trials}
    steps = {round(ends[0] + (ends[1] - ends[0]) * n / (count + 1)) for n in range(1, count + 1)}
    return sorted(cap for cap in steps if ends[0] < cap < ends[1] and cap not in known)
