"""`midstream advise flags`: how a cap or a limit is said to an engine, and when that is the wrong tool."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from midstream._support.numbers import percent
from midstream.advice.capacity import caps
from midstream.advice.doubts import doubts
from midstream.advice.engines import FLAGS, flags_for
from midstream.advice.load import LoadError, RecordedLoad, load_of
from midstream.advice.observed import ENOUGH, Level, levels_of, observed_cap
from midstream.advice.situation import Situation, version_of
from midstream.cli.advise.flags_show import document, show
from midstream.cli.advise.options import NOT_ENOUGH, JsonOption, parse_share
from midstream.cli.advise.pool import (
    BlockOption,
    ConfigOption,
    KvDtypeOption,
    LogOption,
    MemoryOption,
    MetricsOption,
    ParallelOption,
    PoolChoice,
    PoolOption,
    ServerOption,
)
from midstream.cli.common.http_options import HeaderOption
from midstream.cli.common.journal_options import (
    JournalOption,
    SinceOption,
    UntilOption,
    WhereOption,
    chosen_records,
)
from midstream.sources.select import JOURNAL
from midstream.sources.server import ServerView
from midstream.stream.model import StreamRecord


def flags(
    *,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"One of {', '.join(FLAGS)}. Without it: the server's.",
            show_default=False,
        ),
    ] = None,
    engine_version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION", help="As in 0.31.0; without it, what differs is said.", show_default=False
        ),
    ] = None,
    cap: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="How many may run at once. Without it: from the journal.",
            show_default=False,
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="The limit that requests shall ask for.", show_default=False),
    ] = None,
    freeze_share: Annotated[
        str, typer.Option(metavar="SHARE", help="May freeze, where a cap is read off what happened.")
    ] = "1%",
    evictions_per_minute: Annotated[
        float | None,
        typer.Option(
            metavar="X", min=0, help="If you know it better than the server's average.", show_default=False
        ),
    ] = None,
    journal: JournalOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    where: WhereOption = None,
    pool: PoolOption = None,
    server: ServerOption = None,
    metrics: MetricsOption = None,
    log: LogOption = None,
    model_config: ConfigOption = None,
    memory: MemoryOption = None,
    kv_dtype: KvDtypeOption = "auto",
    tensor_parallel: ParallelOption = 1,
    block_size: BlockOption = 16,
    header: HeaderOption = None,
    as_json: JsonOption = False,
) -> int:
    """Say a cap or a limit to your engine: the flag, its value, its version, and what to beware of.

    Says, too, when tuning admission is the wrong tool, from the journal and the server's metrics: nothing froze, the
    memory never fills, nothing was evicted, the whole server stood still, nobody watches, or it is simply out of
    capacity. Exit status: 0 advice, 1 failed, 2 wrong usage, 3 not enough data for any value.

    \u0008
    A cap that you have already, for a version:
      midstream advise flags --engine vllm --engine-version 0.31 --cap 12

    \u0008
    From the journal and the server itself, here those of the demo and of `midstream serve --port 8000`:
      midstream demo --journal streams.db
      midstream advise flags --server localhost:8000 --journal streams.db

    \u0008
    For an API that you do not run, a cap in the client:
      midstream advise flags --engine hosted --journal streams.db
    """
    share = parse_share(freeze_share, "--freeze-share", zero=True)
    if engine is not None and engine not in FLAGS:
        raise typer.BadParameter(f"{engine} is not one of {', '.join(FLAGS)}.", param_hint="--engine")
    try:
        version = None if engine_version is None else version_of(engine_version)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--engine-version") from error
    choice = PoolChoice(
        pool,
        server,
        metrics,
        log,
        model_config,
        memory,
        kv_dtype,
        tensor_parallel,
        block_size,
        header,
        engine,
    )
    view = choice.view()
    name = engine or (None if view is None else view.engine)
    if name is None:
        raise typer.BadParameter(f"say which: {', '.join(FLAGS)}; or give --server.", param_hint="--engine")
    knows_pool = any(source is not None for source in (pool, log, model_config))
    knows_pool = knows_pool or (view is not None and view.pool_tokens.value is not None)
    size = choice.pool_of(view) if knows_pool else None
    tokens = None if size is None else size.tokens
    records = _records(journal, since, until, where)
    load = _load(records)
    found, why = _cap(cap, records, load, tokens, share)
    situation = Situation(
        cap=found,
        limit=max_tokens,
        longest_prompt=None if load is None else max(request.prompt for request in load.requests),
        pool_tokens=tokens,
        kv_usage=None if view is None else view.kv_usage.value,
        waiting=None if view is None else view.waiting.value,
        evictions_per_minute=evictions_per_minute if evictions_per_minute is not None else _per_minute(view),
    )
    advice = flags_for(name, situation, version)
    against = doubts(records, load=load, pool_tokens=tokens, view=view, cap=found) if records else []
    if as_json:
        json.dump(document(advice, situation, why, against), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        console = Console(
            highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 120
        )
        show(console, advice, situation, why, against)
    return 0 if advice.flags else NOT_ENOUGH


def _records(
    journal: Path | None, since: str | None, until: str | None, where: Sequence[str] | None
) -> list[StreamRecord]:
    """Return the journal's streams; none if no journal is named, as flags can be had without."""
    if journal is None and not os.environ.get(JOURNAL, "").strip():
        if since or until or where:
            raise typer.BadParameter(
                "there is no journal to choose from; give --journal.", param_hint="--journal"
            )
        return []
    return chosen_records(journal, since, until, where)


def _load(records: Sequence[StreamRecord]) -> RecordedLoad | None:
    try:
        return load_of(records) if records else None
    except LoadError:
        return None


def _cap(
    given: int | None,
    records: Sequence[StreamRecord],
    load: RecordedLoad | None,
    pool: int | None,
    share: float,
) -> tuple[int | None, str]:
    """Return the cap and how it comes about: as given, by the pool, or by what happened at each level."""
    if given is not None:
        return given, "as given"
    if pool is not None and load is not None:
        limits = caps(pool, load.mean_prompt, load.mean_answer, load.p95_answer)
        return limits.average, (
            f"what the KV cache holds of average requests ({limits.never} so that long answers hardly ever meet); "
            "`midstream advise concurrency` finds the one that meets a goal"
        )
    levels = levels_of(records)
    level = observed_cap(levels, share)
    if level is None:
        return None, _why_none(levels, share)
    never_more = ", and there were never more" if level is levels[-1] else ""
    return level.at_once, (
        f"as observed: of {level.streams:,} streams with at most so many at once {percent(level.frozen_share)} froze"
        f"{never_more}"
    )


def _why_none(levels: Sequence[Level], share: float) -> str:
    lowest = next((level for level in levels if level.streams >= ENOUGH), None)
    if lowest is None:
        return f"give --cap, or a journal of at least {ENOUGH} streams, best with the size of the KV cache"
    return (
        f"of {lowest.streams:,} streams with at most {lowest.at_once} at once "
        f"{percent(lowest.frozen_share)} froze, more "
        f"than {percent(share)} already; give --cap, or the size of the KV cache"
    )


def _per_minute(view: ServerView | None) -> float | None:
    """Return the evictions a minute since the server started; None if it does not tell."""
    if view is None or view.evictions.value is None or view.started_at is None:
        return None
    minutes = (time.time() - view.started_at) / 60
    return view.evictions.value / minutes if minutes > 0 else None
