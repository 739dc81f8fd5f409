"""How often `midstream advise concurrency` keeps its promise: `python -m benchmarks.promises [WORLDS]`.

Each world is an engine with flags, hardware, lengths and users or arrivals of its own, which the adviser does not
know. A load is simulated there, and its records are all that the adviser gets, with the pool and block size that a
server's page shows. Then the advised cap is set in that world, and a load of new requests follows. Counted: how often
what then happens lies in the promised intervals, and how often the cap meets the goal where any cap does.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields

from midstream.advice import CapGoal, LoadError, NotEnoughStreams, PoolError, advise_concurrency
from midstream.advice.pool import Pool
from midstream.advice.today import figures_of_run
from midstream.engines import VARIANTS
from midstream.lab.admission import engine
from midstream.lab.hardware import HardwareProfile
from midstream.lab.results import RunResult
from midstream.lab.simulator import simulate
from midstream.lab.workload import Workload, WorkloadCall, closed_loop, open_loop, poisson
from midstream.stream.model import Outcome, StreamRecord

WORLDS = 200
ENGINES = ("vllm", "sglang")
"""Those that preempt: where an engine does not, a cap ends no freeze, and none is advised."""
LATER = 5
"""Loads that follow, from which the long-run share is taken."""


@dataclass(frozen=True, slots=True)
class World:
    """What the adviser does not know, but for the pool and its blocks."""

    engine: str
    pool_tokens: int
    block_size: int
    hardware: HardwareProfile
    users: int
    in_turn: bool
    think_s: float
    rate: float
    mean_answer: int
    spread: float
    requests: int
    freeze_after_s: float
    goal: float

    def workload(self, seed: int) -> Workload:
        """Draw a load."""
        rng = random.Random(f"world {seed}")
        limit = self.pool_tokens // 3
        pairs = [
            (
                max(1, round(rng.lognormvariate(4.0, 0.5))),
                max(2, min(limit, round(self.mean_answer * rng.lognormvariate(0.0, self.spread)))),
            )
            for _ in range(self.requests)
        ]
        if not self.in_turn:
            return open_loop(poisson(seed, self.requests, self.rate), pairs, max_tokens=limit)
        turns = closed_loop(self.users, pairs, think_s=self.think_s, seed=seed, max_tokens=limit)
        first = [
            WorkloadCall(call.request, 0.02 * place) for place, call in enumerate(turns.calls[: self.users])
        ]
        return Workload((*first, *turns.calls[self.users :]), self.users)

    def run(self, cap: int | None, seed: int) -> RunResult:
        """Play a load under a cap."""
        knob = VARIANTS[self.engine].knobs
        flags = knob.flags(self.pool_tokens, self.requests, cap, block_size=self.block_size)
        return simulate(
            engine(self.engine, **flags),
            self.workload(seed),
            self.hardware,
            freeze_after_s=self.freeze_after_s,
        )


def world_of(number: int) -> World:
    """Draw a world in which memory may be short: users at once ask for 0.8 to 3 times what the pool holds."""
    rng = random.Random(f"a world {number}")
    step = 10 ** rng.uniform(-2.2, -1.1)
    users = rng.choice((6, 8, 10, 12, 16, 24))
    mean_answer = rng.choice((150, 250, 500))
    spread = rng.choice((0.0, 0.3, 0.6, 0.9))
    block = rng.choice((16, 16, 32, 64, 128))
    wanted = users * (mean_answer * 0.6 + 70)
    pool = max(8 * block, round(wanted / rng.uniform(0.8, 3.0) / block) * block)
    sequence = step * rng.uniform(0.0, 0.08)
    requests = rng.choice((100, 150, 200))
    # A server that writes `users` answers at once makes about so many calls a second.
    rate = rng.uniform(0.5, 0.9) * users / (mean_answer * (step + users * sequence))
    return World(
        engine=rng.choice(ENGINES),
        pool_tokens=pool,
        block_size=block,
        hardware=HardwareProfile(
            name="unknown",
            step_s=step,
            sequence_s=sequence,
            context_s=step * rng.uniform(0.0, 1e-4),
            prefill_token_s=step * rng.uniform(0.001, 0.05),
            latency_s=rng.uniform(0.0, 0.1),
            front_end_s=rng.uniform(0.0, 0.03),
        ),
        users=users,
        in_turn=rng.random() < 0.6,
        think_s=rng.choice((0.0, 0.0, 1.0)) * mean_answer * step * rng.uniform(0.1, 1.0),
        rate=rate,
        mean_answer=mean_answer,
        spread=spread,
        requests=requests,
        freeze_after_s=20 * step * rng.uniform(1.0, 3.0),
        goal=rng.choice((0.01, 0.02, 0.05)),
    )


def records_of(run: RunResult, freeze_after_s: float, limit: int) -> list[StreamRecord]:
    """Return what a journal would hold of a run."""
    unknown = dict.fromkeys(field.name for field in fields(StreamRecord))
    records = []
    for each in sorted(run.served, key=lambda request: request.asked_s):
        lasted = each.ended_s - each.asked_s
        known = {
            "started_at": 1.7e9 + each.asked_s,
            "operation": "chat",
            "provider": "openai",
            "server_address": "localhost",
            "request_model": "m",
            "attributes": {},
            "outcome": Outcome.COMPLETED,
            "finish_reasons": ("stop",),
            "duration_s": lasted,
            "waited_s": lasted,
            "held_s": 0.0,
            "time_to_first_content_s": each.ttft_s,
            "max_gap_s": each.longest_gap_s,
            "max_gap_at_s": None if each.longest_gap_at_s is None else each.longest_gap_at_s - each.asked_s,
            "max_gap_open": False,
            "freezes": each.freezes,
            "frozen_s": each.frozen_s,
            "hidden": 0,
            "shared": 0,
            "suspected": "unknown",
            "freeze_after_s": freeze_after_s,
            "freeze_spans": (),
            "chunks": each.answer_tokens + 2,
            "content_chunks": each.answer_tokens,
            "input_tokens": each.prompt_tokens,
            "output_tokens": each.answer_tokens,
            "usage_complete": True,
            "token_limit": limit,
            "limit_hit": False,
            "buffered": False,
        }
        records.append(StreamRecord(**{**unknown, **known}))  # type: ignore[arg-type]
    return records


@dataclass(frozen=True, slots=True)
class Kept:
    """What came of one world."""

    world: World
    why_not: str | None = None
    frozen_held: bool | None = None
    speed_held: bool | None = None
    met: bool | None = None
    possible: bool = False
    in_turn: bool = False
    """Whether the adviser took the calls for those of users in turn."""
    text: str = ""


def try_world(number: int) -> Kept:
    """Advise, follow the advice, and look."""
    world = world_of(number)
    records = records_of(world.run(None, 10_000 + number), world.freeze_after_s, world.pool_tokens // 3)
    longest = max((record.output_tokens or 0) for record in records)
    caps = [cap for cap in (1, 2, 3, 4) if cap < world.users] or [1]
    later = range(50_000 + LATER * number, 50_000 + LATER * (number + 1))

    def share(cap: int | None) -> float:
        runs = [world.run(cap, seed) for seed in later]
        return sum(sum(each.freezes > 0 for each in run.served) for run in runs) / sum(
            len(run.served) for run in runs
        )

    try:
        advice = advise_concurrency(
            records,
            Pool(world.pool_tokens, "page", (), world.block_size),
            engine=world.engine,
            goals=[CapGoal("freeze-share", world.goal)],
            freeze_after_s=world.freeze_after_s,
        )
    except (LoadError, NotEnoughStreams, PoolError) as error:
        return Kept(world, str(error))
    assert advice.today is not None
    if advice.today.disagrees is not None:
        return Kept(world, "disagrees: " + advice.today.disagrees[:60])
    if advice.promise is None:
        return Kept(world, "no cap meets the goal", possible=any(share(cap) <= world.goal for cap in caps))
    chosen = None if advice.found.chosen is None else advice.found.chosen.cap
    then = world.run(chosen, 90_000 + number)
    figures = figures_of_run(then)
    low, high = advice.promise.frozen
    speed = advice.promise.tokens_per_s
    true_share = share(chosen)
    return Kept(
        world,
        None,
        low <= figures.frozen <= high,
        speed is None or speed[0] <= then.throughput <= speed[1],
        true_share <= world.goal,
        true_share <= world.goal or any(share(cap) <= world.goal for cap in caps),
        advice.config.users is not None,
        f"cap {chosen} promised {low:.1%}-{high:.1%} then {figures.frozen:.1%}, long run {true_share:.1%} for "
        f"{world.goal:.0%}; {speed} then {then.throughput:.0f}; longest {longest}",
    )


def lines(found: list[Kept]) -> Iterator[str]:
    """Sum the worlds up."""
    promised = [each for each in found if each.why_not is None]
    possible = [each for each in found if each.possible]
    both = [each for each in promised if each.frozen_held and each.speed_held]

    def of(part: int, whole: int) -> str:
        return f"{part} of {whole} ({part / whole:.1%})" if whole else "none"

    yield f"worlds                                  {len(found)}"
    yield f"with a promise                          {of(len(promised), len(found))}"
    yield f"frozen share within its interval        {of(sum(bool(e.frozen_held) for e in promised), len(promised))}"
    yield f"tokens/s within their interval          {of(sum(bool(e.speed_held) for e in promised), len(promised))}"
    yield f"both                                    {of(len(both), len(promised))}"
    yield f"goal met, of worlds where a cap meets it {of(sum(bool(e.met) for e in possible), len(possible))}"
    right = sum(e.in_turn == e.world.in_turn for e in promised)
    yield f"users in turn or not recognised         {of(right, len(promised))}"
    reasons: dict[str, int] = {}
    for each in found:
        if each.why_not is not None:
            reasons[each.why_not] = reasons.get(each.why_not, 0) + 1
    for why, count in sorted(reasons.items(), key=lambda item: -item[1]):
        yield f"no promise: {count:3} {why}"


def main(arguments: list[str] | None = None) -> None:
    """Try the worlds on two processes."""
    given = sys.argv[1:] if arguments is None else arguments
    worlds = int(given[0]) if given else WORLDS
    began = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(try_world, range(worlds), chunksize=4))
    for line in lines(found):
        print(line)
    if "--each" in given:
        for number, each in enumerate(found):
            print(
                number, each.why_not or each.text, each.frozen_held, each.speed_held, each.met, each.possible
            )
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
