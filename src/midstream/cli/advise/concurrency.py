"""`midstream advise concurrency`: how many answers may run at once."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from midstream.advice.cap_search import ENGINE_KNOBS, CapGoal, GoalName
from midstream.advice.cap_verdict import CapAdvice
from midstream.advice.concurrency import (
    REQUESTS,
    SEEDS,
    USUAL_ENGINE,
    NotEnoughStreams,
    advise_concurrency,
)
from midstream.advice.load import LoadError
from midstream.advice.pool import Pool, PoolError
from midstream.cli.advise.cap_plot import plot_search
from midstream.cli.advise.cap_show import document, show
from midstream.cli.advise.fleet import cap_fleet, refuse_with_prometheus
from midstream.cli.advise.options import (
    NOT_ENOUGH,
    JsonOption,
    ShownProgress,
    parse_seconds,
    parse_share,
    print_json,
)
from midstream.cli.advise.pool import PoolOptions
from midstream.cli.common.errors import CliError
from midstream.cli.common.journal_options import StreamOptions
from midstream.cli.common.lab_options import FitOption, read_hardware
from midstream.cli.common.option_groups import with_option_groups
from midstream.cli.common.plots import PlotOption, check_plot
from midstream.cli.common.prometheus_options import PrometheusOption, source_of
from midstream.cli.common.selection import some_records
from midstream.lab.hardware import PROFILES
from midstream.report.terminal import console
from midstream.sources.select import journal_path
from midstream.sources.server import ServerView
from midstream.stream.model import StreamRecord


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """The option group of the simulation: the engine, the goals, the load and the pace."""

    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"One of {', '.join(ENGINE_KNOBS)}. Without it: the server's, else {USUAL_ENGINE}.",
            show_default=False,
        ),
    ] = None
    goal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="freeze-share=1%, p99-gap=2s or throughput-given-up=10%; may be repeated.",
            show_default="freeze-share=1%",
        ),
    ] = None
    users: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=10_000,
            help="Clients that ask at once. Without it: as many as were seen.",
            show_default=False,
        ),
    ] = None
    as_they_came: Annotated[
        bool,
        typer.Option("--as-they-came", help="Requests come when they came, however slow the server."),
    ] = False
    hardware: Annotated[
        str,
        typer.Option(metavar="NAME", help=f"The pace where the streams show none: {', '.join(PROFILES)}."),
    ] = "l4"
    fit: FitOption = None
    cap_now: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="The cap that was in force. Without it: none.", show_default=False
        ),
    ] = None
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Advise even if the model does not reproduce what was measured."),
    ] = False
    requests: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=20,
            help=f"Requests in each run. Without it: as many as recorded, and {REQUESTS} at most.",
            show_default=False,
        ),
    ] = None
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Runs of each cap.")] = SEEDS
    freeze_after: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.001,
            help="Gap from which a stream counts as frozen. Without it: as recorded, or 5.",
            show_default=False,
        ),
    ] = None

    def checked_goals(self) -> list[CapGoal]:
        """Return the goals. Raises BadParameter for these options as far as they can be checked alone."""
        if self.engine is not None and self.engine not in ENGINE_KNOBS:
            raise typer.BadParameter(
                f"{self.engine} is not one of {', '.join(ENGINE_KNOBS)}; for an API that you do not run, "
                "see `midstream advise flags --engine hosted`.",
                param_hint="--engine",
            )
        if self.as_they_came and self.users is not None:
            raise typer.BadParameter("give --users or --as-they-came, not both.", param_hint="--users")
        return [_goal(text) for text in self.goal or ["freeze-share=1%"]]


@with_option_groups
def concurrency(
    *,
    streams: StreamOptions,
    simulation: SimulationOptions,
    plot: PlotOption = None,
    prometheus: PrometheusOption = None,
    size: PoolOptions,
    as_json: JsonOption = False,
) -> int:
    """Choose how many answers may run at once, so that hardly any freezes.

    From the size of the KV cache and the lengths in the journal: a cap that prevents preemption even if long answers
    run at the same time (never), the number of average requests that the cache holds (average), and between them the
    highest cap that meets your goal when the engine is simulated with the recorded lengths at the recorded pace. Exit
    status: 0 advice, 1 failed, 2 wrong usage, 3 not enough data, no cap meets the goal, or
    the simulation of today's setting does not reproduce what was measured (--anyway advises all the same).

    It takes 50 streams. `midstream demo --journal streams.db` makes a journal to try this on, and `midstream serve
    --port 8000` is a server.

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
    goals = simulation.checked_goals()
    check_plot(plot)
    view, pool = _view_and_pool(size, simulation.engine)
    if prometheus is not None:
        given = {"--journal": streams.journal, "--plot": plot}
        refuse_with_prometheus({**given, "--goal": simulation.goal, "--users": simulation.users})
        return cap_fleet(source_of(prometheus, size.header), streams, pool=pool, as_json=as_json)
    try:
        advice = _advised(some_records(streams), pool, view, simulation, goals)
    except NotEnoughStreams as error:
        sys.stderr.write(f"midstream: {error}\n")
        return NOT_ENOUGH
    if plot is not None:
        plot_search(plot, advice)
    if as_json:
        print_json(document(advice))
    else:
        show(console(120), advice, journal_path(streams.journal), anyway=simulation.anyway)
    believed = simulation.anyway or advice.today is None or advice.today.disagrees is None
    return 0 if believed and advice.found.chosen is not None else NOT_ENOUGH


def _view_and_pool(size: PoolOptions, engine: str | None) -> tuple[ServerView | None, Pool]:
    view = size.view(engine)
    pool = size.pool_of(view)
    if pool is None:
        raise typer.BadParameter(
            "give the size of the KV cache: --pool, --server, --metrics, --log, or --model-config with --memory.",
            param_hint="--pool",
        )
    return view, pool


def _advised(
    records: list[StreamRecord],
    pool: Pool,
    view: ServerView | None,
    simulation: SimulationOptions,
    goals: list[CapGoal],
) -> CapAdvice:
    """Call `advise_concurrency` with the options, under a progress bar. Raises CliError and NotEnoughStreams."""
    profile = read_hardware(simulation.hardware, simulation.fit or [])
    try:
        with ShownProgress("Simulating") as on_run:
            return advise_concurrency(
                records,
                pool,
                engine=simulation.engine or (USUAL_ENGINE if view is None else view.engine),
                goals=goals,
                users=simulation.users,
                as_they_came=simulation.as_they_came,
                hardware=profile if simulation.fit else None,
                otherwise=profile,
                cap_now=simulation.cap_now,
                requests=simulation.requests,
                seeds=simulation.seeds,
                freeze_after_s=simulation.freeze_after,
                server=view,
                on_run=on_run,
            )
    except (LoadError, PoolError) as error:
        raise CliError(str(error)) from error


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
