"""What every plot shares (its file, its figure, its errors), and the plot of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from midstream.cli.common.errors import CliError, installing, unwritten
from midstream.cli.common.interrupts import exiting_at_once
from midstream.lab.experiment import RunGroup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg")

PlotOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw into a .png or .svg file.", show_default=False),
]


def check_plot(plot: Path | None) -> None:
    """Raise BadParameter or CliError for a file that cannot be drawn into, before the work and not after it."""
    if plot is None:
        return
    if plot.suffix not in ENDINGS:
        raise typer.BadParameter(f"{plot} must end in {' or '.join(ENDINGS)}.", param_hint="--plot")
    if not plot.parent.is_dir():
        raise CliError(f"there is no folder {plot.parent}; make it, or name another file than {plot}")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches. Raises CliError if matplotlib is not installed."""
    try:
        with exiting_at_once():
            from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and only plots need it
    except ModuleNotFoundError:
        raise CliError(f"plots need matplotlib: {installing('lab')}") from None
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, file: Path) -> None:
    """Write a figure. Raises CliError if the file cannot be written."""
    try:
        figure.savefig(file, dpi=120)
    except OSError as error:
        raise unwritten(file, error) from error


def draw_spread(
    axes: Any,
    places: Sequence[float],
    runs: Sequence[Sequence[float]],
    middle: Sequence[float],
    *,
    colour: str,
    label: str | None = None,
) -> None:
    """Draw a line through the `middle` of the runs at each place, and a band from the least to the most of them."""
    axes.plot(places, middle, "o-", color=colour, markersize=3, label=label)
    low, high = [min(each) for each in runs], [max(each) for each in runs]
    axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)


def plot_sweep(file: Path, name: str, title: str, groups: Sequence[RunGroup]) -> None:
    """Draw throughput and freezes against the values, with the spread over seeds as a band."""
    values = [group.value for group in groups if group.value is not None]
    figure = new_figure(8, 6)
    above, below = figure.subplots(2, 1, sharex=True)
    above.set_title(title, fontsize=10)
    for axes, shown in (
        (above, {"throughput_tokens_per_s": ("throughput", "tab:blue")}),
        (below, {"freeze_median_s": ("median", "tab:orange"), "freeze_p95_s": ("p95", "tab:red")}),
    ):
        for figure_name, (label, colour) in shown.items():
            runs = [group.values(figure_name) or [0.0] for group in groups]
            draw_spread(axes, values, runs, [median(each) for each in runs], colour=colour, label=label)
        axes.legend(loc="best", fontsize=8)
    above.set_ylabel("tokens a second")
    below.set_ylabel("freeze of the preempted, seconds")
    below.set_xlabel(name.replace("_", "-"))
    save(figure, file)
