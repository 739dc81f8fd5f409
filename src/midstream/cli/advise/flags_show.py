"""What `midstream advise flags` prints: what to set, what to beware of, what speaks against it; or JSON."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from midstream.advice.client_side import async_program, threaded_program
from midstream.advice.flags import FlagsAdvice
from midstream.engines.flags import FlagAdvice
from midstream.report.terminal import fits, line

_WHERE = {"server": "server", "config": "configuration", "client": "client", "request": "each request"}


def show(console: Console, advice: FlagsAdvice) -> None:
    """Print everything, the verdict last."""
    cap = advice.situation.cap
    at_most = "No cap" if cap is None else f"At most {cap} at once"
    line(console, f"{at_most}: {advice.cap_source}.\n")
    if advice.flags.flags:
        _show_flags(console, advice.flags)
        console.print()
    for trap in advice.flags.traps:
        line(console, f"Beware: {trap}.")
    for doubt in advice.doubts:
        line(console, f"But: {doubt.sentence}")
    if cap is not None and _in_client(advice):
        console.print("\nWith asyncio:\n", soft_wrap=True)
        console.print(async_program(cap), soft_wrap=True)
        console.print("With threads:\n", soft_wrap=True)
        console.print(threaded_program(cap), soft_wrap=True)
    console.print(advice.verdict, style="bold", soft_wrap=not console.is_terminal)


def _show_flags(console: Console, flags: FlagAdvice) -> None:
    """Print a table, or where that is too wide a line for each flag, which is never cut, with the reason below."""
    table = Table(box=None, pad_edge=False)
    table.add_column("where", no_wrap=True)
    table.add_column("set", no_wrap=True)
    table.add_column("why")
    for flag in flags.flags:
        table.add_row(_WHERE[flag.where], flag.text, flag.why)
    if fits(console, table):
        console.print(table)
        return
    for flag in flags.flags:
        console.print(f"{_WHERE[flag.where]}: {flag.text}", soft_wrap=True)
        line(console, f"  {flag.why}")


def _in_client(advice: FlagsAdvice) -> bool:
    return any(flag.where == "client" for flag in advice.flags.flags)


def document(advice: FlagsAdvice) -> dict[str, object]:
    """Return everything for a script."""
    cap = advice.situation.cap
    return {
        "engine": advice.flags.engine,
        "situation": asdict(advice.situation),
        "cap_because": advice.cap_source,
        "flags": [asdict(flag) for flag in advice.flags.flags],
        "beware": list(advice.flags.traps),
        "doubts": [doubt._asdict() for doubt in advice.doubts],
        "programs": {"asyncio": async_program(cap), "threads": threaded_program(cap)}
        if cap is not None and _in_client(advice)
        else {},
        "verdict": advice.verdict,
    }
