"""Draws a sweep: what is gained in throughput, and what it costs in freezes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from midstream.cli.common.errors import CliError, installing, unwritten
from midstream.cli.common.simulation_show import Row

ENDINGS = (".png", ".svg")


def plot_sweep(file: Path, name: str, title: str, rows: Sequence[Row]) -> None:
    """Draw throughput and freezes against the values, with the spread over seeds as a band."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and only plots need it
    except ModuleNotFoundError:
        raise CliError(f"plots need matplotlib: {installing('lab')}") from None
    values = [row.value for row in rows if row.value is not None]
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.set_title(title, fontsize=10)
    for axes, shown in (
        (above, {"throughput_tokens_per_s": ("throughput", "tab:blue")}),
        (below, {"freeze_median_s": ("median", "tab:orange"), "freeze_p95_s": ("p95", "tab:red")}),
    ):
        for figure_name, (label, colour) in shown.items():
            drawn = [row.values(figure_name) or [0.0] for row in rows]
            axes.plot(values, [median(each) for each in drawn], "o-", label=label, color=colour, markersize=3)
            low, high = [min(each) for each in drawn], [max(each) for each in drawn]
            axes.fill_between(values, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(loc="best", fontsize=8)
    above.set_ylabel("tokens a second")
    below.set_ylabel("freeze of the evicted, seconds")
    below.set_xlabel(name.replace("_", "-"))
    try:
        figure.savefig(file, dpi=120)
    except OSError as error:
        raise unwritten(file, error) from error
