"""How `midstream compare` shows what it found: a table of the four questions, the notes, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from midstream._support.numbers import ABSENT, moment, number, per_cent, percent, points, seconds, zone_name
from midstream.advice.comparison import FIRST_CONTENT, FROZE, TOKENS, CompareGoal, Comparison, Measure, Side
from midstream.advice.comparison_words import verdict
from midstream.report.terminal import fits, line

WORDS = {
    "better": "better",
    "worse": "worse",
    "unclear": "not clear yet",
    "unknown": "not known",
}

KEPT = {TOKENS: "held", FIRST_CONTENT: "bearable"}
"""What it is called where nothing had to get better."""


def show(console: Console, before: Side, after: Side, compared: Comparison, goal: CompareGoal) -> None:
    """Print everything for people: the table as wide as the terminal allows, with every verdict in it."""
    measures = (compared.froze, compared.tail, compared.tokens, compared.first)
    wide = _wide(before, after, measures)
    if fits(console, wide):
        console.print(wide)
    else:
        for name, side in (("before", before), ("after", after)):
            line(console, f"{name}: {moment(side.since)} to {moment(side.until)} ({zone_name(side.since)})")
        console.print(_narrow(before, after, measures))
        for measure in measures:
            for shown in _below(measure):
                line(console, shown)
    console.print()
    for note in compared.notes:
        line(console, f"Note: {note}.")
    line(console, verdict(compared, goal))


def _wide(before: Side, after: Side, measures: Sequence[Measure]) -> Table:
    table = _table("before", "after", "change, 95 %")
    table.add_row(f"from ({zone_name(after.since)})", moment(before.since), moment(after.since))
    table.add_row("to", moment(before.until), moment(after.until))
    table.add_row("streams", *(number(side.streams) for side in (before, after)))
    table.add_row("  a gap could be measured in", *(number(side.judged) for side in (before, after)))
    table.add_row("  open at once", *(number(side.at_once, 1) for side in (before, after)))
    for measure in measures:
        reason = f": {measure.why}" if measure.why else ""
        table.add_row(*_values(measure), _change(measure), f"{_judged(measure)}{reason}")
    return table


def _narrow(before: Side, after: Side, measures: Sequence[Measure]) -> Table:
    """Return the values and the verdicts, which fit into 60 characters; times and changes stand around the table."""
    table = _table("before", "after")
    table.add_row("streams", *(number(side.streams) for side in (before, after)))
    table.add_row("  with a gap", *(number(side.judged) for side in (before, after)))
    table.add_row("  open at once", *(number(side.at_once, 1) for side in (before, after)))
    for measure in measures:
        table.add_row(*_values(measure), _judged(measure))
    return table


def _below(measure: Measure) -> Iterator[str]:
    if measure.change is not None:
        yield f"{measure.name}: change {_change(measure)} (95 %)"
    if measure.why:
        yield f"{measure.name}: {_judged(measure)}, {measure.why}"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    return table


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


def _judged(measure: Measure) -> str:
    return KEPT.get(measure.name, "as before") if measure.judgement == "same" else WORDS[measure.judgement]


def _values(measure: Measure) -> tuple[str, str, str]:
    if measure.name == FROZE:
        return measure.name, percent(measure.before), percent(measure.after)
    if measure.name == TOKENS:
        return measure.name, number(measure.before, 1), number(measure.after, 1)
    return measure.name, seconds(measure.before), seconds(measure.after)


def _change(measure: Measure) -> str:
    change = measure.change
    if change is None:
        return ABSENT
    if measure.name == FROZE:
        return f"{points(change.low)} to {points(change.high)} points"
    if measure.name == TOKENS:
        return f"{per_cent(change.low)} to {percent(change.high)}"
    return f"{change.low:+.2f} to {change.high:+.2f} s"


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
