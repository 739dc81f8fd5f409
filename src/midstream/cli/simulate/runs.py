"""Plays every run that `midstream simulate` was asked for: each value of a sweep, with each seed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.progress import Progress

from midstream.cli.common.engine_options import type_of_flag
from midstream.cli.common.lab_options import Sweep
from midstream.cli.common.simulation_show import Row
from midstream.lab.admission import ENGINES, engine
from midstream.lab.hardware import HardwareProfile
from midstream.lab.observed import ObservedLoad
from midstream.lab.prediction import workload_of
from midstream.lab.results import RunResult
from midstream.lab.simulator import simulate
from midstream.lab.workload import Pair, Workload, closed_loop, delayed, open_loop, poisson

_SWEPT_CALLS = ("users", "rate", "max_tokens")
"""What can be swept besides the engine's own flags."""


@dataclass(frozen=True, slots=True)
class Calls:
    """How clients call: in turn (`users`), at random (`rate`), at given times, or as in a recorded load."""

    draw: Callable[[int, int], list[Pair]]
    requests: int
    users: int | None
    rate: float | None
    think_s: float
    times_s: tuple[float, ...]
    load: ObservedLoad | None
    jitter_s: float
    max_tokens: int | None
    patience_s: float | None

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
class Job:
    """Everything that decides what is simulated."""

    engine: str
    flags: Mapping[str, object]
    hardware: HardwareProfile
    calls: Calls
    sweep: Sweep | None
    seeds: range
    until_s: float
    freeze_after_s: float

    def check(self) -> None:
        """Raise ValueError for an engine, a flag or a sweep that cannot be."""
        engine(self.engine, **self.flags)
        if self.sweep is None:
            return
        known = (*_SWEPT_CALLS, *ENGINES[self.engine].flags)
        if self.sweep.name not in known:
            raise ValueError(
                f"{self.engine} has no {shown(self.sweep.name)}; it has {', '.join(map(shown, known))}"
            )
        if self.sweep.name in _SWEPT_CALLS and self.calls.load is not None:
            raise ValueError(f"{shown(self.sweep.name)} cannot be swept with the calls of a recorded load")

    def play(self) -> list[Row]:
        """Run it all, with a progress bar if somebody watches."""
        values: tuple[float | None, ...] = (None,) if self.sweep is None else self.sweep.values
        screen = Console(stderr=True)
        with Progress(console=screen, transient=True, disable=not sys.stderr.isatty()) as progress:
            task = progress.add_task("Simulating", total=len(values) * len(self.seeds))
            rows = []
            for value in values:
                runs = []
                for seed in self.seeds:
                    runs.append(self._run(value, seed))
                    progress.advance(task)
                rows.append(Row("" if value is None else f"{value:g}", value, tuple(runs)))
        return rows

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


def shown(name: str) -> str:
    """Return a setting's name as it is typed."""
    return name.replace("_", "-")
