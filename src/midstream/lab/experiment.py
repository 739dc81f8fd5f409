"""A simulation as it is asked for: an engine with flags, calls, and optionally one setting to sweep over. Pure.

experiment = Experiment("vllm", {"max_num_seqs": 16}, PROFILES["l4"], calls, seeds=range(3))
experiment.check()
for group in experiment.run():
    print(group.label, group.values("freeze_p95_s"))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args, get_type_hints

from midstream.lab.admission import ENGINES, engine
from midstream.lab.hardware import HardwareProfile
from midstream.lab.observed import ObservedLoad
from midstream.lab.prediction import workload_of
from midstream.lab.results import RunResult, figures
from midstream.lab.simulator import simulate
from midstream.lab.workload import Pair, Workload, closed_loop, delayed, open_loop, poisson

_SWEPT_CALLS = ("users", "rate", "max_tokens")
"""What can be swept besides the engine's own flags."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A setting, and the values it takes one after the other."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CallPattern:
    """How clients call: a number of users in turn, at random (`rate`), at given times, or as in a recorded load.

    `draw` returns prompt and answer lengths for a seed and a count. Times are seconds; `rate` is calls a second.
    """

    draw: Callable[[int, int], list[Pair]]
    requests: int
    users: int | None = None
    rate: float | None = None
    think_s: float = 0.0
    times_s: tuple[float, ...] = ()
    load: ObservedLoad | None = None
    jitter_s: float = 0.0
    max_tokens: int | None = None
    patience_s: float | None = None

    def workload(self, seed: int, changed: Mapping[str, float]) -> Workload:
        """Return the calls of one run, with what is swept changed."""
        if self.load is not None:
            return delayed(workload_of(self.load), self.jitter_s, seed)
        limit = changed.get("max_tokens", self.max_tokens)
        max_tokens = None if limit is None else round(limit)
        users, rate = changed.get("users", self.users), changed.get("rate", self.rate)
        if "rate" in changed:
            users = None
        lengths = self.draw(seed, len(self.times_s) or self.requests)
        if users is not None:
            return closed_loop(
                round(users),
                lengths,
                think_s=self.think_s,
                seed=seed,
                max_tokens=max_tokens,
                patience_s=self.patience_s,
            )
        times_s = self.times_s if rate is None else poisson(seed, self.requests, rate)
        return open_loop(times_s, lengths, max_tokens=max_tokens, patience_s=self.patience_s)


@dataclass(frozen=True, slots=True)
class RunGroup:
    """The runs, one a seed, that share a value of what is swept; `label` is empty when nothing is."""

    label: str
    value: float | None
    runs: tuple[RunResult, ...]

    def values(self, figure: str) -> list[float]:
        """Return a figure of each run that has it."""
        return [value for run in self.runs if (value := figures(run)[figure]) is not None]


@dataclass(frozen=True, slots=True)
class Experiment:
    """Everything that decides what is simulated."""

    engine: str
    flags: Mapping[str, object]
    hardware: HardwareProfile
    calls: CallPattern
    sweep: Sweep | None = None
    seeds: range = range(1)
    until_s: float = math.inf
    freeze_after_s: float = 5.0

    @property
    def runs(self) -> int:
        """How many runs it takes."""
        return len(self.seeds) * (1 if self.sweep is None else len(self.sweep.values))

    def check(self) -> None:
        """Raise ValueError for an engine, a flag or a sweep that is not possible."""
        engine(self.engine, **self.flags)
        if self.sweep is None:
            return
        known = (*_SWEPT_CALLS, *ENGINES[self.engine].flags)
        if self.sweep.name not in known:
            raise ValueError(
                f"{self.engine} has no {typed(self.sweep.name)}; it has {', '.join(map(typed, known))}"
            )
        if self.sweep.name in _SWEPT_CALLS and self.calls.load is not None:
            raise ValueError(f"{typed(self.sweep.name)} cannot be swept with the calls of a recorded load")

    def run(self, on_run: Callable[[], None] = lambda: None) -> list[RunGroup]:
        """Run it all, calling `on_run` after each run."""
        values: tuple[float | None, ...] = (None,) if self.sweep is None else self.sweep.values
        groups = []
        for value in values:
            runs = []
            for seed in self.seeds:
                runs.append(self._run(value, seed))
                on_run()
            groups.append(RunGroup("" if value is None else f"{value:g}", value, tuple(runs)))
        return groups

    def why_rejected(self, groups: Sequence[RunGroup]) -> str | None:
        """Return why every request of every run was rejected; None if one was not."""
        requests = [request for group in groups for run in group.runs for request in run.requests]
        if not requests or any(request.ending != "refused" for request in requests):
            return None
        shortest = min(request.prompt_tokens for request in requests)
        holds = engine(self.engine, **self.flags).load.capacity
        limit = self.calls.max_tokens
        asked = "" if limit is None else f" with --max-tokens {limit:,}"
        return (
            f"every request was rejected: the shortest prompt has {shortest:,} tokens{asked}, and the KV cache holds "
            f"{holds:,}; shorten --prompt, or give the engine a larger cache"
        )

    def _run(self, value: float | None, seed: int) -> RunResult:
        flags = dict(self.flags)
        changed: dict[str, float] = {}
        if self.sweep is not None and value is not None:
            name = self.sweep.name
            if name in _SWEPT_CALLS:
                changed[name] = value
            else:
                flags[name] = value if type_of_flag(self.engine, name) is float else round(value)
        return simulate(
            engine(self.engine, **flags),
            self.calls.workload(seed, changed),
            self.hardware,
            freeze_after_s=self.freeze_after_s,
            until_s=self.until_s,
        )


def type_of_flag(engine: str, name: str) -> type:
    """Return what kind of value a setting of an engine takes."""
    hint: type = get_type_hints(ENGINES[engine].settings)[name]
    return next((part for part in get_args(hint) if part is not type(None)), hint)


def typed(name: str) -> str:
    """Return a setting's name as it is typed on a command line."""
    return name.replace("_", "-")
