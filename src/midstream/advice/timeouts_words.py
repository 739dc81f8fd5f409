"""Advice about timeouts in words: a sentence for each wait, the line of code, and what other settings do instead."""

from __future__ import annotations

from collections.abc import Mapping

from midstream._support.numbers import percent, plural, rounded_up, seconds
from midstream.advice.timeouts import NoTimeout, TimeoutGroup, TimeoutValue, WaitAdvice
from midstream.advice.timeouts_waits import WaitKind

OTHER_SETTINGS = (
    "The read timeouts of httpx, LiteLLM, LangChain and proxies are reset by keep-alives, total timeouts end long "
    "answers too, and LangChain's stream_chunk_timeout, which keep-alives do not reset, is for async programs alone. "
    "None of them has a limit for each phase, so that one number has to cover pauses in reasoning as well."
)
"""Two sentences; docs/advise-timeout.md has the details."""

_WHERE: Mapping[WaitKind, str] = {
    "text": "in text",
    "reasoning": "in reasoning",
    "tool_call": "in tool calls",
    "first_content": "for the first content",
}


def where(kind: WaitKind) -> str:
    """Return where a wait is, in words."""
    return _WHERE[kind]


def setting_of(kind: WaitKind) -> str:
    """Return the keyword of `monitor` that sets the timeout of a wait."""
    return "first_content_timeout_s" if kind == "first_content" else f'stall_timeout_s["{kind}"]'


def timeout_verdict(advice: WaitAdvice) -> str:
    """Return which timeout to set, or why the data do not show one and what to do about it, in a sentence."""
    value = advice.value
    if isinstance(value, NoTimeout):
        return _none(advice, value)
    sentence = (
        f"Set {setting_of(advice.kind)} to {value.advised_s:g}: it ends at most {percent(value.kill)} of the streams "
        f"that would go on (estimate {seconds(value.estimate_s)}, {percent(value.confidence)} interval "
        f"{seconds(value.low_s)} to {seconds(value.high_s)})"
    )
    effect = advice.advised_effect
    if effect is None or not effect.ended:
        return f"{sentence}; it would have ended none of {plural(advice.waits.streams, 'stream')}."
    return (
        f"{sentence}; it would have ended {effect.ended:,} of {plural(effect.streams, 'stream')}, of which "
        f"{effect.went_on:,} went on by themselves, and saved {seconds(effect.saved_s)} of waiting."
    )


def timeout_code(group: TimeoutGroup) -> str | None:
    """Return the line that sets what is advised for a group; None if nothing is."""
    values = {wait.kind: wait.value.advised_s for wait in group.waits if isinstance(wait.value, TimeoutValue)}
    return code_of(values)


def code_of(values: Mapping[WaitKind, float]) -> str | None:
    """Return the line that sets these timeouts, in seconds; None without any."""
    phases = ", ".join(f'"{kind}": {value:g}' for kind, value in values.items() if kind != "first_content")
    keywords = [f"stall_timeout_s={{{phases}}}"] if phases else []
    if "first_content" in values:
        keywords.append(f"first_content_timeout_s={values['first_content']:g}")
    return f"client = midstream.monitor(client, {', '.join(keywords)})" if keywords else None


def _none(advice: WaitAdvice, why: NoTimeout) -> str:
    known = (
        ""
        if why.at_least_s is None
        else f" What is known: it is {seconds(why.at_least_s)} or more ({percent(why.confidence)} interval)."
    )
    wanted = (
        f"Which timeout {where(advice.kind)} ends {percent(why.kill)} of the streams that would go on cannot be "
        "determined"
    )
    if why.longest_s is None:
        return f"{wanted}: none of {plural(advice.waits.streams, 'wait')} ended by itself. Collect more and ask again."
    if why.more:
        verb = "is" if why.more == 1 else "are"
        return (
            f"{wanted} from {plural(advice.waits.streams, 'stream')}: about {rounded_up(why.more):,} more {verb} "
            f"needed.{known}"
        )
    return (
        f"{wanted}: {plural(why.silent, 'stream')} ended while silent for longer than any wait that ended by itself "
        f"({seconds(why.longest_s)}), and {why.followed:,} of them {'was' if why.followed == 1 else 'were'} watched "
        "for twice as long or ten minutes: too few to know that the others would not have gone on. Let streams wait "
        f"longer for a while, or allow a larger share with --kill.{known}"
    )
