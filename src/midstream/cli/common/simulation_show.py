"""What `midstream simulate` prints: tables, bars, and one JSON document for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType

from rich.console import Console
from rich.table import Column, Table

from midstream.lab.experiment import RunGroup
from midstream.lab.observed import ObservedLoad
from midstream.lab.results import RunResult, figures
from midstream.report.terminal import bar, fits


@dataclass(frozen=True, slots=True)
class _Figure:
    title: str
    unit: str
    digits: int = 0

    def text(self, value: float) -> str:
        scaled = value * 100 if self.unit == "%" else value
        return f"{scaled:,.{self.digits}f}"


_FIGURES: Mapping[str, _Figure] = MappingProxyType(
    {
        "throughput_tokens_per_s": _Figure("throughput", "tokens/s", 1),
        "preempted_share": _Figure("preempted", "%", 1),
        "redone_prefill_share": _Figure("prefill redone", "%", 1),
        "freeze_median_s": _Figure("freeze of the preempted, median", "s", 1),
        "freeze_p95_s": _Figure("freeze of the preempted, p95", "s", 1),
        "freeze_max_s": _Figure("freeze of the preempted, longest", "s", 1),
        "frozen_share": _Figure("frozen", "%", 1),
        "ttft_median_s": _Figure("time to first token, median", "s", 1),
        "ttft_p95_s": _Figure("time to first token, p95", "s", 1),
        "kv_written_share": _Figure("KV cache used", "%"),
        "kv_taken_share": _Figure("KV cache reserved", "%"),
        "mean_running": _Figure("running", "requests", 1),
        "truncated_share": _Figure("truncated", "%", 1),
        "failed_share": _Figure("failed or rejected", "%", 1),
        "duration_s": _Figure("duration", "s"),
    }
)

_SWEPT: Mapping[str, str] = MappingProxyType(
    {
        "throughput_tokens_per_s": "tokens/s",
        "preempted_share": "preempted %",
        "redone_prefill_share": "redone %",
        "freeze_median_s": "freeze s",
        "freeze_p95_s": "p95",
        "freeze_max_s": "max",
        "ttft_median_s": "TTFT s",
        "ttft_p95_s": "p95",
        "kv_written_share": "KV %",
        "truncated_share": "cut %",
    }
)
"""The figures of a sweep's table, with headings that fit beside each other."""

_BAR = 30


def show_run(console: Console, row: RunGroup) -> None:
    """Print every figure; of several seeds the median, the least and the most."""
    several = len(row.runs) > 1
    table = Table(box=None, pad_edge=False, show_header=several)
    table.add_column("")
    for heading in ("median", "least", "most") if several else ("",):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for name, figure in _FIGURES.items():
        values = row.values(name)
        shown = (median(values), min(values), max(values)) if several else tuple(values)
        cells = [figure.text(value) for value in shown] if values else ["-"] * (3 if several else 1)
        table.add_row(figure.title, *cells, figure.unit)
    console.print(table)
    freeze = "The freeze of a preempted request is its longest gap. "
    console.print(
        f"\n{freeze}Shares are of the requests served; KV cache is the mean over time.", style="dim"
    )


def show_sweep(console: Console, name: str, rows: Sequence[RunGroup]) -> None:
    """Print a line for each value, then bars; of several seeds the median, and some spread."""
    several = len(rows[0].runs) > 1
    table = Table(box=None, pad_edge=False)
    table.add_column(name.replace("_", "-"), justify="right")
    for heading in _SWEPT.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        cells = []
        for figure in _SWEPT:
            values = row.values(figure)
            text = _FIGURES[figure].text(median(values)) if values else "-"
            spread = several and figure in ("throughput_tokens_per_s", "freeze_median_s") and len(values) > 1
            low, high = (_FIGURES[figure].text(edge) for edge in (min(values or [0]), max(values or [0])))
            cells.append(f"{text} ({low}-{high})" if spread else text)
        table.add_row(row.label, *cells)
    for part in _parts(console, table):
        console.print(part)
    if several:
        console.print(f"\nMedian of {len(rows[0].runs)} seeds (least-most).", style="dim")
    console.print()
    _bars(console, rows)


def _bars(console: Console, rows: Sequence[RunGroup]) -> None:
    """Print two columns of bars, as wide as the terminal allows."""
    width = max(4, min(_BAR, (console.width - max(len(row.label) for row in rows) - 24) // 2))
    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("throughput, tokens/s", min_width=width + 8)
    table.add_column("freeze of the preempted, p95, s", min_width=width + 8)
    drawn = {}
    for name in ("throughput_tokens_per_s", "freeze_p95_s"):
        values = [median(row.values(name) or [0.0]) for row in rows]
        most = max(values) or 1.0
        drawn[name] = [f"{bar(console, value / most, width)} {value:,.0f}" for value in values]
    for row, *bars in zip(rows, *drawn.values(), strict=True):
        table.add_row(row.label, *bars)
    console.print(table)


def _parts(console: Console, table: Table) -> Iterator[Table]:
    """Return the table, or several below each other with some of its columns each, where it is too wide."""
    first, *columns = table.columns
    cells = [list(column.cells) for column in table.columns]
    start = 0
    while start < len(columns):
        end = len(columns)
        while end > start + 1 and not fits(console, _part(first, columns[start:end], cells, start, end)):
            end -= 1
        yield _part(first, columns[start:end], cells, start, end)
        start = end


def _part(
    first: Column, columns: Sequence[Column], cells: Sequence[Sequence[object]], start: int, end: int
) -> Table:
    part = Table(box=None, pad_edge=False)
    for column in (first, *columns):
        part.add_column(column.header, justify=column.justify, no_wrap=True)
    for row in zip(cells[0], *cells[1 + start : 1 + end], strict=True):
        part.add_row(*map(str, row))
    return part


def show_streams(console: Console, load: ObservedLoad, runs: Sequence[RunResult]) -> None:
    """Print each stream of a recorded load beside its simulation: the median of the runs, and how far they differ."""
    table = Table(title=None, box=None, pad_edge=False)
    table.add_column("stream", justify="right")
    for heading in ("first token", "recorded", "longest gap", "recorded", "end", "recorded"):
        table.add_column(heading, justify="right")
    by_id = [{request.id: request for request in run.requests} for run in runs]
    for stream in load.streams:
        found = [requests[stream.id] for requests in by_id]
        preempted = sum(request.preemptions > 0 for request in found)
        word = (
            "" if not preempted else " preempted" if preempted == len(found) else f" preempted in {preempted}"
        )
        table.add_row(
            f"{stream.id}{word}",
            _between([request.ttft_s for request in found], 2),
            f"{stream.times_s[0] - stream.start_s:.2f} s",
            _between([request.longest_gap_s for request in found], 2),
            f"{stream.longest_gap_s:.2f} s",
            _between([request.ended_s for request in found], 1),
            f"{stream.end_s:.1f} s",
        )
    for part in _parts(console, table):
        console.print(part)
    preemptions = sorted(run.preemptions for run in runs)
    count = (
        f"{preemptions[0]}" if preemptions[0] == preemptions[-1] else f"{preemptions[0]} to {preemptions[-1]}"
    )
    console.print(
        f"\n{count} preemptions; {_between([run.duration_s for run in runs], 1)} in all, recorded {load.wall_s:.1f} s. "
        "The recording may have been made with other flags than the simulated ones.",
        style="dim",
    )


def _between(values: Sequence[float | None], digits: int) -> str:
    """Return the median of some durations, and their range where they differ."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return "-"
    middle, least, most = (f"{value:.{digits}f}" for value in (median(known), known[0], known[-1]))
    return f"{middle} s" if least == most else f"{middle} s ({least} to {most})"


def document(rows: Sequence[RunGroup]) -> list[dict[str, object]]:
    """Return every run's figures for a script."""
    return [
        {
            **({} if row.value is None else {"value": row.value}),
            "runs": [
                {**figures(run), "requests": len(run.requests), "steps": run.steps, "events": run.events}
                for run in row.runs
            ],
        }
        for row in rows
    ]
