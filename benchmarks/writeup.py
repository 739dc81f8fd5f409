"""The figures of the write-up on overcommitting servers, and what the simulator makes of the same questions.

    python -m benchmarks.writeup [--seeds N]

Prints published and simulated figures side by side, with the spread over the seeds. What the write-up does not state
(lengths, calls, hardware) is chosen below and stated; the admission rules are those of the engines' sources.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from midstream.lab.admission import engine
from midstream.lab.hardware import PROFILES
from midstream.lab.results import RunResult
from midstream.lab.simulator import simulate
from midstream.lab.workload import fixed, lognormal, open_loop, pairs, poisson

POOL = 45_000
"""KV cache in tokens, in both scenarios."""

LONG_PROMPT = 150
LONG_ANSWER = lognormal(math.log(1500), 1.2)
LONG_LIMIT = 16_384
LONG_RATE = 0.186
"""Calls a second: about four times what the server sustains."""
LONG_UNTIL_S = 900.0
"""A quarter of an hour of that overload."""
UPPER_CAP = 15

CHAT_PROMPT = 300
CHAT_ANSWER = lognormal(math.log(250), 1.09)
CHAT_RATE = 1.02
CHAT_UNTIL_S = 1800.0


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of the write-up, as it is published and as each seed gave it."""

    what: str
    published: str
    values: tuple[float, ...]
    text: Callable[[float], str]

    def cells(self) -> tuple[str, str, str, str]:
        """Return the line's cells: what, published, median, least to most."""
        shown = self.text(median(self.values))
        spread = f"{self.text(min(self.values))} to {self.text(max(self.values))}"
        return self.what, self.published, shown, spread


@dataclass(frozen=True, slots=True)
class Long:
    """The long-answer scenario, each entry one run a seed."""

    preempting: tuple[RunResult, ...]
    capped: tuple[RunResult, ...]
    watermark: tuple[RunResult, ...]
    reserving: tuple[RunResult, ...]


def long_answers(seeds: int) -> Long:
    """Play the long-answer scenario: vLLM as it is, with the upper cap, with a watermark, and reserving everything."""
    vllm = {"num_gpu_blocks": POOL // 16 + 1, "block_size": 16, "enable_prefix_caching": False}

    def play(name: str, **flags: object) -> tuple[RunResult, ...]:
        return tuple(_long(seed, name, **flags) for seed in range(seeds))

    return Long(
        preempting=play("vllm", **vllm),
        capped=play("vllm", **vllm, max_num_active_seqs=UPPER_CAP),
        watermark=play("vllm", **vllm, watermark=0.2),
        reserving=play("trtllm", max_tokens_in_kv_cache=POOL),
    )


def _long(seed: int, name: str, **flags: object) -> RunResult:
    count = round(LONG_RATE * LONG_UNTIL_S * 1.3)
    lengths = pairs(seed, count, fixed(LONG_PROMPT), LONG_ANSWER)
    calls = open_loop(poisson(seed, count, LONG_RATE), lengths, max_tokens=LONG_LIMIT)
    return simulate(engine(name, **flags), calls, PROFILES["l4"], until_s=LONG_UNTIL_S)


def chat(seeds: int, limit: int) -> tuple[RunResult, ...]:
    """Play the chat scenario under full reservation, with a limit."""
    count = round(CHAT_RATE * CHAT_UNTIL_S * 1.2)
    runs = []
    for seed in range(seeds):
        lengths = pairs(seed, count, fixed(CHAT_PROMPT), CHAT_ANSWER)
        calls = open_loop(poisson(seed, count, CHAT_RATE), lengths, max_tokens=limit)
        rule = engine("trtllm", max_tokens_in_kv_cache=POOL)
        runs.append(simulate(rule, calls, PROFILES["a100"], until_s=CHAT_UNTIL_S))
    return tuple(runs)


def lines(seeds: int) -> list[Line]:
    """Return every figure that the write-up states of its simulations."""
    long = long_answers(seeds)
    high, low = chat(seeds, 8192), chat(seeds, 4096)
    never, average = limits()
    return [
        Line("cap at which nothing is ever preempted", "4", (never,), _whole),
        Line("cap of the average", "15", (average,), _whole),
        Line(
            "throughput, preempting to reserving",
            "about 5 times",
            _ratios(long.preempting, long.reserving),
            _times,
        ),
        Line("prefill redone, preempting", "80 %", _each(long.preempting, _redone), _percent),
        Line("requests preempted, preempting", "26 %", _each(long.preempting, _preempted), _percent),
        Line("median freeze, preempting", "58 s", _each(long.preempting, _freeze), _seconds),
        Line("throughput under the upper cap", "-17 %", _changes(long.capped, long.preempting), _signed),
        Line("requests preempted under the upper cap", "7 %", _each(long.capped, _preempted), _percent),
        Line("median freeze under the upper cap", "17 s", _each(long.capped, _freeze), _seconds),
        Line("prefill redone, watermark 0.2", "53 %", _each(long.watermark, _redone), _percent),
        Line("median freeze, watermark 0.2", "247 s", _each(long.watermark, _freeze), _seconds),
        Line("chat, reserving 8,192", "351 tokens/s", _each(high, _throughput), _rate),
        Line("chat, reserving 4,096", "454 tokens/s", _each(low, _throughput), _rate),
        Line("chat, gained by the lower limit", "+29 %", _changes(low, high), _signed),
        Line("chat, answers cut by the lower limit", "about 0.5 %", _each(low, _truncated), _tenths),
    ]


def limits() -> tuple[float, float]:
    """Return the write-up's two caps: the pool over prompt and 95th percentile, and over prompt and mean."""
    answers = sorted(
        min(answer, LONG_LIMIT) for _, answer in pairs(0, 50_000, fixed(LONG_PROMPT), LONG_ANSWER)
    )
    mean, p95 = sum(answers) / len(answers), answers[len(answers) * 95 // 100]
    return POOL / (LONG_PROMPT + p95), POOL / (LONG_PROMPT + mean)


def _each(runs: Sequence[RunResult], figure: Callable[[RunResult], float]) -> tuple[float, ...]:
    return tuple(map(figure, runs))


def _ratios(runs: Sequence[RunResult], others: Sequence[RunResult]) -> tuple[float, ...]:
    return tuple(a.throughput / b.throughput for a, b in zip(runs, others, strict=True))


def _changes(runs: Sequence[RunResult], others: Sequence[RunResult]) -> tuple[float, ...]:
    return tuple(ratio - 1 for ratio in _ratios(runs, others))


def _throughput(run: RunResult) -> float:
    return run.throughput


def _redone(run: RunResult) -> float:
    return run.redone_share


def _preempted(run: RunResult) -> float:
    return run.preempted_share


def _truncated(run: RunResult) -> float:
    return run.truncated_share


def _freeze(run: RunResult) -> float:
    return 0.0 if run.freeze_s is None else run.freeze_s.median


def _whole(value: float) -> str:
    return f"{math.floor(value)}"


def _times(value: float) -> str:
    return f"{value:.1f} times"


def _percent(value: float) -> str:
    return f"{value * 100:.0f} %"


def _tenths(value: float) -> str:
    return f"{value * 100:.1f} %"


def _signed(value: float) -> str:
    return f"{value * 100:+.0f} %"


def _seconds(value: float) -> str:
    return f"{value:.0f} s"


def _rate(value: float) -> str:
    return f"{value:.0f} tokens/s"


def table(seeds: int) -> str:
    """Return the figures as a Markdown table."""
    rows = ["| figure | published | simulated, median | least to most |", "|---|---|---|---|"]
    return "\n".join([*rows, *(f"| {' | '.join(line.cells())} |" for line in lines(seeds))])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=9)
    seeds = parser.parse_args().seeds
    started = time.perf_counter()
    print(table(seeds))
    print(f"\n{seeds} seeds, {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
