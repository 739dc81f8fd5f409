"""How `midstream compare` shows what it found: a table of the four questions, the notes, and the verdict."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from midstream._support.numbers import ABSENT, moment, number, per_cent, percent, points, seconds
from midstream.advice.compare import CompareGoal, Comparison, Measure, Side
from midstream.advice.compare_words import verdict

WORDS = {
    "better": "better",
    "worse": "worse",
    "unclear": "cannot be told yet",
    "unknown": "not known",
}

KEPT = {"tokens per second": "held", "first content, p95": "bearable"}
"""What it is called where nothing had to get better."""


def show(console: Console, before: Side, after: Side, compared: Comparison, goal: CompareGoal) -> None:
    """Print everything for people."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in ("before", "after", "change, 95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=False)
    table.add_row("from", moment(before.since), moment(after.since))
    table.add_row("to", moment(before.until), moment(after.until))
    table.add_row("streams", *(f"{side.streams:,.0f}" for side in (before, after)))
    table.add_row("  a silence could be seen in", *(f"{side.judged:,.0f}" for side in (before, after)))
    table.add_row("  open at once", *(number(side.at_once, 1) for side in (before, after)))
    for measure in (compared.froze, compared.tail, compared.tokens, compared.first):
        table.add_row(*_cells(measure))
    console.print(table)
    console.print()
    for note in compared.notes:
        console.print(f"Note: {note}.", soft_wrap=not console.is_terminal)
    console.print(verdict(compared, goal), soft_wrap=not console.is_terminal)


def document(before: Side, after: Side, compared: Comparison, goal: CompareGoal) -> dict[str, object]:
    """Return everything for a script. Durations are seconds, times Unix seconds; what is not known is null."""
    return {
        "verdict": compared.verdict,
        "sentence": verdict(compared, goal),
        "more_streams": compared.more_streams,
        "design_effect": compared.design_effect,
        "goal": asdict(goal),
        "before": _side(before),
        "after": _side(after),
        "measures": {
            "freeze_share": _measure(compared.froze),
            "max_gap_p99_s": _measure(compared.tail),
            "tokens_per_s": _measure(compared.tokens),
            "first_content_p95_s": _measure(compared.first),
        },
        "notes": list(compared.notes),
    }


def _cells(measure: Measure) -> tuple[str, ...]:
    change = measure.change
    judged = KEPT.get(measure.name, "as before") if measure.judgement == "same" else WORDS[measure.judgement]
    said = f"{judged}: {measure.why}" if measure.why else judged
    if measure.name.startswith("streams"):
        moved = f"{points(change.low)} to {points(change.high)} points" if change else ABSENT
        return (measure.name, percent(measure.before), percent(measure.after), moved, said)
    if measure.name.startswith("tokens"):
        moved = f"{per_cent(change.low)} to {percent(change.high)}" if change else ABSENT
        return (measure.name, number(measure.before, 1), number(measure.after, 1), moved, said)
    moved = f"{change.low:+.2f} to {change.high:+.2f} s" if change else ABSENT
    return (measure.name, seconds(measure.before), seconds(measure.after), moved, said)


def _side(side: Side) -> dict[str, object]:
    return {
        "since": side.since,
        "until": side.until,
        "streams": side.streams,
        "judged": side.judged,
        "froze": side.froze,
        "open_at_once": side.at_once,
    }


def _measure(measure: Measure) -> dict[str, object]:
    change = measure.change
    return {
        "before": measure.before,
        "after": measure.after,
        "change": change.value if change else None,
        "low": change.low if change else None,
        "high": change.high if change else None,
        "judgement": measure.judgement,
        "why": measure.why or None,
    }
