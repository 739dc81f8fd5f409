"""What `midstream advise concurrency` prints: where the numbers come from, the curve, a verdict; or JSON."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from midstream.advice.cap_search import ENGINE_KNOBS, Search, Trial, TrialFigure
from midstream.advice.cap_verdict import CapAdvice, cap_verdict, goal_text
from midstream.advice.compare import CompareGoal
from midstream.advice.engines import flags_for
from midstream.advice.situation import Situation
from midstream.lab.admission import ENGINES

_BAR = 16


def show(console: Console, advice: CapAdvice, journal: Path) -> None:
    """Print everything; `journal` is where the streams came from, and those after the change will go."""
    _show_basis(console, advice)
    console.print()
    console.print(_curve(advice))
    scene = advice.scene
    how = (
        f"{scene.most_at_once} users in turn, {scene.requests} requests"
        if scene.users is not None
        else f"{len(scene.load.requests)} requests as they came"
    )
    console.print(
        f"Simulated: {scene.engine} on {scene.hardware.name}, {how}, {len(scene.seeds)} seeds"
        f"{' together (least-most)' if len(scene.seeds) > 1 else ''}. Times are those of this hardware, "
        "not of yours.\n",
        style="dim",
        soft_wrap=True,
    )
    for doubt in advice.doubts:
        console.print(f"But: {doubt.sentence}", soft_wrap=True)
    console.print(cap_verdict(advice), style="bold", soft_wrap=True)
    chosen = advice.found.chosen
    if chosen is not None and chosen.cap is not None:
        for flag in flags_for(scene.engine, Situation(cap=chosen.cap)).flags:
            if str(chosen.cap) in flag.text:
                console.print(f"  {flag.text}    {flag.why}", soft_wrap=True)
        console.print(f"Afterwards: {comparing(advice.found, chosen, journal)}", soft_wrap=True)


def comparing(found: Search, chosen: Trial, journal: Path) -> str:
    """Return the command that tells whether the cap did good, at no more than the price that the simulation names."""
    free = found.trials[-1].all("throughput")
    price = math.ceil(100 * max(0.0, 1 - chosen.all("throughput") / free)) if free else 0
    command = f"midstream compare --journal {shlex.quote(str(journal))} --at WHEN-YOU-SET-IT"
    if price <= 100 * CompareGoal().give_up:
        return command
    usual = f"{100 * CompareGoal().give_up:g} %"
    return (
        f"{command} --give-up {price}    (its price here; without it, {usual} of the throughput may be lost)"
    )


def _show_basis(console: Console, advice: CapAdvice) -> None:
    load, limits, pool = advice.scene.load, advice.limits, advice.pool
    console.print(f"KV cache: {pool.tokens:,} tokens ({pool.source})", soft_wrap=True)
    for note in pool.notes:
        console.print(f"  {note}", style="dim", soft_wrap=True)
    unknown = f"; {load.unknown:,} streams without lengths are left out" if load.unknown else ""
    console.print(
        f"Load: {len(load.requests):,} answers, prompts of {load.mean_prompt:,.0f} tokens and answers of "
        f"{load.mean_answer:,.0f} on average (95 % up to {load.p95_answer:,.0f}); {load.peak} streams at once at most, "
        f"{load.usual} or fewer for 95 % of the time{unknown}",
        soft_wrap=True,
    )
    console.print(
        f"Caps by the lengths alone: {limits.never} so that long answers hardly ever meet (never), "
        f"{limits.average} that the average fills (average)",
        soft_wrap=True,
    )


def _curve(advice: CapAdvice) -> Table:
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
            "█" * round(trial.all("throughput") / best * _BAR),
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
    return ", ".join([*marks, "<- advised"] if trial is advice.found.chosen else marks)


def document(advice: CapAdvice) -> dict[str, object]:
    """Return everything for a script."""
    scene, load, found = advice.scene, advice.scene.load, advice.found
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
            "engine": scene.engine,
            "rule": ENGINES[scene.engine].rule,
            "evicts": ENGINE_KNOBS[scene.engine].evicts,
            "hardware": asdict(scene.hardware),
            "users": scene.users,
            "requests": scene.requests if scene.users is not None else len(load.requests),
            "seeds": len(scene.seeds),
            "freeze_after_s": scene.freeze_after_s,
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
        "advised": None if chosen is None else {"cap": chosen.cap},
        "doubts": [doubt._asdict() for doubt in advice.doubts],
        "verdict": cap_verdict(advice),
    }
