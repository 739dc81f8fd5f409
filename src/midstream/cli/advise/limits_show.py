"""What `midstream advise max-tokens` prints: tables and a sentence for each model, and one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from midstream._support.numbers import percent
from midstream.advice.limit_words import limit_verdict
from midstream.advice.limits import LimitAdvice, MaxTokensAdvice, Tried
from midstream.advice.reserving import RESERVING
from midstream.advice.survival import Quantile

_READABLE = 100
"""The width from which the table of engines can be read."""
_CAUSES = {
    "limit": "cut at a limit",
    "left": "left by the reader",
    "failed": "failed",
    "filtered": "filtered",
    "unclear": "ended without a finish reason",
}
_LEFT_OUT = {
    "no usage": "without usage",
    "several choices": "with several choices",
    "no answer": "without an answer",
    "not generated": "read again, not generated",
}


def show(console: Console, advised: MaxTokensAdvice, engines: Sequence[str]) -> None:
    """Print every group, the one with most answers first, then what a limit means to each engine."""
    for advice in advised.groups:
        _show_group(console, advice)
        console.print()
    if advised.without_lengths:
        console.print(
            f"{advised.without_lengths:,} streams of other models or operations do not show their lengths.\n",
            style="dim",
        )
    _show_engines(console, advised.groups[0], engines)


def _show_group(console: Console, advice: LimitAdvice) -> None:
    name = ", ".join(part for part in (advice.model, advice.operation) if part) or "all together"
    console.print(f"{name}: {_counted(advice)}", soft_wrap=not console.is_terminal)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("")
    found = advice.limit
    if isinstance(found, Quantile):
        interval = f"{percent(found.confidence)} interval {found.low:,} to {found.high:,}"
        table.add_row(f"smallest limit that cuts {percent(found.cut)}", f"{found.limit:,}", interval)
        if advice.naive != found.limit:
            table.add_row("  with cut answers taken as they are", f"{advice.naive:,}", "too low")
        table.add_row(
            "  of the answers seen it cuts", f"{advice.would_cut:,}", f"of {advice.curve.answers:,}"
        )
    unused = advice.reserved.unused_share
    if unused is not None:
        of = f"of {advice.reserved.asked:,} tokens asked for, {advice.reserved.used:,} used"
        table.add_row("asked for and not used today", percent(unused), of)
    if advice.reserved.without:
        table.add_row(
            "requests without a limit", f"{advice.reserved.without:,}", f"of {advice.curve.answers:,}"
        )
    console.print(table)
    if advice.tried:
        console.print(_tried(advice))
    for warning in _warnings(advice):
        console.print(warning, soft_wrap=not console.is_terminal)
    console.print(limit_verdict(advice), style="bold", soft_wrap=not console.is_terminal)


def _counted(advice: LimitAdvice) -> str:
    causes = "".join(f", {count:,} {_CAUSES[cause]}" for cause, count in advice.lengths.causes.most_common())
    left = ", ".join(f"{count:,} {_LEFT_OUT[why]}" for why, count in advice.lengths.left_out.items())
    return (
        f"{advice.curve.answers:,} answers, {len(advice.curve.exact):,} ended by themselves{causes}"
        f"{f'; left out: {left}' if left else ''}"
    )


def _tried(advice: LimitAdvice) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("limit", "requests today", "cuts", "interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    if advice.reasoning is not None:
        table.add_column("ends before the answer", justify="right")
    for tried in advice.tried:
        row = [
            f"{tried.limit:,}",
            f"{tried.requests_today:,}" if tried.requests_today else "-",
            *_cuts(tried),
        ]
        if advice.reasoning is not None:
            row.append(f"{advice.reasoning.ended_by(tried.limit):,}")
        table.add_row(*row)
    return table


def _cuts(tried: Tried) -> tuple[str, str]:
    if tried.share is None:
        return "not known", "the data stop before"
    band = (
        "-" if tried.low is None or tried.high is None else f"{percent(tried.low)} to {percent(tried.high)}"
    )
    return percent(tried.share), band


def _warnings(advice: LimitAdvice) -> list[str]:
    warnings = []
    thought = advice.reasoning
    if thought is not None:
        told = (
            f"Reasoning is part of the answer: {percent(thought.share)} of the tokens of the median answer here. "
            "A limit that is used up by it ends the answer before it starts"
        )
        limit = advice.limit.limit if isinstance(advice.limit, Quantile) else None
        ended = "" if limit is None else f"; {limit:,} would have done so {thought.ended_by(limit):,} times"
        never = f"; today that happened to {thought.never_began:,} answers" if thought.never_began else ""
        warnings.append(f"{told}{ended}{never}.")
    cut_at = {answer.record.token_limit for answer in advice.lengths.answers if answer.cause == "limit"}
    if len(cut_at) > 1:
        warnings.append(
            "Answers were cut at several limits. If requests with different limits are of different kinds, "
            "look at each "
            "kind by itself: --where, or a model of its own."
        )
    if advice.lengths.by_chunks:
        warnings.append(
            f"{advice.lengths.by_chunks:,} answers that were cut short came without usage and count by their chunks: "
            "they were at least so long."
        )
    if advice.lengths.left_out.get("no usage", 0) > 0.2 * advice.curve.answers:
        warnings.append(
            "Many answers do not show their length; ask for usage: monitor(..., include_usage=True)."
        )
    if advice.lengths.causes["unclear"] > 0.5 * advice.curve.answers:
        warnings.append(
            "Most answers end without a finish reason, so none counts as complete: this server never sends one."
        )
    return warnings


def _show_engines(console: Console, advice: LimitAdvice, engines: Sequence[str]) -> None:
    """Print what each engine reserves, as a table where that is readable and as paragraphs on a narrow terminal."""
    today = advice.asked.most_common(1)[0][0] if advice.asked else None
    limit = advice.limit.limit if isinstance(advice.limit, Quantile) else None
    table = Table(box=None, pad_edge=False)
    table.add_column("server", no_wrap=len(engines) == 1)
    table.add_column("reserved today", justify="right")
    table.add_column("with the limit", justify="right")
    table.add_column("what a limit does")
    for name in engines:
        reserving = RESERVING[name]
        before = _held(reserving.held(today))
        after = _held(None if limit is None else reserving.held(limit))
        table.add_row(reserving.title, before, after, reserving.meaning)
        if console.width < _READABLE:
            console.print(
                f"{reserving.title}: {before} tokens reserved today, {after} with the limit; {reserving.meaning}."
            )
    if console.width >= _READABLE:
        console.print(table)


def _held(tokens: int | None) -> str:
    return "not known" if tokens is None else f"{tokens:,}"


def document(advised: MaxTokensAdvice, engines: Sequence[str]) -> dict[str, object]:
    """Return everything for a script."""
    return {
        "groups": [_group(advice, engines) for advice in advised.groups],
        "streams_of_other_groups_without_lengths": advised.without_lengths,
    }


def _group(advice: LimitAdvice, engines: Sequence[str]) -> dict[str, object]:
    today = advice.asked.most_common(1)[0][0] if advice.asked else None
    supported = isinstance(advice.limit, Quantile)
    limit = advice.limit.limit if isinstance(advice.limit, Quantile) else None
    return {
        "model": advice.model,
        "operation": advice.operation,
        "answers": advice.curve.answers,
        "ended_by_themselves": len(advice.curve.exact),
        "cut_short": dict(advice.lengths.causes),
        "counted_by_chunks": advice.lengths.by_chunks,
        "left_out": dict(advice.lengths.left_out),
        "advice": asdict(advice.limit) if supported else None,
        "not_enough_data": None if supported else asdict(advice.limit),
        "naive_limit": advice.naive,
        "would_cut": advice.would_cut,
        "limits_today": {str(limit): count for limit, count in sorted(advice.asked.items())},
        "reserved": {**asdict(advice.reserved), "unused_share": advice.reserved.unused_share},
        "limits": [asdict(tried) for tried in advice.tried],
        "reasoning": None
        if advice.reasoning is None
        else {
            "answers": advice.reasoning.answers,
            "median_share": advice.reasoning.share,
            "never_began": advice.reasoning.never_began,
        },
        "engines": {
            name: {
                "set_aside_today": RESERVING[name].held(today),
                "set_aside_with_limit": None if limit is None else RESERVING[name].held(limit),
                "meaning": RESERVING[name].meaning,
            }
            for name in engines
        },
        "verdict": limit_verdict(advice),
    }
