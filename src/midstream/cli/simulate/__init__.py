"""`midstream simulate`: what an engine's admission rule does to streams, in virtual time."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from midstream.cli.advise.options import check_plot
from midstream.cli.common.engine_options import with_engine_flags
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
from midstream.cli.common.plots import ENDINGS, plot_sweep
from midstream.cli.common.simulation_show import Row, document, show_run, show_streams, show_sweep
from midstream.cli.simulate.runs import Calls, Job, shown
from midstream.lab.admission import ENGINES, engine_name
from midstream.lab.hardware import PROFILES
from midstream.lab.observed import ObservedLoad, read_load
from midstream.lab.recording import RecordingError
from midstream.lab.workload import burst


@with_engine_flags
def simulate(
    *,
    engine: EngineOption = "vllm",
    hardware: Annotated[
        str, typer.Option(metavar="NAME", help=f"What serves: {', '.join(PROFILES)}; says so in --json.")
    ] = "l4",
    fit: FitOption = None,
    users: Annotated[
        int | None,
        typer.Option(metavar="N", help="So many clients call in turn. Without any of these: 32.", min=1),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="PER_SECOND", help="Calls come at random, so many a second.")
    ] = None,
    burst_s: Annotated[
        float | None,
        typer.Option("--burst", metavar="SECONDS", help="Calls come so far apart; 0 is all at once."),
    ] = None,
    arrivals: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Calls come at these times, in seconds, one a line.")
    ] = None,
    workload_from: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The calls of a recorded load, lengths included.")
    ] = None,
    jitter: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Each recorded call comes up to so much later, at random; see --seeds.",
            min=0,
        ),
    ] = 0.0,
    think: Annotated[
        float, typer.Option(metavar="SECONDS", help="Users pause so long between calls, on average.", min=0)
    ] = 0.0,
    requests: Annotated[int, typer.Option(metavar="N", help="How many calls are made.", min=1)] = 300,
    prompt: Annotated[str, typer.Option(metavar="LENGTH", help="Tokens of prompts.")] = "200",
    answer: Annotated[
        str, typer.Option(metavar="LENGTH", help="Tokens of answers.")
    ] = "lognormal:mean=1000,p95=3000,most=16384",
    lengths: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw prompts with their answers from a CSV file: prompt,answer."),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="The limit that clients send.", min=1)
    ] = None,
    patience: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Clients hang up after so long.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Same seed, same run, to the event.")] = 0,
    seeds: Annotated[
        int, typer.Option(metavar="N", help="Run so many seeds, and show the spread.", min=1)
    ] = 1,
    until: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop then; what is under way is not counted.")
    ] = None,
    freeze_after: Annotated[
        float, typer.Option(metavar="SECONDS", help="Silence from which a stream counts as frozen.")
    ] = 5.0,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="NAME=FROM..TO[:STEP]", help="Run a setting's every value; or NAME=A,B,C."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the sweep into a .png or .svg file.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of tables.")
    ] = False,
    flags: Mapping[str, object],
) -> None:
    """See what an engine's admission rule does to streams, in virtual time and without a GPU.

    A LENGTH is a number; lognormal:mean=M,p95=P or lognormal:mu=M,sigma=S, with most=N to cut it; or a file
    with one length a line. Engines take their own flags, by their own names. Their KV caches default to those
    of an NVIDIA L4 with Qwen3-8B.

    \u0008
    See freezes, then cap what runs at once:
      midstream simulate --users 32
      midstream simulate --users 32 --max-num-active-seqs 12

    \u0008
    Find the cap, over nine seeds, with a picture:
      midstream simulate --sweep max-num-active-seqs=2..32:2 --seeds 9 --plot cap.png

    \u0008
    What a limit costs where memory is reserved for it:
      midstream simulate --engine trtllm --sweep max-tokens=2048,4096,8192

    \u0008
    Predict a recorded load under other flags, on hardware fitted to recordings (these are in the repository).
    With --jitter 0.015 --seeds 50 you see how much of it hangs on a few milliseconds more or less:
      cd tests/recordings/load
      midstream simulate --fit roomy.jsonl --fit cap4_active.jsonl --workload-from over8.jsonl --num-gpu-blocks 28 --block-size 128
    """  # noqa: E501 - lines to copy are whole
    given = [value is not None for value in (users, rate, burst_s, arrivals, workload_from)]
    if sum(given) > 1:
        raise typer.BadParameter(
            "only one of --users, --rate, --burst, --arrivals and --workload-from can be given."
        )
    if jitter and workload_from is None:
        raise typer.BadParameter("only the calls of --workload-from can be shifted.", param_hint="--jitter")
    times = [] if arrivals is None else read_times(arrivals)
    if burst_s is not None:
        times = burst(requests, stagger_s=_seconds(burst_s, "--burst", least=0.0))
    try:
        name = engine_name(engine)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None
    job = Job(
        engine=name,
        flags=flags,
        hardware=read_hardware(hardware, fit or []),
        calls=Calls(
            draw=length_pairs(parse_length(prompt, "--prompt"), parse_length(answer, "--answer"), lengths),
            requests=requests,
            users=users if any(given) else 32,
            rate=rate,
            think_s=think,
            times_s=tuple(times),
            load=None if workload_from is None else _load(workload_from),
            jitter_s=_seconds(jitter, "--jitter", least=0.0),
            max_tokens=max_tokens,
            patience_s=None if patience is None else _seconds(patience, "--patience"),
        ),
        sweep=None if sweep is None else parse_sweep(sweep),
        seeds=range(seed, seed + seeds),
        until_s=math.inf if until is None else _seconds(until, "--until"),
        freeze_after_s=_seconds(freeze_after, "--freeze-after"),
    )
    _check_plot(plot, job)
    try:
        job.check()
        rows = job.play()
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None
    title = f"{name} on {job.hardware.name}{''.join(f', {shown(n)} {v}' for n, v in flags.items())}"
    if plot is not None and job.sweep is not None:
        plot_sweep(plot, job.sweep.name, title, rows)
    if as_json:
        json.dump(_document(job, rows), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        _print(job, rows, title)


def _print(job: Job, rows: list[Row], title: str) -> None:
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)
    console.print(f"{title}: {ENGINES[job.engine].rule}\n", soft_wrap=True)
    if job.sweep is not None:
        show_sweep(console, job.sweep.name, rows)
        return
    show_run(console, rows[0])
    if job.calls.load is not None:
        console.print()
        show_streams(console, job.calls.load, rows[0].runs)


def _document(job: Job, rows: list[Row]) -> dict[str, object]:
    head = {"engine": job.engine, "flags": dict(job.flags), "hardware": asdict(job.hardware)}
    sweeping = {} if job.sweep is None else {"sweep": shown(job.sweep.name)}
    return {**head, **sweeping, "results": document(rows)}


def _check_plot(plot: Path | None, job: Job) -> None:
    if plot is not None and job.sweep is None:
        raise typer.BadParameter("there is nothing to plot without --sweep.", param_hint="--plot")
    check_plot(plot, ENDINGS)


def _load(file: Path) -> ObservedLoad:
    try:
        return read_load(file)
    except RecordingError as error:
        raise CliError(str(error)) from error


def _seconds(value: float, option: str, *, least: float = 1e-9) -> float:
    if not (math.isfinite(value) and value >= least):
        positive = "positive " if least else ""
        raise typer.BadParameter(f"{value:g} is not a {positive}number of seconds.", param_hint=option)
    return value
