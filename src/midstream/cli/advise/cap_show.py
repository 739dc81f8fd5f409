"""What `midstream advise concurrency` prints: where the numbers come from, the curve, a verdict; or JSON."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from midstream._support.numbers import per_cent, percent
from midstream.advice.cap_search import ENGINE_KNOBS, Search, SimulationConfig, Trial, TrialFigure
from midstream.advice.cap_verdict import CapAdvice, arrivals_text, cap_verdict, goal_text
from midstream.advice.comparison import CompareGoal
from midstream.advice.engines import flags_for
from midstream.cli.advise.today_show import today_document, today_table
from midstream.engines.flags import Situation
from midstream.lab.admission import ENGINES
from midstream.report.terminal import bar, fits

_BAR = 16
ADVISED = "<- advised"


def show(console: Console, advice: CapAdvice, journal: Path, *, anyway: bool = False) -> None:
    """Print everything; `journal` is where the streams came from, and those after the change will go."""
    _show_basis(console, advice)
    console.print()
    disagrees = None
    if advice.today is not None:
        console.print(today_table(advice.today))
        console.print()
        disagrees = advice.today.disagrees
    wide = _curve(console, advice)
    console.print(wide if fits(console, wide) else _narrow_curve(advice))
    config = advice.config
    console.print(
        f"Simulated: {config.engine} on {config.hardware.name}{_error(config)}, {arrivals_text(config)}, "
        f"{len(config.seeds)} seeds{' together (least-most)' if len(config.seeds) > 1 else ''}.\n",
        style="dim",
        soft_wrap=not console.is_terminal,
    )
    for doubt in advice.doubts:
        console.print(f"But: {doubt.sentence}", soft_wrap=not console.is_terminal)
    if disagrees is not None:
        console.print(f"No promise: {disagrees}", soft_wrap=not console.is_terminal)
        if not anyway:
            console.print("No cap is advised from this model; --anyway advises one.", style="bold")
            return
    console.print(cap_verdict(advice), style="bold", soft_wrap=not console.is_terminal)
    if advice.promise is not None:
        console.print(advice.promise.sentence(), soft_wrap=not console.is_terminal)
    if advice.cap is not None and advice.found.chosen is not None:
        for flag in flags_for(config.engine, Situation(cap=advice.cap)).flags:
            if str(advice.cap) in flag.text:
                console.print(f"  {flag.text}    {flag.why}", soft_wrap=True)
        console.print(f"Afterwards: {comparing(advice.found, advice.found.chosen, journal)}", soft_wrap=True)


def _error(config: SimulationConfig) -> str:
    """Write how exact the pace is, or that it is assumed: then no second in the table is a measured one."""
    known = config.calibration
    if known is None or known.error == 0:
        return ""
    return (
        f" (to within {percent(known.error)})"
        if known.error is not None
        else " (assumed: read no seconds from it)"
    )


def comparing(found: Search, chosen: Trial, journal: Path) -> str:
    """Return the command that checks whether the cap helped, at no more than the price that the simulation names."""
    command = f"midstream compare --journal {shlex.quote(str(journal))} --at WHEN-YOU-SET-IT"
    free, usual, prices = found.trials[-1], CompareGoal(), []
    lost = 1 - chosen.all("throughput") / free.all("throughput") if free.all("throughput") else 0.0
    if lost > usual.give_up:
        command += f" --give-up {math.ceil(100 * lost)}"
        prices.append(f"{percent(usual.give_up)} of the throughput may be lost")
    wait = chosen.all("first-token")
    if wait > usual.bearable_s and wait > free.all("first-token"):
        command += f" --bearable {math.ceil(1.2 * wait)}"
        prices.append(f"the first content may take {usual.bearable_s:g} s")
    return f"{command}    (its price here; without it, {' and '.join(prices)})" if prices else command


def _show_basis(console: Console, advice: CapAdvice) -> None:
    load, limits, pool = advice.config.load, advice.limits, advice.pool
    whole = not console.is_terminal
    console.print(f"KV cache: {pool.tokens:,} tokens ({pool.source})", soft_wrap=whole)
    for note in pool.notes:
        console.print(f"  {note}", style="dim", soft_wrap=whole)
    unknown = f"; {load.unknown:,} streams without lengths are left out" if load.unknown else ""
    console.print(
        f"Load: {len(load.requests):,} answers, prompts of {load.mean_prompt:,.0f} tokens and answers of "
        f"{load.mean_answer:,.0f} on average (95 % up to {load.p95_answer:,.0f}); {load.peak} streams at once at most, "
        f"{load.usual} or fewer for 95 % of the time{unknown}",
        soft_wrap=whole,
    )
    console.print(
        f"Caps from the lengths alone: {limits.never} (never: no preemption even if long answers run at the same "
        f"time), {limits.average} (average: what the cache holds of average requests)",
        soft_wrap=whole,
    )


def _curve(console: Console, advice: CapAdvice) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("cap", justify="right", no_wrap=True)
    for heading in ("frozen %", "p99 gap s", "tokens/s", "first token s, p95"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("throughput", min_width=_BAR)
    table.add_column("")
    best = max(trial.all("throughput") for trial in advice.found.trials) or 1.0
    for trial in advice.found.trials:
        table.add_row(
            "none" if trial.cap is None else str(trial.cap),
            _spread(trial, "freeze-share", scale=100, digits=1),
            _spread(trial, "p99-gap", digits=1),
            _spread(trial, "throughput"),
            f"{trial.all('first-token'):.1f}",
            bar(console, trial.all("throughput") / best, _BAR),
            _mark(advice, trial),
        )
    return table


def _narrow_curve(advice: CapAdvice) -> Table:
    """Return the same without the spread over seeds and the bars, so that it fits into 60 characters."""
    table = Table(box=None, pad_edge=False)
    for heading in ("cap", "frozen\n%", "p99 gap\ns", "tokens\nper s", "TTFT\np95 s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for trial in advice.found.trials:
        table.add_row(
            "none" if trial.cap is None else str(trial.cap),
            per_cent(trial.all("freeze-share")),
            f"{trial.all('p99-gap'):.1f}",
            f"{trial.all('throughput'):.0f}",
            f"{trial.all('first-token'):.1f}",
            _mark(advice, trial),
        )
    return table


def _spread(trial: Trial, name: TrialFigure, *, scale: float = 1, digits: int = 0) -> str:
    ordered = sorted(scale * value for value in trial.each(name))
    wide = f" ({ordered[0]:.{digits}f}-{ordered[-1]:.{digits}f})" if len(ordered) > 1 else ""
    return f"{scale * trial.all(name):.{digits}f}{wide}"


def _mark(advice: CapAdvice, trial: Trial) -> str:
    marks = [
        name
        for name, cap in (("never", advice.limits.never), ("average", advice.limits.average))
        if cap == trial.cap
    ]
    return ", ".join([*marks, ADVISED] if trial is advice.found.chosen else marks)


def document(advice: CapAdvice) -> dict[str, object]:
    """Return everything for a script."""
    config, load, found = advice.config, advice.config.load, advice.found
    chosen = found.chosen
    return {
        "pool": asdict(advice.pool),
        "load": {
            "answers": len(load.requests),
            "without_lengths": load.unknown,
            "mean_prompt": load.mean_prompt,
            "mean_answer": load.mean_answer,
            "p95_answer": load.p95_answer,
            "peak_streams": load.peak,
            "usual_streams": load.usual,
            "most_tokens_in_flight": load.in_flight,
        },
        "caps": asdict(advice.limits),
        "simulation": {
            "engine": config.engine,
            "rule": ENGINES[config.engine].rule,
            "preempts": ENGINE_KNOBS[config.engine].preempts,
            "hardware": asdict(config.hardware),
            "users": config.users,
            "requests": config.requests if config.users is not None else config.most_at_once,
            "pace_error": None if config.calibration is None else config.calibration.error,
            "settings": dict(config.settings),
            "block_size": config.block_size,
            "seeds": len(config.seeds),
            "freeze_after_s": config.freeze_after_s,
        },
        "goals": [{"name": goal.name, "most": goal.most, "text": goal_text(goal)} for goal in found.goals],
        "curve": [
            {
                "cap": trial.cap,
                "freeze_share": trial.each("freeze-share"),
                "p99_gap_s": trial.each("p99-gap"),
                "throughput_tokens_per_s": trial.each("throughput"),
                "first_token_p95_s": trial.each("first-token"),
                "throughput_given_up": found.given_up(trial),
                "meets": all(found.meets(trial, goal) for goal in found.goals),
            }
            for trial in found.trials
        ],
        "today": None if advice.today is None else today_document(advice.today),
        "advised": None if chosen is None else {"cap": chosen.cap},
        "promise": None if advice.promise is None else asdict(advice.promise),
        "doubts": [doubt._asdict() for doubt in advice.doubts],
        "verdict": cap_verdict(advice),
    }
