"""`midstream simulate`: how an engine's admission rule affects streams, in virtual time."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from midstream.cli.common.engine_options import with_engine_flags
from midstream.cli.common.option_groups import with_option_groups
from midstream.cli.common.plots import check_plot, plot_sweep
from midstream.cli.common.simulation_show import document, show_run, show_streams, show_sweep
from midstream.cli.simulate.options import (
    CallOptions,
    RequestOptions,
    RunOptions,
    ServerOptions,
    experiment_of,
)
from midstream.lab.admission import ENGINES
from midstream.lab.experiment import Experiment, RunGroup, typed


@with_engine_flags
@with_option_groups
def simulate(
    *,
    server: ServerOptions,
    calls: CallOptions,
    request: RequestOptions,
    run: RunOptions,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the sweep into a .png or .svg file.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of tables.")
    ] = False,
    flags: Mapping[str, object],
) -> None:
    """Simulate how an engine's admission rule affects streams, in virtual time and without a GPU.

    A LENGTH is a number of tokens; lognormal:mean=M,p95=P or lognormal:mu=M,sigma=S, with most=N as an upper limit;
    or a file with one length a line. Each engine takes its own flags. The default KV cache is that of an NVIDIA L4
    with Qwen3-8B.

    \u0008
    See freezes, then limit what runs at once:
      midstream simulate --users 32
      midstream simulate --users 32 --max-num-active-seqs 12

    \u0008
    Find that limit over nine seeds, with a plot:
      midstream simulate --sweep max-num-active-seqs=2..32:2 --seeds 9 --plot cap.png

    \u0008
    The cost of max_tokens on an engine that reserves memory for it:
      midstream simulate --engine trtllm --sweep max-tokens=2048,4096,8192

    \u0008
    Predict a recorded load with other flags, on hardware fitted to recordings (these are in the repository).
    --jitter 0.015 --seeds 50 shows how much depends on a few milliseconds:
      cd tests/recordings/load
      midstream simulate --fit roomy.jsonl --fit cap4_active.jsonl --workload-from over8.jsonl --num-gpu-blocks 28 --block-size 128
    """  # noqa: E501 - lines to copy are whole
    experiment = experiment_of(server, calls, request, run, flags)
    if plot is not None and experiment.sweep is None:
        raise typer.BadParameter("there is nothing to plot without --sweep.", param_hint="--plot")
    check_plot(plot)
    groups = _run(experiment)
    rejected = experiment.why_rejected(groups)
    if rejected is not None:
        sys.stderr.write(f"midstream: {rejected}\n")
    if plot is not None and experiment.sweep is not None:
        plot_sweep(plot, experiment.sweep.name, _title(experiment), groups)
    if as_json:
        json.dump(_document(experiment, groups), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        _print(experiment, groups)


def _run(experiment: Experiment) -> list[RunGroup]:
    """Run it with a progress bar on a terminal. Raises BadParameter for what is not possible."""
    try:
        experiment.check()
        with Progress(
            console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
        ) as progress:
            task = progress.add_task("Simulating", total=experiment.runs)
            return experiment.run(lambda: progress.advance(task))
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None


def _title(experiment: Experiment) -> str:
    flags = "".join(f", {typed(name)} {value}" for name, value in experiment.flags.items())
    return f"{experiment.engine} on {experiment.hardware.name}{flags}"


def _print(experiment: Experiment, groups: list[RunGroup]) -> None:
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)
    console.print(f"{_title(experiment)}: {ENGINES[experiment.engine].rule}\n", soft_wrap=True)
    if experiment.sweep is not None:
        show_sweep(console, experiment.sweep.name, groups)
        return
    show_run(console, groups[0])
    if experiment.calls.load is not None:
        console.print()
        show_streams(console, experiment.calls.load, groups[0].runs)


def _document(experiment: Experiment, groups: list[RunGroup]) -> dict[str, object]:
    head = {
        "engine": experiment.engine,
        "flags": dict(experiment.flags),
        "hardware": asdict(experiment.hardware),
    }
    sweeping = {} if experiment.sweep is None else {"sweep": typed(experiment.sweep.name)}
    return {**head, **sweeping, "results": document(groups)}
