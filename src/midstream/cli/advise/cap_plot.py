"""Draws what each cap gives and costs, and where the chosen one stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from midstream.advice.cap_search import TrialFigure
from midstream.advice.cap_verdict import CapAdvice
from midstream.cli.common.plots import draw_spread, new_figure, save

_PANELS: tuple[tuple[TrialFigure, float, str, str], ...] = (
    ("freeze-share", 100, "frozen, % of answers", "tab:red"),
    ("p99-gap", 1, "p99 of the longest gap, s", "tab:orange"),
    ("throughput", 1, "tokens per second", "tab:blue"),
)


def plot_search(file: Path, advice: CapAdvice) -> None:
    """Draw freezes, gaps and throughput against caps, with the spread over seeds as a band."""
    config, trials = advice.config, advice.found.trials
    places = [config.most_at_once if trial.cap is None else trial.cap for trial in trials]
    figure = new_figure(8, 7)
    panels = figure.subplots(3, 1, sharex=True)
    panels[0].set_title(
        f"{config.engine}, {advice.pool.tokens:,} tokens of KV cache, {config.most_at_once} at once",
        fontsize=10,
    )
    for axes, (name, scale, label, colour) in zip(panels, _PANELS, strict=True):
        runs = [[scale * value for value in trial.each(name)] for trial in trials]
        together = [scale * trial.all(name) for trial in trials]
        draw_spread(axes, places, runs, together, colour=colour)
        axes.set_ylabel(label)
        _mark(axes, advice, name, scale, places[-1])
    for text, cap in (("never", advice.limits.never), ("average", advice.limits.average)):
        if cap <= places[-1]:
            panels[0].annotate(
                f" {text}: {cap}", (cap, 1), xycoords=("data", "axes fraction"), va="top", fontsize=8
            )
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    panels[-1].set_xlabel("answers at once, at most (the last one: no cap)")
    save(figure, file)


def _mark(axes: Any, advice: CapAdvice, name: TrialFigure, scale: float, last: int) -> None:
    """Draw the two caps by the lengths alone, the chosen one, and the goal."""
    for cap in (advice.limits.never, advice.limits.average):
        if cap <= last:
            axes.axvline(cap, color="tab:grey", linewidth=1, linestyle=":")
    chosen = advice.found.chosen
    if chosen is not None and chosen.cap is not None:
        axes.axvline(chosen.cap, color="tab:green", linewidth=2, alpha=0.6, label=f"advised: {chosen.cap}")
    for goal in advice.found.goals:
        if goal.name == name:
            axes.axhline(
                goal.most * scale, color="tab:green", linewidth=0.8, linestyle="--", label="goal, at most"
            )
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", fontsize=8)
