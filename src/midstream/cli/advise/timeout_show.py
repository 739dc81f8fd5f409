"""What `midstream advise timeout` prints: a table and a sentence for each wait, and one JSON document."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from midstream._support.numbers import ABSENT, percent, seconds
from midstream.advice.timeouts import TimeoutAdvice, TimeoutEffect, TimeoutGroup, TimeoutValue, WaitAdvice
from midstream.advice.timeouts_words import OTHER_SETTINGS, timeout_code, timeout_verdict, where


def show(console: Console, advised: TimeoutAdvice) -> None:
    """Print every group, the one with most streams first, and what other settings do instead."""
    for group in advised.groups:
        name = ", ".join(part for part in (group.model, group.operation) if part) or "all together"
        console.print(f"{name}: {group.streams:,} streams", soft_wrap=not console.is_terminal)
        console.print()
        for wait in group.waits:
            _show_wait(console, wait)
            console.print()
        code = timeout_code(group)
        if code is not None:
            console.print(code, style="bold", soft_wrap=True, markup=False)
            console.print()
    if advised.without_waits:
        console.print(
            f"{advised.without_waits:,} streams of other models or operations do not show how long they waited.\n",
            style="dim",
        )
    console.print(OTHER_SETTINGS, style="dim", soft_wrap=not console.is_terminal)


def _show_wait(console: Console, wait: WaitAdvice) -> None:
    waits = wait.waits
    causes = ", ".join(f"{count:,} {cause}" for cause, count in waits.causes.most_common())
    of_those = f" ({causes})" if causes else ""
    never = (
        f"; about {percent(wait.recovery.never)} of all never end"
        if waits.ended and wait.recovery is not None and wait.recovery.never > 0
        else ""
    )
    bounded = f", {len(waits.bounded):,} were longer in another phase" if waits.bounded else ""
    left_out = f"; left out, no gap was seen: {waits.left_out:,}" if waits.left_out else ""
    console.print(
        f"Longest wait {where(wait.kind)}: {len(waits.ended):,} ended by themselves, {len(waits.open):,} did not"
        f"{of_those}{bounded}{never}{left_out}",
        soft_wrap=not console.is_terminal,
    )
    console.print(_effects(wait))
    console.print(timeout_verdict(wait), style="bold", soft_wrap=not console.is_terminal, markup=False)


def _effects(wait: WaitAdvice) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("timeout", "ends", "of them went on", "after", "saves", "ends of those that go on"):
        table.add_column(heading, justify="right")
    unknown = any(effect.unknown for effect in wait.effects)
    if unknown:
        table.add_column("not known", justify="right")
    advised_s = wait.value.advised_s if isinstance(wait.value, TimeoutValue) else None
    for effect in wait.effects:
        style = "bold" if effect.timeout_s == advised_s else None
        table.add_row(*_effect(effect), *([f"{effect.unknown:,}"] if unknown else []), style=style)
    return table


def _effect(effect: TimeoutEffect) -> tuple[str, ...]:
    after = ABSENT if effect.went_on_after_s is None else f"{seconds(effect.went_on_after_s)} more"
    return (
        f"{effect.timeout_s:g} s",
        f"{effect.ended:,} ({percent(effect.ended / effect.streams)})",
        f"{effect.went_on:,} ({percent(effect.went_on / effect.ended)})" if effect.ended else ABSENT,
        after,
        seconds(effect.saved_s),
        _share(effect),
    )


def _share(effect: TimeoutEffect) -> str:
    if effect.share is None:
        return "not known"
    if effect.share == 0.0:
        return "none seen"
    if effect.low is None or effect.high is None:
        return percent(effect.share)
    return f"{percent(effect.share)} ({percent(effect.low)} to {percent(effect.high)})"


def document(advised: TimeoutAdvice) -> dict[str, object]:
    """Return everything for a script."""
    return {
        "groups": [_group(group) for group in advised.groups],
        "streams_of_other_groups_without_waits": advised.without_waits,
        "other_settings": OTHER_SETTINGS,
    }


def _group(group: TimeoutGroup) -> dict[str, object]:
    return {
        "model": group.model,
        "operation": group.operation,
        "streams": group.streams,
        "waits": [_wait(wait) for wait in group.waits],
        "code": timeout_code(group),
    }


def _wait(wait: WaitAdvice) -> dict[str, object]:
    supported = isinstance(wait.value, TimeoutValue)
    recovery = wait.recovery
    return {
        "kind": wait.kind,
        "streams": wait.waits.streams,
        "ended_by_themselves": len(wait.waits.ended),
        "did_not_end": dict(wait.waits.causes),
        "longer_in_another_phase": len(wait.waits.bounded),
        "left_out": wait.waits.left_out,
        "never_share": recovery.never if wait.waits.ended and recovery is not None else None,
        "advice": asdict(wait.value) if supported else None,
        "not_enough_data": None if supported else asdict(wait.value),
        "timeouts": [asdict(effect) for effect in wait.effects],
        "verdict": timeout_verdict(wait),
    }
