"""Today's setting, measured beside simulated: whether the model reproduces what the records show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Literal, TypeAlias

from midstream._support.statistics import nearest_rank
from midstream.advice.cap_search import SimulationConfig, Trial
from midstream.advice.load import levels
from midstream.lab.results import RunResult
from midstream.stream.model import StreamRecord

FigureName: TypeAlias = Literal["frozen", "preemptions", "p99_gap_s", "tokens_per_s", "ttft_s", "open_spread"]
TITLES: dict[FigureName, str] = {
    "frozen": "frozen %",
    "preemptions": "preemptions per 100 answers",
    "p99_gap_s": "p99 gap s",
    "tokens_per_s": "tokens/s",
    "ttft_s": "TTFT s, median",
}
"""The figures that are shown."""
_FROZEN_OFF, _TOKENS_OFF = 0.05, 0.10
"""How far the model may be off beyond the spread of its runs: 5 points of frozen answers, 10 % of the tokens/s."""
_WAITED = 3.0
"""A median time to the first token of more than so many times the longest simulated one is of another setting."""
LEAST_SEEDS = 12
"""Fewer runs show too little of how widely a load of this length varies."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a load came to; None is unknown. `open_spread` is the variation of the number of open streams."""

    frozen: float
    preemptions: float | None
    p99_gap_s: float
    tokens_per_s: float
    ttft_s: float | None
    open_spread: float


@dataclass(frozen=True, slots=True)
class Today:
    """The measured figures, and those of each simulated run; `requests` were in each."""

    measured: Figures
    runs: tuple[Figures, ...]
    requests: int
    paced: bool
    """Whether the pace was in the records: if not, seconds are not compared."""

    def each(self, name: FigureName) -> list[float]:
        """Return a figure of all runs, in rising order."""
        return sorted(value for run in self.runs if (value := getattr(run, name)) is not None)

    @property
    def disagrees(self) -> str | None:
        """Return why no promise can be made: what the model does not reproduce, in a sentence. None if it does."""
        frozen, tokens = self.each("frozen"), self.each("tokens_per_s")
        measured = self.measured
        if measured.frozen > frozen[-1] + _FROZEN_OFF:
            return (
                "More answers froze than the model explains: others may use the server, too, the engine may have "
                "paused for other reasons than its KV cache, or the setting was another one (--cap-now)."
            )
        if measured.frozen < frozen[0] - _FROZEN_OFF:
            return (
                "Fewer answers froze than the model expects: a cap may be in force already (--cap-now), the pool may "
                "be larger than stated, or prompts share prefixes."
            )
        if not self.paced:
            return None
        first = self.each("ttft_s")
        if measured.ttft_s is not None and first and measured.ttft_s > max(1.0, _WAITED * first[-1]):
            return (
                "Requests waited longer for their first token than the model explains: a cap was in force for some of "
                "the time or all of it (--cap-now, --since), or others use the server, too."
            )
        if measured.tokens_per_s > tokens[-1] * (1 + _TOKENS_OFF):
            return "The server wrote faster than the model: it may hold more than the stated pool, or share prefixes."
        if measured.tokens_per_s < tokens[0] * (1 - _TOKENS_OFF):
            return (
                "The server wrote more slowly than the model: the pace may have changed during the recording, others "
                "may use the server, too, or a cap is in force already (--cap-now)."
            )
        return None


def figures_of_records(records: Sequence[StreamRecord], freeze_after_s: float) -> Figures:
    """Return what was measured. Preemptions are not in records."""
    gaps = sorted(record.max_gap_s or 0.0 for record in records)
    firsts = [record.time_to_first_content_s for record in records]
    begun = [record for record in records if record.time_to_first_content_s is not None]
    return Figures(
        frozen=mean(bool(record.freezes or (record.max_gap_s or 0.0) >= freeze_after_s) for record in begun)
        if begun
        else 0.0,
        preemptions=None,
        p99_gap_s=nearest_rank(gaps, 0.99),
        ttft_s=median([first for first in firsts if first is not None]) if begun else None,
        **_over_time(
            [(record.started_at, record.duration_s) for record in records],
            sum(record.output_tokens or record.content_chunks for record in records),
        ),
    )


def figures_of_run(run: RunResult) -> Figures:
    """Return what a simulated run came to."""
    served = run.served
    return Figures(
        frozen=run.frozen_share,
        preemptions=100 * run.preemptions / len(served) if served else 0.0,
        p99_gap_s=nearest_rank(sorted(each.longest_gap_s or 0.0 for each in served), 0.99) if served else 0.0,
        ttft_s=None if run.ttft_s is None else run.ttft_s.median,
        **_over_time(
            [(each.asked_s, each.ended_s - each.asked_s) for each in run.requests],
            sum(each.answer_tokens for each in run.requests),
        ),
    )


def _over_time(spans: Iterable[tuple[float, float]], tokens: int) -> dict[str, float]:
    """Return tokens a second while any stream was open, and how much the number of open streams varied."""
    held = list(levels((at, seconds, 1.0) for at, seconds in spans))
    busy = sum(seconds for seconds, _ in held)
    if not busy:
        return {"tokens_per_s": 0.0, "open_spread": 0.0}
    middle = sum(seconds * level for seconds, level in held) / busy
    variance = sum(seconds * (level - middle) ** 2 for seconds, level in held) / busy
    return {"tokens_per_s": tokens / busy, "open_spread": math.sqrt(variance) / middle}


def today_of(config: SimulationConfig, records: Sequence[StreamRecord], trial: Trial) -> Today:
    """Return the comparison from the runs of today's setting."""
    return Today(
        figures_of_records(records, config.freeze_after_s),
        tuple(figures_of_run(run) for run in trial.runs),
        len(trial.runs[0].requests),
        config.calibration is None or config.calibration.known,
    )


def arrivals_that_fit(
    config: SimulationConfig, records: Sequence[StreamRecord], users: int, played: Callable[[], object]
) -> SimulationConfig:
    """Return the config with users in turn or with calls as they came, whichever reproduces the records better."""
    measured = figures_of_records(records, config.freeze_after_s)
    tried = []
    for each in (replace(config, users=users), replace(config, users=None)):
        runs = []
        for seed in list(config.seeds)[:3]:
            runs.append(figures_of_run(each.run(config.today, seed)))
            played()
        tried.append((mean(_apart(measured, run) for run in runs), each))
    return min(tried, key=lambda pair: pair[0])[1]


def _apart(measured: Figures, run: Figures) -> float:
    """Return how far a run is from what was measured: each part is 1 where it is clearly off."""
    rate = abs(math.log((run.tokens_per_s or 1e-9) / (measured.tokens_per_s or 1e-9))) / 0.2
    first = abs(math.log((run.ttft_s or 1e-3) / (measured.ttft_s or 1e-3))) / 2
    return (
        abs(run.frozen - measured.frozen) / 0.1
        + min(rate, 3.0)
        + min(first, 3.0)
        + abs(run.open_spread - measured.open_spread) / 0.2
    )
