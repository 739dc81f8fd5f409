"""The picture of `docs/performance.md`, drawn from the measurement of the peers.

python -m benchmarks.plots .bench/peers.json docs/images/performance.png
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.overhead import KINDS

COLOURS = {"sync": "#1f77b4", "async": "#9aa5b1"}
OURS = "#d62728"


def draw(results: dict[str, Any], file: Path) -> None:
    """Draw what each adds per chunk and what each holds per chunk, the lightest first."""
    rows = [(name, result["costs"], result["held"], "peer") for name, result in results.items()]
    middle = {
        kind: {
            who: {"chunk_us": statistics.median(r["costs"][kind][who]["chunk_us"] for r in results.values())}
            for who in ("three-line loop", "midstream")
        }
        for kind in KINDS
    }
    held = {
        kind: {
            "three-line loop": 0.0,
            "midstream": statistics.median(r["held"][kind]["midstream"] for r in results.values()),
        }
        for kind in KINDS
    }
    rows += [(who, middle, held, who) for who in ("three-line loop", "midstream")]
    rows.sort(key=lambda row: sum(row[1][kind][row[3]]["chunk_us"] for kind in KINDS))

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for offset, kind in ((-0.2, "sync"), (0.2, "async")):
        _bars(
            left, offset, kind, [max(0.0, costs[kind][who]["chunk_us"]) for _, costs, _, who in rows], ".1f"
        )
        _bars(right, offset, kind, [max(0.0, held[kind].get(who, 0.0)) for _, _, held, who in rows], ".0f")
    left.set_yticks(range(len(rows)), [name for name, *_ in rows])
    for label in left.get_yticklabels():
        if label.get_text() == "midstream":
            label.set_color(OURS)
            label.set_fontweight("bold")
    left.invert_yaxis()
    left.set_title("µs added to each chunk, over the bare SDK", fontsize=11)
    right.set_title("bytes held for each chunk, in mid-stream", fontsize=11)
    right.set_xscale("symlog", linthresh=10)
    right.set_xlim(0, 20_000)
    left.margins(x=0.12)
    left.legend(loc="upper right")
    for axes in (left, right):
        axes.grid(axis="x", alpha=0.3)
    figure.savefig(file, dpi=110)


def _bars(axes: Axes, offset: float, kind: str, values: list[float], form: str) -> None:
    at = [row + offset for row in range(len(values))]
    bars = axes.barh(at, values, height=0.38, color=COLOURS[kind], label=kind)
    axes.bar_label(bars, [format(value, form) for value in values], padding=3, fontsize=8)


def main(argv: list[str]) -> int:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("measured", type=Path, help="what `python -m benchmarks.peers --json FILE` wrote")
    parser.add_argument("image", type=Path)
    options = parser.parse_args(argv)
    draw(json.loads(options.measured.read_text()), options.image)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
