"""A real vLLM's overload, predicted: fitted to two recorded loads without freezes, simulated for one with four.

    python -m benchmarks.reality [--image FILE]

Prints the table of `docs/lab-reality.md`, and draws its picture if asked to (needs matplotlib).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from midstream.lab.fitting import fit_profile
from midstream.lab.observed import ObservedLoad, read_load
from midstream.lab.prediction import predict
from midstream.lab.results import RunResult

LOADS = Path(__file__).parent.parent / "tests" / "recordings" / "load"
FREEZE_AFTER_S = 2.0


def observed(name: str = "over8") -> ObservedLoad:
    """Return a recorded load."""
    return read_load(LOADS / f"{name}.jsonl")


def predicted() -> RunResult:
    """Return the prediction for the overload, from the two loads without freezes and the server's flags."""
    hardware = fit_profile([observed("roomy"), observed("cap4_active")])
    return predict(observed(), hardware, num_gpu_blocks=28, block_size=128, freeze_after_s=FREEZE_AFTER_S)


def table() -> str:
    """Return recorded and predicted figures, stream by stream, as a Markdown table."""
    run, load = predicted(), observed()
    rows = [
        "| stream | preempted | longest gap, recorded | predicted | last token, recorded | predicted |",
        "|---|---|---|---|---|---|",
    ]
    for stream, request in zip(load.streams, run.requests, strict=True):
        cells = (
            str(stream.id),
            "yes" if request.preemptions else "no",
            f"{stream.longest_gap_s:.1f} s",
            f"{request.longest_gap_s or 0.0:.1f} s",
            f"{stream.times_s[-1]:.1f} s",
            f"{request.times_s[-1]:.1f} s",
        )
        rows.append(f"| {' | '.join(cells)} |")
    rows += [
        "",
        "| | recorded | predicted |",
        "|---|---|---|",
        f"| preemptions | 4 | {run.preemptions} |",
        f"| frozen for 2 s or more, in order | {_frozen(_recorded(load))} | {_frozen(_simulated(run))} |",
        f"| wall time | {load.wall_s:.1f} s | {run.duration_s:.1f} s ({run.duration_s / load.wall_s - 1:+.1%}) |",
    ]
    return "\n".join(rows)


def _recorded(load: ObservedLoad) -> dict[int, Sequence[float]]:
    return {stream.id: stream.times_s for stream in load.streams}


def _simulated(run: RunResult) -> dict[int, Sequence[float]]:
    return {request.id: request.times_s for request in run.requests}


def _freezes(times_s: Sequence[float]) -> list[tuple[float, float]]:
    """Return when each freeze of a stream began and ended."""
    return [(a, b) for a, b in pairwise(times_s) if b - a >= FREEZE_AFTER_S]


def _frozen(streams: dict[int, Sequence[float]]) -> str:
    """Name the streams that froze, the first to freeze first."""
    froze = sorted((at, number) for number, times in streams.items() for at, _ in _freezes(times))
    return ", ".join(str(number) for _, number in froze)


def draw(file: Path) -> None:
    """Draw each stream twice, as recorded and as predicted: a bar while tokens come, a line while it is frozen."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - only the picture needs it

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for streams, colour, offset, label in (
        (_recorded(observed()), "#1f77b4", -0.2, "recorded"),
        (_simulated(predicted()), "#9aa5b1", 0.2, "predicted"),
    ):
        for number, times in streams.items():
            freezes = _freezes(times)
            starts = [times[0], *(end for _, end in freezes)]
            ends = [*(start for start, _ in freezes), times[-1]]
            bars = [(start, end - start) for start, end in zip(starts, ends, strict=True)]
            axes.broken_barh(
                bars, (number + offset - 0.15, 0.3), color=colour, label=label if number == 0 else None
            )
            for start, end in freezes:
                axes.plot([start, end], [number + offset] * 2, color="#d62728", linewidth=2)
                axes.text(
                    (start + end) / 2, number + offset - 0.03, f"{end - start:.1f} s", fontsize=8, ha="center"
                )
    axes.set_yticks(range(8), [f"stream {number}" for number in range(8)])
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.set_title("Eight streams overflow the KV cache of a vLLM; freezes in red", fontsize=11)
    axes.legend(loc="upper right")
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(file, dpi=110)


def main() -> None:
    """Print the table, and draw the picture if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--image", type=Path)
    image = parser.parse_args().image
    print(table())
    if image is not None:
        draw(image)


if __name__ == "__main__":
    main()
