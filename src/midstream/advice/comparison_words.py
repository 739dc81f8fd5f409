"""A comparison in one sentence."""

from __future__ import annotations

from midstream._support.numbers import percent, points, seconds
from midstream.advice.comparison import FROZE, CompareGoal, Comparison, Measure


def verdict(comparison: Comparison, goal: CompareGoal) -> str:
    """Return the result of a comparison in a sentence, with the numbers that decided it."""
    froze, tail, tokens, first = comparison.froze, comparison.tail, comparison.tokens, comparison.first
    gain = "; ".join(_moved(each) for each in (froze, tail) if each.judgement == "better")
    loss = "; ".join(_moved(each) for each in (froze, tail) if each.judgement == "worse")
    cost = _cost(tokens, first, goal)
    if comparison.verdict == "worse":
        if loss:
            return f"Worse: {loss}{f'; and {cost}' if cost else ''}."
        return f"Worse: {cost}{f', although {gain}' if gain else ''}."
    if comparison.verdict == "better":
        return f"Better: {gain}{_kept(tokens, first, goal)}."
    if comparison.verdict == "unchanged":
        share = percent(froze.after)
        return (
            f"No difference: {share} of the streams froze, and {percent(froze.before)} before, which is less than "
            f"{percent(goal.margin)} apart{_kept(tokens, first, goal)}."
        )
    return f"Too little data to tell{_so_far(froze)}{_more(comparison)}."


def _moved(measure: Measure) -> str:
    verb = "fell" if measure.judgement == "better" else "rose"
    write = percent if measure.name == FROZE else seconds
    what = "the share of streams that froze" if measure.name == FROZE else "the longest gap (p99)"
    return f"{what} {verb} from {write(measure.before)} to {write(measure.after)}"


def _cost(tokens: Measure, first: Measure, goal: CompareGoal) -> str:
    costs = []
    if tokens.judgement == "worse" and tokens.change is not None:
        costs.append(
            f"tokens per second fell by {percent(1 - tokens.change.value)}, more than the {percent(goal.give_up)} "
            "to give up"
        )
    if first.judgement == "worse":
        costs.append(
            f"the first content now takes {seconds(first.after)} (p95), beyond the {goal.bearable_s:g} s that are "
            "bearable"
        )
    return ", and ".join(costs)


def _kept(tokens: Measure, first: Measure, goal: CompareGoal) -> str:
    kept, unsure = [], []
    if tokens.change is None:
        unsure.append("tokens per second held")
    elif tokens.judgement == "unclear":
        unsure.append(
            f"tokens per second held ({percent(tokens.change.low)} to {percent(tokens.change.high)} of before)"
        )
    else:
        kept.append(f"tokens per second are at {percent(tokens.change.value)} of before")
    if first.judgement in ("unclear", "unknown"):
        unsure.append(f"the first content comes within {goal.bearable_s:g} s")
    else:
        kept.append(f"the first content comes within {seconds(first.after)} (p95)")
    said = f"; {', and '.join(kept)}" if kept else ""
    return f"{said}; whether {' and whether '.join(unsure)}, the data do not show" if unsure else said


def _so_far(froze: Measure) -> str:
    if froze.change is None:
        return ""
    return (
        f": {percent(froze.before)} of the streams froze before and {percent(froze.after)} after, but the difference "
        f"may be anything from {points(froze.change.low)} to {points(froze.change.high)} points"
    )


def _more(comparison: Comparison) -> str:
    if comparison.more_streams is None:
        return ""
    return f"; about {comparison.more_streams:,} more streams on each side would decide it at these shares"
