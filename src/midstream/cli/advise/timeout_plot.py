"""Draws how long waits last that end by themselves, and which timeouts would end them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from midstream._support.numbers import percent, seconds
from midstream.advice.timeouts import TimeoutGroup, TimeoutValue, WaitAdvice
from midstream.advice.timeouts_words import where
from midstream.cli.common.plots import new_figure, save

_MOST = 6


def plot_timeouts(file: Path, groups: Sequence[TimeoutGroup]) -> None:
    """Draw the share of waits that last longer than each time, with timeouts, for the groups with most streams."""
    shown = [(group, wait) for group in groups for wait in group.waits if wait.recovery and wait.waits.ended][
        :_MOST
    ]
    figure = new_figure(8, 1 + 3.2 * max(1, len(shown)))
    rows = figure.subplots(max(1, len(shown)), 1, squeeze=False)[:, 0]
    for axes, (group, wait) in zip(rows, shown, strict=False):
        _draw(axes, group, wait)
    save(figure, file)


def _draw(axes: Any, group: TimeoutGroup, wait: WaitAdvice) -> None:
    assert wait.recovery is not None  # noqa: S101 - chosen by the caller
    curve = wait.recovery.curve
    name = ", ".join(part for part in (group.model, group.operation) if part) or "all together"
    axes.set_title(
        f"{name}, {where(wait.kind)}: {wait.waits.streams:,} streams, {len(wait.waits.open):,} not seen to go on",
        fontsize=10,
    )
    times = [length / 1000 for length in curve.lengths]
    axes.step(times, curve.longer, where="post", color="tab:blue", label="waits that go on, and last longer")
    band = [
        (time, low, high)
        for time, low, high in zip(times, curve.low, curve.high, strict=True)
        if low is not None and high is not None
    ]
    if band:
        axes.fill_between(*zip(*band, strict=True), step="post", color="tab:blue", alpha=0.15, linewidth=0)
    kill = wait.value.kill
    axes.axhline(kill, color="tab:red", linewidth=0.8, linestyle="--", label=f"{percent(kill)} may be ended")
    if isinstance(wait.value, TimeoutValue):
        value = wait.value
        axes.axvspan(value.low_s, value.high_s, color="tab:green", alpha=0.15, linewidth=0)
        interval = f"{seconds(value.low_s)} to {seconds(value.high_s)}"
        axes.axvline(value.advised_s, color="tab:green", label=f"advised: {value.advised_s:g} s ({interval})")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda share, _: percent(share))
    axes.xaxis.set_major_formatter(lambda time, _: f"{time:g}")
    axes.set_ylim(min(kill / 3, 1 / (2 * max(1, wait.waits.streams))), 1.2)
    axes.set_xlabel("seconds")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize=8)
