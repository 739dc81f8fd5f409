"""`midstream advise concurrency`: how many answers may run at once."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from midstream.advice.cap_search import (
    ENGINE_KNOBS,
    CapGoal,
    GoalName,
    Search,
    SimulationConfig,
    candidates,
    search,
)
from midstream.advice.cap_verdict import CapAdvice, simulated_doubts
from midstream.advice.capacity import Caps, caps
from midstream.advice.doubts import doubts
from midstream.advice.load import LoadError, load_of
from midstream.advice.pool import Pool
from midstream.advice.threshold import threshold_of
from midstream.cli.advise.cap_plot import plot_search
from midstream.cli.advise.cap_show import document, show
from midstream.cli.advise.fleet import cap_fleet, refuse_with_prometheus
from midstream.cli.advise.options import NOT_ENOUGH, JsonOption, check_plot, parse_seconds, parse_share
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
    check_size,
    make_of,
)
from midstream.cli.common.errors import CliError
from midstream.cli.common.http_options import HeaderOption
from midstream.cli.common.journal_options import (
    JournalOption,
    SinceOption,
    UntilOption,
    WhereOption,
    chosen_records,
)
from midstream.cli.common.lab_options import FitOption, read_hardware
from midstream.cli.common.plots import ENDINGS
from midstream.cli.common.prometheus_options import PrometheusOption, source_of
from midstream.cli.common.selection import empty
from midstream.lab.hardware import PROFILES
from midstream.sources.select import journal_path
from midstream.sources.server import ServerView
from midstream.stream.model import FREEZE_AFTER_S

USUAL_ENGINE = "vllm"
FEW = 50
"""Fewer streams with known lengths say too little about how long ones meet."""


def concurrency(
    *,
    journal: JournalOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    where: WhereOption = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"One of {', '.join(ENGINE_KNOBS)}. Without it: the server's, else vllm.",
            show_default=False,
        ),
    ] = None,
    goal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="freeze-share=1%, p99-gap=2s or throughput-given-up=10%; may be repeated.",
            show_default="freeze-share=1%",
        ),
    ] = None,
    users: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=10_000,
            help="So many ask at once. Without it: as many as did.",
            show_default=False,
        ),
    ] = None,
    as_they_came: Annotated[
        bool, typer.Option("--as-they-came", help="Requests come when they came, however slow the server.")
    ] = False,
    hardware: Annotated[
        str, typer.Option(metavar="NAME", help=f"What serves: {', '.join(PROFILES)}.")
    ] = "l4",
    fit: FitOption = None,
    requests: Annotated[int, typer.Option(metavar="N", min=20, help="Requests in each run.")] = 300,
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Runs of each cap.")] = 5,
    freeze_after: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.001,
            help="Silence from which a stream counts as frozen. Without it: as the records tell, or 5.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the curve into a .png or .svg file.", show_default=False),
    ] = None,
    prometheus: PrometheusOption = None,
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
    """Choose how many answers may run at once, so that hardly any freezes.

    From the size of the KV cache and the lengths in the journal: a cap under which long answers hardly ever meet
    (never), one that the average fills (average), and the one that meets your goal in a simulation of the engine with
    the logged lengths. Exit status: 0 advice, 1 failed, 2 wrong usage, 3 not enough data, or no cap meets the goal.

    It takes 50 streams: `midstream demo --speed 10 --journal streams.db`, four times, makes as many to try this on,
    and `midstream serve --port 8000` is a server.

    \u0008
    The size of the KV cache from the server itself:
      midstream advise concurrency --journal streams.db --server localhost:8000

    \u0008
    From the log of its start, `vllm serve ... 2>&1 | tee vllm.log`, with another goal and a picture:
      midstream advise concurrency --journal streams.db --log vllm.log --goal p99-gap=2s --plot cap.png

    \u0008
    A fleet, from its metrics, without a simulation, which needs single lengths:
      midstream advise concurrency --prometheus localhost:9090 --pool 30240

    \u0008
    Before there is a server, from the config.json in the model's folder and the memory that is left:
      midstream advise concurrency --journal streams.db --model-config config.json --memory 4.2GiB --users 40
    """
    goals = [_goal(text) for text in goal or ["freeze-share=1%"]]
    check_plot(plot, ENDINGS)
    if engine is not None and engine not in ENGINE_KNOBS:
        raise typer.BadParameter(
            f"{engine} is not one of {', '.join(ENGINE_KNOBS)}; for an API that you do not run, "
            "see `midstream advise flags --engine hosted`.",
            param_hint="--engine",
        )
    if as_they_came and users is not None:
        raise typer.BadParameter("give --users or --as-they-came, not both.", param_hint="--users")
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
        None if engine is None else make_of(engine),
    )
    profile = read_hardware(hardware, fit or [])
    view = choice.view()
    size = choice.pool_of(view)
    if size is None:
        raise typer.BadParameter(
            "say how large the KV cache is: --pool, --server, --metrics, --log, or --model-config with --memory.",
            param_hint="--pool",
        )
    if prometheus is not None:
        refuse_with_prometheus({"--journal": journal, "--plot": plot, "--goal": goal, "--users": users})
        return cap_fleet(source_of(prometheus, header), since, until, where, pool=size, as_json=as_json)
    records = chosen_records(journal, since, until, where)
    if not records:
        raise CliError(empty(journal, filtered=bool(since or until or where)))
    try:
        load = load_of(records)
    except LoadError as error:
        raise CliError(str(error)) from error
    missing = FEW - len(load.requests)
    if missing > 0:
        sys.stderr.write(
            f"midstream: {len(load.requests)} streams with known lengths are too few to say how long ones meet; "
            f"{missing} more {'is' if missing == 1 else 'are'} needed\n"
        )
        return NOT_ENOUGH
    check_size(size, load)
    name = engine or (USUAL_ENGINE if view is None else view.engine)
    size = _with_contradiction(size, name, view)
    limits = caps(size.tokens, load.mean_prompt, load.mean_answer, load.p95_answer)
    asking = None if as_they_came else users or max(2, load.usual)
    after_s = freeze_after or threshold_of(records).value_s or FREEZE_AFTER_S
    scene = SimulationConfig(name, size.tokens, profile, load, asking, requests, range(seeds), after_s)
    found = _searched(scene, limits, goals)
    against = doubts(records, load=load, pool_tokens=size.tokens, view=view)
    against += simulated_doubts(found, {doubt.ground for doubt in against})
    advised = CapAdvice(size, limits, scene, found, tuple(against))
    if plot is not None:
        plot_search(plot, advised)
    if as_json:
        json.dump(document(advised), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        show(
            Console(highlight=False, markup=False, emoji=False, width=_width()),
            advised,
            journal_path(journal),
        )
    return 0 if found.chosen is not None else NOT_ENOUGH


def _with_contradiction(size: Pool, engine: str, view: ServerView | None) -> Pool:
    """Add a note to the pool where the server says that it is another engine than the one that is simulated."""
    if view is None or view.engine == make_of(engine):
        return size
    note = f"the server says that it is {view.title}; {engine} is simulated, as --engine asks for it"
    return replace(size, notes=(*size.notes, note))


def _searched(scene: SimulationConfig, limits: Caps, goals: Sequence[CapGoal]) -> Search:
    """Run the simulations, with a progress bar if somebody watches."""
    runs = (len(candidates(limits, scene.most_at_once)) + 1) * len(scene.seeds)
    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("Simulating", total=runs)
        return search(scene, limits, goals, played=lambda: progress.advance(task))


def _goal(text: str) -> CapGoal:
    name, _, value = text.partition("=")
    kinds: dict[str, GoalName] = {
        "freeze-share": "freeze-share",
        "p99-gap": "p99-gap",
        "throughput-given-up": "throughput-given-up",
    }
    kind = kinds.get(name.strip())
    if kind is None or not re.search(r"\d", value):
        raise typer.BadParameter(
            f"{text!r} is no goal; write freeze-share=1%, p99-gap=2s or throughput-given-up=10%.",
            param_hint="--goal",
        )
    return CapGoal(
        kind, parse_seconds(value, "--goal") if kind == "p99-gap" else parse_share(value, "--goal", zero=True)
    )


def _width() -> int | None:
    return None if sys.stdout.isatty() else 120
