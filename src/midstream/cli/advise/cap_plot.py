"""Draws what each cap gives and costs, and where the chosen one stands."""

from __future__ import annotations

from pathlib import Path

from midstream.advice.cap_search import TrialFigure
from midstream.advice.cap_verdict import CapAdvice
from midstream.cli.common.errors import CliError, installing, unwritten


def plot_search(file: Path, advice: CapAdvice) -> None:
    """Draw freezes, gaps and throughput against caps, with the spread over seeds as a band."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and only plots need it
    except ModuleNotFoundError:
        raise CliError(f"plots need matplotlib: {installing('lab')}") from None
    scene, found = advice.scene, advice.found
    places = [scene.most_at_once if trial.cap is None else trial.cap for trial in found.trials]
    figure = Figure(figsize=(8, 7), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    panels[0].set_title(
        f"{scene.engine}, {advice.pool.tokens:,} tokens of KV cache, {scene.most_at_once} at once",
        fontsize=10,
    )
    shown: tuple[tuple[TrialFigure, float, str, str], ...] = (
        ("freeze-share", 100, "frozen, % of answers", "tab:red"),
        ("p99-gap", 1, "p99 of the longest gap, s", "tab:orange"),
        ("throughput", 1, "tokens a second", "tab:blue"),
    )
    for axes, (name, scale, label, colour) in zip(panels, shown, strict=True):
        each = [[scale * value for value in trial.each(name)] for trial in found.trials]
        axes.plot(
            places, [scale * trial.all(name) for trial in found.trials], "o-", color=colour, markersize=3
        )
        axes.fill_between(
            places, [min(v) for v in each], [max(v) for v in each], color=colour, alpha=0.15, linewidth=0
        )
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        for text, cap in (("never", advice.limits.never), ("average", advice.limits.average)):
            if cap <= places[-1]:
                axes.axvline(cap, color="tab:grey", linewidth=1, linestyle=":")
                if axes is panels[0]:
                    axes.annotate(
                        f" {text}: {cap}", (cap, 1), xycoords=("data", "axes fraction"), va="top", fontsize=8
                    )
        if found.chosen is not None and found.chosen.cap is not None:
            axes.axvline(
                found.chosen.cap,
                color="tab:green",
                linewidth=2,
                alpha=0.6,
                label=f"advised: {found.chosen.cap}",
            )
        for goal in found.goals:
            if goal.name == name:
                axes.axhline(
                    goal.most * scale, color="tab:green", linewidth=0.8, linestyle="--", label="goal, at most"
                )
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper left", fontsize=8)
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    panels[-1].set_xlabel("answers at once, at most (the last one: no cap)")
    try:
        figure.savefig(file, dpi=120)
    except OSError as error:
        raise unwritten(file, error) from error
