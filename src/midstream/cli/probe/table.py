"""What `midstream probe` prints for people: a row for each stream, the totals, and what they mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from midstream.probe import Probe, Seen, Totals, clean, enumerated, totals_of, verdict
from midstream.stream.model import StreamRecord

UNKNOWN = "?"
ABSENT = "-"


def show(console: Console, probe: Probe, seen: Sequence[Seen], *, interrupted: bool) -> None:
    """Print everything that was seen."""
    totals = totals_of(seen, probe.elapsed_s)
    _print(console, *_head(probe), "")
    console.print(_table(seen))
    _print(console, "", *_totals(totals, probe.plan.freeze_after_s), "", *_problems(seen))
    _print(console, verdict(totals, probe.plan.at_a_time, interrupted=interrupted))


def row(seen: Seen) -> tuple[str, ...]:
    """Return the cells of one stream's row."""
    record = seen.record
    if record is None:
        return (str(seen.stream), "refused" if seen.problem else "cancelled", *[ABSENT] * 6)
    reasons = ", ".join(clean(reason or ABSENT) for reason in record.finish_reasons)
    return (
        str(seen.stream),
        record.outcome.value,
        reasons or ABSENT,
        _seconds(record.time_to_first_content_s),
        _gap(record),
        str(record.freezes),
        _tokens(record),
        UNKNOWN if seen.tokens_per_s is None else f"{seen.tokens_per_s:.1f}",
    )


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        # Lines for a pipe are whole; on a terminal they break between words.
        console.print(line, soft_wrap=not console.is_terminal)


def _head(probe: Probe) -> Iterator[str]:
    plan, server = probe.plan, probe.server
    yield (
        f"{probe.url}, {plan.api.value}, model {clean(server.model)}: "
        f"{plan.count} {'stream' if plan.count == 1 else 'streams'}, {plan.at_a_time} at a time"
    )
    if plan.model is None and server.models is not None and len(server.models) > 1:
        yield f"Note: the server has {enumerated(server.models)}; --model chooses another."
    for note in probe.ask.notes:
        yield f"Note: {note}."


def _table(seen: Sequence[Seen]) -> Table:
    # Fits into 80 columns; when it does not, the gap is what wraps.
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("finish", no_wrap=True)
    table.add_column("first\ncontent", justify="right", no_wrap=True)
    table.add_column("longest gap")
    table.add_column("freezes", justify="right", no_wrap=True)
    table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("tokens\nper s", justify="right", no_wrap=True)
    for each in seen:
        table.add_row(*row(each), style=_style(each))
    return table


def _style(seen: Seen) -> str:
    if seen.record is not None and seen.record.freezes:
        return "red"
    return "" if seen.completed else "yellow"


def _gap(record: StreamRecord) -> str:
    if record.buffered:
        return "hidden: one burst"
    if record.max_gap_s is None or record.max_gap_at_s is None:
        return ABSENT
    phase = (record.max_gap_phase or "text").replace("_", " ")
    never = ", never ended" if record.max_gap_open else ""
    return f"{record.max_gap_s:.2f} s at {record.max_gap_at_s:.1f} s, {phase}{never}"


def _tokens(record: StreamRecord) -> str:
    # An unfinished report is a lower bound.
    more = "" if record.usage_complete else "+"
    made = UNKNOWN if record.output_tokens is None else f"{record.output_tokens}{more}"
    return f"{made}/{record.token_limit or UNKNOWN}"


def _totals(totals: Totals, freeze_after_s: float) -> Iterator[str]:
    yield (
        f"first content  median {_seconds(totals.median_time_to_first_content_s)}, "
        f"worst {_seconds(totals.max_time_to_first_content_s)}"
    )
    worst = "" if totals.max_gap_stream is None else f" (stream {totals.max_gap_stream})"
    median = _seconds(totals.median_max_gap_s)
    yield f"longest gap    median {median}, worst {_seconds(totals.max_gap_s)}{worst}"
    yield f"frozen         {totals.frozen_share} (silent for {freeze_after_s:g} s or more)"
    if totals.output_tokens is None or totals.tokens_per_s is None:
        yield f"tokens         {UNKNOWN}: the server did not report them for every stream"
    else:
        yield (
            f"tokens         {totals.output_tokens} in {totals.elapsed_s:.1f} s, "
            f"{totals.tokens_per_s:.1f} per second in all"
        )


def _problems(seen: Sequence[Seen]) -> Iterator[str]:
    """Yield each problem once, with the streams that had it."""
    had: dict[str, list[str]] = {}
    for each in seen:
        if each.problem is not None:
            had.setdefault(each.problem, []).append(str(each.stream))
    for problem, streams in had.items():
        yield f"{'Stream' if len(streams) == 1 else 'Streams'} {', '.join(streams)}: {problem}."


def _seconds(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f} s"
