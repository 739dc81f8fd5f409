"""Draws how long answers are, and which limits would cut them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from midstream._support.numbers import percent
from midstream.advice.limits import LimitAdvice
from midstream.advice.survival import Quantile
from midstream.cli.common.plots import new_figure, save

_MOST = 4


def plot_limits(file: Path, advised: Sequence[LimitAdvice]) -> None:
    """Draw the share of answers longer than each length, with limits, for the groups with most answers."""
    shown = advised[:_MOST]
    figure = new_figure(8, 1 + 3.5 * len(shown))
    for axes, advice in zip(figure.subplots(len(shown), 1, squeeze=False)[:, 0], shown, strict=True):
        _draw(axes, advice)
    save(figure, file)


def _draw(axes: Any, advice: LimitAdvice) -> None:
    curve, cut = advice.curve, advice.limit.cut
    name = ", ".join(part for part in (advice.model, advice.operation) if part) or "all together"
    axes.set_title(
        f"{name}: {curve.answers:,} answers, {len(curve.censored):,} of them cut short", fontsize=10
    )
    lengths = [max(1, length) for length in curve.lengths]
    axes.step(lengths, curve.longer, where="post", color="tab:blue", label="share of answers that are longer")
    band = [
        (length, low, high)
        for length, low, high in zip(lengths, curve.low, curve.high, strict=True)
        if low is not None and high is not None
    ]
    if band:
        axes.fill_between(*zip(*band, strict=True), step="post", color="tab:blue", alpha=0.15, linewidth=0)
    if curve.censored:
        seen = sorted([*curve.exact, *curve.censored])
        left = [1 - (n + 1) / len(seen) for n in range(len(seen))]
        axes.step(
            [max(1, length) for length in seen],
            left,
            where="post",
            color="tab:grey",
            linestyle=":",
            label="with cut answers taken as they are",
        )
    axes.axhline(cut, color="tab:red", linewidth=0.8, linestyle="--", label=f"{percent(cut)} may be cut")
    for tried in advice.tried:
        axes.axvline(tried.limit, color="tab:grey", linewidth=1)
        axes.annotate(f" {tried.limit:,}", (tried.limit, 1), fontsize=8, color="tab:grey", va="top")
    if isinstance(advice.limit, Quantile):
        found = advice.limit
        axes.axvspan(found.low, found.high, color="tab:green", alpha=0.15, linewidth=0)
        axes.axvline(
            found.limit,
            color="tab:green",
            label=f"advised: {found.limit:,} ({found.low:,} to {found.high:,})",
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda share, _: percent(share))
    axes.set_ylim(min(cut / 3, 1 / (2 * curve.answers)), 1.2)
    axes.set_xlim(0, 1.08 * max(lengths[-1], *(tried.limit for tried in advice.tried), 1))
    axes.set_xlabel("tokens")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize=8)
