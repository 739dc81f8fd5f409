"""`midstream simulate`: what an engine's admission rule does to streams, in virtual time and without a GPU."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from midstream.cli._engine_flags import type_of_flag, with_engine_flags
from midstream.cli._errors import CliError
from midstream.cli._simulate_plan import (
    Sweep,
    length_pairs,
    parse_length,
    parse_sweep,
    read_hardware,
    read_times,
)
from midstream.cli._simulate_plot import ENDINGS, plot_sweep
from midstream.cli._simulate_show import Row, document, show_run, show_streams, show_sweep
from midstream.lab.admission import ENGINES, engine
from midstream.lab.hardware import PROFILES, HardwareProfile
from midstream.lab.observed import ObservedLoad, read_load
from midstream.lab.prediction import workload_of
from midstream.lab.recording import RecordingError
from midstream.lab.results import RunResult
from midstream.lab.simulator import simulate as play
from midstream.lab.workload import Pair, Workload, burst, closed_loop, open_loop, poisson

_CALLS = ("users", "rate", "max_tokens")
"""What can be swept besides the engine's own flags."""


@dataclass(frozen=True, slots=True)
class _Calls:
    """How clients call: one of `users`, `rate`, `times` and `load`."""

    draw: Callable[[int, int], list[Pair]]
    requests: int
    users: int | None
    rate: float | None
    think_s: float
    times: tuple[float, ...]
    load: ObservedLoad | None
    max_tokens: int | None
    patience_s: float | None

    def workload(self, seed: int, **changed: float) -> Workload:
        if self.load is not None:
            return workload_of(self.load)
        limit = changed.get("max_tokens", self.max_tokens)
        max_tokens = None if limit is None else round(limit)
        lengths = self.draw(seed, len(self.times) or self.requests)
        users, rate = changed.get("users", self.users), changed.get("rate", self.rate)
        if users is not None:
            return closed_loop(
                round(users),
                lengths,
                think_s=self.think_s,
                seed=seed,
                max_tokens=max_tokens,
                patience_s=self.patience_s,
            )
        times = self.times if rate is None else poisson(seed, self.requests, rate)
        return open_loop(times, lengths, max_tokens=max_tokens, patience_s=self.patience_s)


@with_engine_flags
def simulate(
    engine_name: Annotated[
        str, typer.Option("--engine", metavar="NAME", help=f"One of {', '.join(ENGINES)}.")
    ] = "vllm",
    hardware: Annotated[
        str, typer.Option(metavar="NAME", help=f"What serves: {', '.join(PROFILES)}; says so in --json.")
    ] = "l4",
    fit: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Fit the hardware to recorded loads instead; may be repeated.",
            show_default=False,
        ),
    ] = None,
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
    *,
    flags: Mapping[str, object],
) -> None:
    """See what an engine's admission rule does to streams, in virtual time and without a GPU.

    A LENGTH is a number; lognormal:mean=M,p95=P or lognormal:mu=M,sigma=S, with most=N to cut it; or a file with
    one length a line. Engines take their own flags, by their own names. Their KV caches default to those of an
    NVIDIA L4 with Qwen3-8B.

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
    Predict a recorded load under other flags, on hardware fitted to recordings:
      midstream simulate --fit roomy.jsonl --fit cap4_active.jsonl
                         --workload-from over8.jsonl --num-gpu-blocks 28 --block-size 128
    """
    swept = None if sweep is None else parse_sweep(sweep)
    _check(engine_name, flags, swept, plot)
    load = None if workload_from is None else _load(workload_from)
    given = [value is not None for value in (users, rate, burst_s, arrivals, workload_from)]
    if sum(given) > 1:
        raise typer.BadParameter(
            "--users, --rate, --burst, --arrivals and --workload-from exclude each other."
        )
    times = read_times(arrivals) if arrivals is not None else []
    calls = _Calls(
        draw=length_pairs(parse_length(prompt, "--prompt"), parse_length(answer, "--answer"), lengths),
        requests=requests,
        users=users if any(given) else 32,
        rate=rate,
        think_s=think,
        times=tuple(times if burst_s is None else burst(requests, stagger_s=_seconds(burst_s, "--burst", 0))),
        load=load,
        max_tokens=max_tokens,
        patience_s=None if patience is None else _seconds(patience, "--patience"),
    )
    profile = read_hardware(hardware, fit or [])
    ends_s = math.inf if until is None else _seconds(until, "--until")
    threshold_s = _seconds(freeze_after, "--freeze-after")
    rows = _rows(engine_name, flags, profile, calls, swept, range(seed, seed + seeds), ends_s, threshold_s)
    title = f"{engine_name} on {profile.name}{''.join(f', {_flag(n)} {v}' for n, v in flags.items())}"
    if plot is not None and swept is not None:
        plot_sweep(plot, swept.name, title, rows)
    if as_json:
        head = {"engine": engine_name, "flags": dict(flags), "hardware": asdict(profile)}
        sweeping = {} if swept is None else {"sweep": _flag(swept.name)}
        json.dump({**head, **sweeping, "results": document(rows)}, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)
    console.print(f"{title}: {ENGINES[engine_name].rule}\n", soft_wrap=True)
    if swept is not None:
        show_sweep(console, swept.name, rows)
    else:
        show_run(console, rows[0])
        if load is not None:
            console.print()
            show_streams(console, load, rows[0].runs[0])


def _rows(
    engine_name: str,
    flags: Mapping[str, object],
    profile: HardwareProfile,
    calls: _Calls,
    swept: Sweep | None,
    seeds: range,
    until_s: float,
    freeze_after_s: float,
) -> list[Row]:
    values: tuple[float | None, ...] = (None,) if swept is None else swept.values
    rows = []
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("Simulating", total=len(values) * len(seeds))
        for value in values:
            chosen, changed = dict(flags), {}
            if swept is not None and value is not None:
                if swept.name in _CALLS:
                    changed = {swept.name: value}
                else:
                    kind = type_of_flag(engine_name, swept.name)
                    chosen[swept.name] = value if kind is float else kind(round(value))
            runs: list[RunResult] = []
            for seed in seeds:
                try:
                    runs.append(
                        play(
                            engine(engine_name, **chosen),
                            calls.workload(seed, **changed),
                            profile,
                            freeze_after_s=freeze_after_s,
                            until_s=until_s,
                        )
                    )
                except ValueError as error:
                    raise typer.BadParameter(f"{error}.") from None
                progress.advance(task)
            rows.append(Row("" if value is None else f"{value:g}", value, tuple(runs)))
    return rows


def _check(engine_name: str, flags: Mapping[str, object], swept: Sweep | None, plot: Path | None) -> None:
    """Refuse what cannot be, before any work is done."""
    try:
        engine(engine_name, **flags)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None
    if swept is not None and swept.name not in (*_CALLS, *ENGINES[engine_name].flags):
        known = ", ".join(map(_flag, (*_CALLS, *ENGINES[engine_name].flags)))
        raise typer.BadParameter(
            f"{engine_name} has no {_flag(swept.name)}; it has {known}.", param_hint="--sweep"
        )
    if plot is not None and swept is None:
        raise typer.BadParameter("there is nothing to plot without --sweep.", param_hint="--plot")
    if plot is not None and plot.suffix not in ENDINGS:
        raise typer.BadParameter(f"{plot} must end in {' or '.join(ENDINGS)}.", param_hint="--plot")


def _load(file: Path) -> ObservedLoad:
    try:
        return read_load(file)
    except RecordingError as error:
        raise CliError(str(error)) from error


def _seconds(value: float, option: str, least: float = 1e-9) -> float:
    if not (math.isfinite(value) and value >= least):
        raise typer.BadParameter(
            f"{value:g} is not a {'positive ' if least else ''}number of seconds.", param_hint=option
        )
    return value


def _flag(name: str) -> str:
    return name.replace("_", "-")
