"""The options of `midstream simulate`, in groups, and what they mean for the simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from midstream.cli.common.errors import CliError
from midstream.cli.common.lab_options import (
    EngineOption,
    FitOption,
    length_pairs,
    parse_length,
    parse_sweep,
    read_hardware,
    read_times,
)
from midstream.lab.admission import engine_name
from midstream.lab.experiment import CallPattern, Experiment
from midstream.lab.hardware import PROFILES
from midstream.lab.observed import ObservedLoad, read_load
from midstream.lab.recording import RecordingError
from midstream.lab.workload import burst

DEFAULT_USERS = 32


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What is simulated."""

    engine: EngineOption = "vllm"
    hardware: Annotated[
        str,
        typer.Option(
            metavar="NAME", help=f"GPU and model: {', '.join(PROFILES)}. --json prints the figures it has."
        ),
    ] = "l4"
    fit: FitOption = None


@dataclass(frozen=True, slots=True)
class CallOptions:
    """When clients call."""

    users: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help=f"N users, each of whom calls again after an answer. [{DEFAULT_USERS}]",
            min=1,
            show_default=False,
        ),
    ] = None
    rate: Annotated[
        float | None, typer.Option(metavar="PER_SECOND", help="Or calls at random times, this many a second.")
    ] = None
    burst: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Or calls at this distance; 0 is all at once."),
    ] = None
    arrivals: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Or calls at these times, in seconds, one a line.")
    ] = None
    workload_from: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Or the calls of a recorded load, with their lengths.")
    ] = None
    jitter: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="--workload-from: delay each call at random, by up to this much; see --seeds.",
            min=0,
        ),
    ] = 0.0
    think: Annotated[
        float, typer.Option(metavar="SECONDS", help="--users: mean pause between two calls.", min=0)
    ] = 0.0
    requests: Annotated[int, typer.Option(metavar="N", help="Number of calls.", min=1)] = 300

    def sources(self) -> int:
        """Return how many of the five ways to give calls are given."""
        ways = (self.users, self.rate, self.burst, self.arrivals, self.workload_from)
        return sum(way is not None for way in ways)

    def check(self) -> None:
        """Raise BadParameter for options that exclude each other."""
        if self.sources() > 1:
            raise typer.BadParameter(
                "only one of --users, --rate, --burst, --arrivals and --workload-from can be given."
            )
        if self.jitter and self.workload_from is None:
            raise typer.BadParameter(
                "only the calls of --workload-from can be shifted.", param_hint="--jitter"
            )

    def times(self) -> tuple[float, ...]:
        """Return the times of calls that come at fixed times."""
        if self.burst is not None:
            return tuple(burst(self.requests, stagger_s=seconds(self.burst, "--burst", least=0.0)))
        return () if self.arrivals is None else tuple(read_times(self.arrivals))


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What clients ask for."""

    prompt: Annotated[str, typer.Option(metavar="LENGTH", help="Prompt length in tokens.")] = "200"
    answer: Annotated[str, typer.Option(metavar="LENGTH", help="Answer length in tokens.")] = (
        "lognormal:mean=1000,p95=3000,most=16384"
    )
    lengths: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw both lengths together from a CSV file: prompt,answer."),
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="The token limit of each request.", min=1)
    ] = None
    patience: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Clients cancel a request after this time.")
    ] = None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How often, and how long."""

    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives exactly the same run.")] = 0
    seeds: Annotated[int, typer.Option(metavar="N", help="Run with N seeds, and show the spread.", min=1)] = 1
    until: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Stop at this time; unfinished requests are not counted."),
    ] = None
    freeze_after: Annotated[
        float, typer.Option(metavar="SECONDS", help="A gap of at least this length is a freeze.")
    ] = 5.0
    sweep: Annotated[
        str | None,
        typer.Option(metavar="NAME=FROM..TO[:STEP]", help="Run every value of one setting; or NAME=A,B,C."),
    ] = None


def experiment_of(
    server: ServerOptions,
    calls: CallOptions,
    request: RequestOptions,
    run: RunOptions,
    flags: Mapping[str, object],
) -> Experiment:
    """Return the simulation that the options ask for. Raises BadParameter or CliError."""
    calls.check()
    times = calls.times()
    try:
        name = engine_name(server.engine)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None
    prompt, answer = parse_length(request.prompt, "--prompt"), parse_length(request.answer, "--answer")
    return Experiment(
        engine=name,
        flags=flags,
        hardware=read_hardware(server.hardware, server.fit or []),
        calls=CallPattern(
            draw=length_pairs(prompt, answer, request.lengths),
            requests=calls.requests,
            users=calls.users if calls.sources() else DEFAULT_USERS,
            rate=calls.rate,
            think_s=calls.think,
            times_s=times,
            load=None if calls.workload_from is None else _load(calls.workload_from),
            jitter_s=seconds(calls.jitter, "--jitter", least=0.0),
            max_tokens=request.max_tokens,
            patience_s=None if request.patience is None else seconds(request.patience, "--patience"),
        ),
        sweep=None if run.sweep is None else parse_sweep(run.sweep),
        seeds=range(run.seed, run.seed + run.seeds),
        until_s=math.inf if run.until is None else seconds(run.until, "--until"),
        freeze_after_s=seconds(run.freeze_after, "--freeze-after"),
    )


def seconds(value: float, option: str, *, least: float = 1e-9) -> float:
    """Return a number of seconds, checked. Raises BadParameter."""
    if not (math.isfinite(value) and value >= least):
        positive = "positive " if least else ""
        raise typer.BadParameter(f"{value:g} is not a {positive}number of seconds.", param_hint=option)
    return value


def _load(file: Path) -> ObservedLoad:
    try:
        return read_load(file)
    except RecordingError as error:
        raise CliError(str(error)) from error
