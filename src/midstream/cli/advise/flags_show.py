"""What `midstream advise flags` prints: what to set, what to beware of, what speaks against it; or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from midstream.advice.client_side import async_program, threaded_program
from midstream.advice.doubts import Doubt
from midstream.advice.situation import FlagAdvice, Situation

_WHERE = {"server": "server", "config": "configuration", "client": "client", "request": "each request"}


def show(
    console: Console, advice: FlagAdvice, situation: Situation, why: str, against: Sequence[Doubt]
) -> None:
    """Print everything, the verdict last."""
    if situation.cap is not None:
        console.print(f"At most {situation.cap} at once: {why}.\n", soft_wrap=True)
    else:
        console.print(f"No cap: {why}.\n", soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for heading in ("where", "set", "why"):
        table.add_column(heading)
    for flag in advice.flags:
        table.add_row(_WHERE[flag.where], flag.text, flag.why)
    if advice.flags:
        console.print(table)
        console.print()
    for trap in advice.traps:
        console.print(f"Beware: {trap}.", soft_wrap=True)
    for doubt in against:
        console.print(f"But: {doubt.sentence}", soft_wrap=True)
    if situation.cap is not None and any(flag.where == "client" for flag in advice.flags):
        console.print("\nWith asyncio:\n", soft_wrap=True)
        console.print(async_program(situation.cap), soft_wrap=True)
        console.print("With threads:\n", soft_wrap=True)
        console.print(threaded_program(situation.cap), soft_wrap=True)
    console.print(_verdict(advice, situation, against), style="bold", soft_wrap=True)


def _verdict(advice: FlagAdvice, situation: Situation, against: Sequence[Doubt]) -> str:
    first = next((flag.text for flag in advice.flags), None)
    if first is None:
        return "There is nothing to set yet."
    if against:
        grounds = ", ".join(doubt.ground for doubt in against)
        return f"Before you set {first}, look at what speaks against it: {grounds}."
    return f"Set {first}, and see with `midstream compare` whether it helped."


def document(
    advice: FlagAdvice, situation: Situation, why: str, against: Sequence[Doubt]
) -> dict[str, object]:
    """Return everything for a script."""
    programs = situation.cap is not None and any(flag.where == "client" for flag in advice.flags)
    return {
        "engine": advice.engine,
        "situation": asdict(situation),
        "cap_because": why,
        "flags": [asdict(flag) for flag in advice.flags],
        "beware": list(advice.traps),
        "doubts": [doubt._asdict() for doubt in against],
        "programs": {
            "asyncio": async_program(situation.cap or 1),
            "threads": threaded_program(situation.cap or 1),
        }
        if programs
        else {},
        "verdict": _verdict(advice, situation, against),
    }
