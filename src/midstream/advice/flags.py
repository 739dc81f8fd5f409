"""Which flag sets a cap or a limit on an engine, and whether tuning admission is the right tool at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from midstream._support.numbers import percent
from midstream.advice.cap_search import ENGINE_KNOBS, CapGoal
from midstream.advice.cap_verdict import CapAdvice
from midstream.advice.concurrency import NotEnoughStreams, advise_concurrency
from midstream.advice.doubts import Doubt, doubts
from midstream.advice.engines import flags_for
from midstream.advice.load import LoadError, RecordedLoad, load_of
from midstream.advice.observed import ENOUGH, Level, levels_of, observed_cap
from midstream.advice.pool import Pool
from midstream.engines.flags import FlagAdvice, Situation, Version
from midstream.sources.server import ServerView
from midstream.stream.model import StreamRecord


@dataclass(frozen=True, slots=True)
class FlagsAdvice:
    """What to set on an engine, where the cap comes from, and what speaks against it."""

    flags: FlagAdvice
    situation: Situation
    cap_source: str
    """Where the cap comes from, or why there is none."""
    doubts: tuple[Doubt, ...]

    @property
    def verdict(self) -> str:
        """The advice in a sentence."""
        first = next((flag.text for flag in self.flags.flags), None)
        if first is None:
            return "There is nothing to set yet."
        if self.doubts:
            grounds = ", ".join(doubt.ground for doubt in self.doubts)
            return f"Before you set {first}, read the reasons against it: {grounds}."
        return f"Set {first}, and check with `midstream compare` whether it helped."


def advise_flags(
    engine: str,
    *,
    records: Sequence[StreamRecord] = (),
    pool: Pool | int | None = None,
    cap: int | None = None,
    max_tokens: int | None = None,
    version: Version | None = None,
    freeze_share: float = 0.01,
    preemptions_per_minute: float | None = None,
    server: ServerView | None = None,
    on_run: Callable[[int, int], object] = lambda _done, _expected: None,
) -> FlagsAdvice:
    """Return the flags of an engine for a cap and a limit, with their versions, and what to beware of.

    Without `cap`, the cap is that of `advise_concurrency` for `records` and a KV cache of `pool` tokens, with the goal
    that at most a share `freeze_share` of the answers freezes; without `pool`, it is the highest number of streams open
    at once up to which no larger share froze. `max_tokens` is the limit that requests are to ask for, in tokens.
    `version` is the engine's, such as (0, 31): without it the flags of all versions are returned.
    `preemptions_per_minute` is by default that of `server`, what the server's metrics page shows.

    Source of the flags: the engines' own code and manuals, see docs/engine-flags.md. Raises ValueError for an engine
    that is not known, and PoolError if the cache does not hold one request.

    >>> advice = advise_flags("vllm", cap=12, version=(0, 31))
    >>> [flag.text for flag in advice.flags.flags]
    ['--max-num-active-seqs 12']
    """
    size = Pool(pool, "as given") if isinstance(pool, int) else pool
    load = _load(records)
    if cap is None and size is not None and load is not None and engine in ENGINE_KNOBS:
        goals = (CapGoal("freeze-share", freeze_share),)
        found, source, against = _simulated(
            partial(
                advise_concurrency, records, size, engine=engine, goals=goals, server=server, on_run=on_run
            )
        )
    else:
        found, source = (cap, "as given") if cap is not None else _observed(records, freeze_share)
        tokens = None if size is None else size.tokens
        known = doubts(records, load=load, pool_tokens=tokens, view=server, cap=found) if records else []
        against = tuple(known)
    situation = Situation(
        cap=found,
        limit=max_tokens,
        longest_prompt=None if load is None else max(request.prompt for request in load.requests),
        pool_tokens=None if size is None else size.tokens,
        kv_usage=None if server is None else server.kv_usage.value,
        waiting=None if server is None else server.waiting.value,
        preemptions_per_minute=_per_minute(server)
        if preemptions_per_minute is None
        else preemptions_per_minute,
    )
    return FlagsAdvice(flags_for(engine, situation, version), situation, source, against)


def _load(records: Sequence[StreamRecord]) -> RecordedLoad | None:
    try:
        return load_of(records) if records else None
    except LoadError:
        return None


def _simulated(simulate: Callable[[], CapAdvice]) -> tuple[int | None, str, tuple[Doubt, ...]]:
    """Return the cap that the simulation finds, where it comes from, and what speaks against it."""
    try:
        advice = simulate()
    except NotEnoughStreams as error:
        return None, f"{error}, or give --cap", ()
    if advice.cap is None:
        return None, advice.verdict.rstrip("."), advice.doubts
    source = (
        f"as `midstream advise concurrency` finds it by simulation, between {advice.limits.never} (never) and "
        f"{advice.limits.average} (average)"
    )
    return advice.cap, source, advice.doubts


def _observed(records: Sequence[StreamRecord], most_frozen: float) -> tuple[int | None, str]:
    levels = levels_of(records)
    level = observed_cap(levels, most_frozen)
    if level is None:
        return None, _why_none(levels, most_frozen)
    never_more = ", and there were never more" if level is levels[-1] else ""
    return level.at_once, (
        f"as observed: of {level.streams:,} streams with at most so many at once {percent(level.frozen_share)} froze"
        f"{never_more}"
    )


def _why_none(levels: Sequence[Level], most_frozen: float) -> str:
    lowest = next((level for level in levels if level.streams >= ENOUGH), None)
    if lowest is None:
        return f"give --cap, or a journal of at least {ENOUGH} streams, best with the size of the KV cache"
    return (
        f"of {lowest.streams:,} streams with at most {lowest.at_once} at once {percent(lowest.frozen_share)} froze, "
        f"more than {percent(most_frozen)} already; give --cap, or the size of the KV cache"
    )


def _per_minute(server: ServerView | None) -> float | None:
    """Return the preemptions a minute since the server started; None if it does not show them."""
    if server is None or server.preemptions.value is None or server.started_at is None:
        return None
    minutes = (time.time() - server.started_at) / 60
    return server.preemptions.value / minutes if minutes > 0 else None
