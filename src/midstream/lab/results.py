"""What a simulated run came to: one result per request, and the figures that sum them up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeAlias

from midstream._support.statistics import nearest_rank

Ending: TypeAlias = Literal["stop", "length", "error", "left", "refused", "unfinished"]
"""How a request ended: as engines end them, or its client hung up, it was not taken, or time was up."""


@dataclass(frozen=True, slots=True)
class RequestResult:
    """One request, as its client would have seen it. Times are seconds from the start of the run.

    `first_token_s` and `longest_gap_s` are None where there was no token, or no gap. A freeze is a gap that
    reached the threshold of the run. `times_s` holds every token's arrival if the run was asked to keep them.
    """

    id: int
    asked_s: float
    admitted_s: float | None
    first_token_s: float | None
    ended_s: float
    ending: Ending
    prompt_tokens: int
    answer_tokens: int
    preemptions: int
    redone_tokens: int
    longest_gap_s: float | None
    longest_gap_at_s: float | None
    freezes: int
    frozen_s: float
    times_s: tuple[float, ...]

    @property
    def ttft_s(self) -> float | None:
        """From the client's call to the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.asked_s


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure's distribution over requests, or over runs with different seeds."""

    median: float
    p95: float
    max: float
    min: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """A whole run. `kv_written` and `kv_taken` are time averages of the share of memory that is in use.

    `steps` counts what the engine computed; `events` counts decisions of the simulator, which are fewer
    because it skips over steps in which nothing is decided.
    """

    requests: tuple[RequestResult, ...]
    duration_s: float
    prefill_tokens: int
    redone_tokens: int
    kv_used: float
    kv_reserved: float
    mean_running: float
    mean_inside: float
    steps: int
    events: int

    @property
    def served(self) -> list[RequestResult]:
        """The requests that ended by themselves or at a limit."""
        return [request for request in self.requests if request.ending in ("stop", "length")]

    @property
    def throughput(self) -> float:
        """Answer tokens a second, over the whole run."""
        tokens = sum(request.answer_tokens for request in self.requests)
        return tokens / self.duration_s if self.duration_s else 0.0

    @property
    def preemptions(self) -> int:
        """How often a request lost its memory in mid-answer."""
        return sum(request.preemptions for request in self.requests)

    @property
    def preempted_share(self) -> float:
        """The share of served requests that were preempted at least once."""
        return _share(request.preemptions > 0 for request in self.served)

    @property
    def frozen_share(self) -> float:
        """The share of served requests with at least one gap that reached the threshold."""
        return _share(request.freezes > 0 for request in self.served)

    @property
    def redone_share(self) -> float:
        """The share of all prefilled tokens that had been computed before."""
        return self.redone_tokens / self.prefill_tokens if self.prefill_tokens else 0.0

    @property
    def truncated_share(self) -> float:
        """The share of served requests whose answer was cut at a token limit."""
        return _share(request.ending == "length" for request in self.served)

    @property
    def failed_share(self) -> float:
        """The share of all requests that the engine refused or gave up."""
        return _share(request.ending in ("error", "refused") for request in self.requests)

    @property
    def freeze_s(self) -> Spread | None:
        """The longest gap of each preempted request; None if there was none."""
        gaps = [r.longest_gap_s for r in self.served if r.preemptions and r.longest_gap_s is not None]
        return spread(gaps)

    @property
    def ttft_s(self) -> Spread | None:
        """The time to the first token."""
        return spread([request.ttft_s for request in self.served if request.ttft_s is not None])


def spread(values: Sequence[float]) -> Spread | None:
    """Sum up values; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return Spread(median(ordered), nearest_rank(ordered, 0.95), ordered[-1], ordered[0])


def _share(answers: Iterable[bool]) -> float:
    listed = list(answers)
    return sum(listed) / len(listed) if listed else 0.0


def figures(run: RunResult) -> dict[str, float | None]:
    """Return the figures that sum up a run, by name; None where there is nothing to sum up."""
    freeze, ttft = run.freeze_s, run.ttft_s
    return {
        "throughput_tokens_per_s": run.throughput,
        "preempted_share": run.preempted_share,
        "preemptions": float(run.preemptions),
        "redone_prefill_share": run.redone_share,
        "freeze_median_s": None if freeze is None else freeze.median,
        "freeze_p95_s": None if freeze is None else freeze.p95,
        "freeze_max_s": None if freeze is None else freeze.max,
        "frozen_share": run.frozen_share,
        "ttft_median_s": None if ttft is None else ttft.median,
        "ttft_p95_s": None if ttft is None else ttft.p95,
        "kv_written_share": run.kv_used,
        "kv_taken_share": run.kv_reserved,
        "mean_running": run.mean_running,
        "truncated_share": run.truncated_share,
        "failed_share": run.failed_share,
        "duration_s": run.duration_s,
    }
