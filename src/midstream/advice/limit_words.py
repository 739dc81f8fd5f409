"""Verdicts about limits and caps, each in a sentence."""

from __future__ import annotations

from midstream._support.numbers import percent, rounded_up
from midstream.advice.limits import LimitAdvice
from midstream.advice.survival import Quantile, Unsupported, limit_for, needed

_SHARES = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


def limit_verdict(advice: LimitAdvice) -> str:
    """Return which limit to set, or why the data do not show one and what to do about it, in a sentence."""
    if isinstance(advice.limit, Unsupported):
        return _unsupported(advice, advice.limit)
    found = advice.limit
    sentence = (
        f"Set max_tokens to {found.limit:,}: it cuts at most {percent(found.cut)} of answers "
        f"({percent(found.confidence)} interval {found.low:,} to {found.high:,})"
    )
    today = advice.asked.most_common(1)[0][0] if advice.asked else None
    if today is None:
        return f"{sentence}; requests send no limit today."
    cuts, _, _ = advice.curve.at(today)
    if cuts is not None and cuts > found.cut:
        return f"{sentence}; today's {today:,} cuts {percent(cuts)}, which is real work lost."
    unused = advice.reserved.unused_share
    spare = "" if unused is None else f", and {percent(unused)} of what is asked for is never used"
    return f"{sentence}; today's {today:,} asks for {today - found.limit:,} tokens more{spare}."


def _unsupported(advice: LimitAdvice, why: Unsupported) -> str:
    wanted = f"Which limit cuts {percent(why.cut)} of answers"
    known = (
        ""
        if why.low is None
        else f" What is known: it is {why.low:,} or more ({percent(why.confidence)} interval)."
    )
    if why.stops_at is None:
        everything = min(needed(why.cut, confidence=why.confidence), advice.curve.answers + why.more)
        return (
            f"{wanted} cannot be determined from {advice.curve.answers:,} answers: about {rounded_up(why.more):,} more "
            f"{'is' if why.more == 1 else 'are'} needed"
            f"{_sooner(advice, everything)}.{known}{_instead(advice, why)}"
        )
    limits = [answer.tokens for answer in advice.lengths.answers if answer.cause == "limit"]
    remedy = (
        f"Let requests ask for {2 * max(limits):,} for a while and ask again"
        if limits and max(limits) >= 0.5 * why.stops_at
        else "The longest answers were left or broke off before their end, so collect more and ask again"
    )
    more = f", with about {rounded_up(why.more):,} more answers" if why.more else ""
    return (
        f"{wanted} cannot be determined: the data stop at {why.stops_at:,} tokens, where "
        f"{percent(why.still_going)} of answers "
        f"were still going. {remedy}{more}.{known}{_instead(advice, why)}"
    )


def _sooner(advice: LimitAdvice, everything: int) -> str:
    """Return what makes fewer answers suffice."""
    if advice.curve.answers < everything:
        return f" (some {rounded_up(everything):,} in all if none is cut)"
    highest = max(advice.asked, default=0)
    return f", or fewer if more requests ask for {highest:,} as some do" if len(advice.asked) > 1 else ""


def _instead(advice: LimitAdvice, why: Unsupported) -> str:
    """Return what the data do support."""
    for share in _SHARES:
        if share > why.cut:
            found = limit_for(advice.curve, share)
            if isinstance(found, Quantile):
                interval = f"{found.low:,} to {found.high:,}"
                return f" The data do support {percent(share)}: {found.limit:,} tokens ({interval})."
    return ""
