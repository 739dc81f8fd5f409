"""`midstream advise timeout --prometheus`: stall timeouts from the metrics of a fleet."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby

from rich.table import Table

from midstream._support.numbers import ABSENT, percent, seconds
from midstream.advice.timeouts_fleet import BY, FleetTimeout, fleet_timeout_verdict, fleet_timeouts
from midstream.advice.timeouts_words import OTHER_SETTINGS, code_of, where
from midstream.cli.advise.options import NOT_ENOUGH, print_json
from midstream.cli.common.errors import CliError
from midstream.cli.common.journal_options import StreamOptions
from midstream.cli.common.prometheus_options import fleet_of
from midstream.report.terminal import console
from midstream.sources.prometheus import PrometheusSource


def advise_fleet_timeout(
    source: PrometheusSource, streams: StreamOptions, *, kill: float, confidence: float, as_json: bool
) -> int:
    """Print the bounds of the timeout for each model and phase, and return the exit status."""
    with source:
        fleet = fleet_of(source, streams.since, streams.until, streams.where, by=BY)
    found = fleet_timeouts(fleet.summaries, kill, confidence)
    if not found:
        raise CliError(
            "the metrics hold no gaps and no times to the first content in that time; widen --since"
        )
    if as_json:
        waits = [{**asdict(each), "verdict": fleet_timeout_verdict(each)} for each in found]
        print_json({"waits": waits, "code": _codes(found), "notes": list(fleet.notes)})
    else:
        _show(found, fleet.notes)
    return 0 if any(each.bounds.high_s is not None for each in found) else NOT_ENOUGH


def _codes(found: list[FleetTimeout]) -> list[dict[str, str | None]]:
    codes = []
    for (model, operation), waits in groupby(found, key=lambda each: (each.model, each.operation)):
        values = {
            each.kind: each.bounds.high_s
            for each in waits
            if each.kind is not None and each.bounds.high_s is not None
        }
        codes.append({"model": model, "operation": operation, "code": code_of(values)})
    return codes


def _show(found: list[FleetTimeout], notes: tuple[str, ...]) -> None:
    shown = console(120)
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "operation", "wait", "streams", "not completed", "timeout", "ends"):
        left = heading in ("model", "operation", "wait")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for each in found:
        bounds = each.bounds
        upper = "" if bounds.high_s is None else f", up to {bounds.high_s:g} s"
        table.add_row(
            each.model,
            each.operation,
            "in any phase" if each.kind is None else where(each.kind),
            f"{bounds.streams:,}",
            f"{bounds.not_completed:,.0f}",
            f"above {seconds(bounds.low_s)}{upper}",
            ABSENT if bounds.ended is None else percent(bounds.ended / bounds.streams),
        )
    shown.print(table)
    shown.print()
    for note in notes:
        shown.print(note, style="dim", soft_wrap=True)
    for each in found:
        name = ", ".join(part for part in (each.model, each.operation) if part)
        shown.print(f"{name}: {fleet_timeout_verdict(each)}", style="bold", soft_wrap=True, markup=False)
    for code in _codes(found):
        if code["code"] is not None:
            shown.print(code["code"], soft_wrap=True, markup=False)
    shown.print(OTHER_SETTINGS, style="dim", soft_wrap=True)
