"""How many answers may run at once: one way to the number, for every command and for Python.

With the size of the KV cache, the engine's own admission rule is simulated with the recorded lengths at the recorded
pace (`advise_concurrency`). Without it, the number is read off what happened to streams by how many were open with them
(`observed`). The two caps that the lengths alone give are `capacity.safe_concurrency`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from midstream._support.numbers import plural
from midstream.advice.calibration import Calibration, calibrate
from midstream.advice.cap_search import CapGoal, SimulationConfig, candidates, search
from midstream.advice.cap_verdict import CapAdvice, simulated_doubts
from midstream.advice.capacity import caps
from midstream.advice.doubts import doubts
from midstream.advice.load import RecordedLoad, load_of
from midstream.advice.pool import Pool, PoolError
from midstream.advice.promise import RUNS, promise_of
from midstream.advice.threshold import threshold_of
from midstream.advice.today import LEAST_SEEDS, arrivals_that_fit, today_of
from midstream.lab.hardware import PROFILES, HardwareProfile
from midstream.sources.server import ServerView
from midstream.stream.model import FREEZE_AFTER_S, StreamRecord

USUAL_ENGINE = "vllm"
GOAL = CapGoal("freeze-share", 0.01)
"""The goal where none is named: at most 1 % of the answers freeze."""
LEAST = 50
"""Fewer streams with known lengths show too little of how long ones meet."""
LEAST_POOL, MOST_POOL = 32, 10**10
"""Tokens of a KV cache: two blocks, which every engine needs, and more than a rack of GPUs holds."""
REQUESTS, SEEDS = 300, 5


class NotEnoughStreams(ValueError):  # noqa: N818 - what is wrong is what it is called
    """Too few streams for advice; the message is one sentence. `more` says how many are missing."""

    def __init__(self, known: int) -> None:
        self.more = LEAST - known
        super().__init__(
            f"{plural(known, 'stream')} with known lengths are too few to show how often long answers "
            f"run at the same time; {self.more} more {'is' if self.more == 1 else 'are'} needed"
        )


def advise_concurrency(
    records: Sequence[StreamRecord],
    pool: Pool | int,
    *,
    engine: str = USUAL_ENGINE,
    goals: Sequence[CapGoal] = (GOAL,),
    users: int | None = None,
    as_they_came: bool = False,
    hardware: HardwareProfile | None = None,
    otherwise: HardwareProfile = PROFILES["l4"],
    cap_now: int | None = None,
    requests: int | None = None,
    seeds: int = SEEDS,
    freeze_after_s: float | None = None,
    server: ServerView | None = None,
    on_run: Callable[[int, int], object] = lambda _done, _expected: None,
) -> CapAdvice:
    """Return how many answers may run at once on this server, and what that gives and costs.

    `records` are streams of this server, oldest first; `pool` is the size of its KV cache in tokens. The engine's
    admission rule is simulated with the lengths of the records, at their pace, under a dozen caps; the highest cap
    that meets every goal is advised, if all lower ones meet it as well. `users` ask in turn, by default as many as
    were open for 95 % of the time; with `as_they_came` requests come when they came instead. `hardware` are the costs
    of a step, by default those that the records show; `otherwise` those where they show none. `freeze_after_s` is
    the gap in seconds from which an answer counts as frozen, by default that of the records. `server` is what the
    server's metrics page shows. `cap_now` is the cap that was in force when the records were made. `on_run` gets the
    number of runs done, and of those expected, after each.

    Formulas: those of the two caps beside it are in `safe_concurrency`; the simulation is `midstream.lab`.

    Raises `LoadError` if no record has the lengths of its prompt and answer, `NotEnoughStreams` if fewer than 50 have,
    `PoolError` if the cache does not hold one of them, and ValueError for an engine that is not simulated.

    >>> advice = advise_concurrency(records, 3584, seeds=2)    # records = midstream.journal.read("streams.db").records
    >>> advice.cap
    5
    """
    size = Pool(pool, "as given") if isinstance(pool, int) else pool
    load = load_of(records)
    if len(load.requests) < LEAST:
        raise NotEnoughStreams(len(load.requests))
    check_size(size, load)
    limits = caps(size.tokens, load.mean_prompt, load.mean_answer, load.p95_answer)
    running = max(1, min(load.usual, limits.average if cap_now is None else min(cap_now, limits.average)))
    calibration = (
        Calibration(hardware, (), 0.0)
        if hardware is not None
        else calibrate(records, load, running, otherwise)
    )
    count = requests or max(LEAST, min(REQUESTS, len(load.requests)))
    config = SimulationConfig(
        engine=engine,
        pool_tokens=size.tokens,
        hardware=calibration.profile,
        load=load,
        users=None if as_they_came else users or max(2, load.usual),
        requests=count,
        seeds=range(seeds),
        freeze_after_s=freeze_after_s or threshold_of(records).value_s or FREEZE_AFTER_S,
        block_size=size.block_size,
        calibration=calibration,
        settings=_settings(engine, server),
        today=cap_now,
    )
    choosing = users is None and not as_they_came
    expected = (len(candidates(limits, config.most_at_once)) + 1) * seeds + 6 * choosing + LEAST_SEEDS + RUNS
    done = 0

    def played() -> None:
        nonlocal done
        done += 1
        on_run(done, max(done, expected))

    if choosing:
        config = arrivals_that_fit(config, records, max(2, load.usual), played)
    today = today_of(config, records, config.trial(cap_now, range(max(LEAST_SEEDS, seeds)), played))
    found = search(config, limits, goals, played=played)
    promise = None
    if found.chosen is not None:
        promise = promise_of(config.trial(found.chosen.cap, range(max(RUNS, seeds)), played), today)
    against = doubts(records, load=load, pool_tokens=size.tokens, view=server)
    against += simulated_doubts(found, {doubt.ground for doubt in against})
    return CapAdvice(
        _of_engine(size, engine, server), limits, config, found, tuple(against), today=today, promise=promise
    )


def _settings(engine: str, server: ServerView | None) -> Mapping[str, int | bool]:
    """Return the settings that the page shows, if it is the page of the engine that is simulated."""
    return server.settings if server is not None and server.engine == family_of(engine) else {}


def check_size(pool: Pool, load: RecordedLoad) -> None:
    """Raise PoolError for a pool in which nothing can run, or that no memory holds."""
    mean = load.mean_prompt + load.mean_answer
    if pool.tokens < max(LEAST_POOL, math.ceil(mean)):
        raise PoolError(
            f"a KV cache of {pool.tokens:,} tokens ({pool.source}) does not hold even one of these requests, "
            f"{mean:,.0f} tokens on average; check its size"
        )
    if pool.tokens > MOST_POOL:
        raise PoolError(
            f"no memory holds a KV cache of {pool.tokens:.3g} tokens ({pool.source}); check its size"
        )


def family_of(engine: str) -> str:
    """Return whose engine it is, as its metrics page names it: `tgi` for `tgi-2.4`."""
    return engine.partition("-")[0]


def _of_engine(pool: Pool, engine: str, server: ServerView | None) -> Pool:
    """Add a note to the pool where the server's metrics are those of another engine than the simulated one."""
    if server is None or server.engine == family_of(engine):
        return pool
    note = f"the server's metrics are those of {server.title}; {engine} is simulated, as asked for"
    return replace(pool, notes=(*pool.notes, note))
