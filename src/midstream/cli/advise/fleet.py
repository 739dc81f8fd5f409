"""`midstream advise --prometheus`: limits and caps from the metrics of a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import typer
from rich.table import Table

from midstream._support.numbers import percent
from midstream.advice.fleet_limits import BY, fleet_caps, fleet_limit_verdict, fleet_limits
from midstream.advice.pool import Pool
from midstream.cli.advise.options import NOT_ENOUGH, print_json
from midstream.cli.common.errors import CliError
from midstream.cli.common.journal_options import StreamOptions
from midstream.cli.common.prometheus_options import fleet_of
from midstream.report.terminal import console
from midstream.sources.prometheus import PrometheusSource


def refuse_with_prometheus(given: Mapping[str, object]) -> None:
    """Raise BadParameter for options that need single streams."""
    for option, value in given.items():
        if value:
            raise typer.BadParameter(
                "it does not go with --prometheus: metrics hold no single streams.", param_hint=option
            )


def advise_fleet(
    source: PrometheusSource,
    streams: StreamOptions,
    *,
    cut: float,
    confidence: float,
    as_json: bool,
) -> int:
    """Print the bounds of the limit for each model, and return the exit status."""
    with source:
        fleet = fleet_of(source, streams.since, streams.until, streams.where, by=BY)
    limits, silent = fleet_limits(fleet.summaries, cut, confidence)
    if not limits:
        raise CliError(
            "the metrics hold no lengths of answers in that time; widen --since, or ask servers for usage: "
            "stream_options={'include_usage': True}, or monitor(..., include_usage=True)"
        )
    if as_json:
        groups = [{**asdict(limit), "verdict": fleet_limit_verdict(limit)} for limit in limits]
        document = {"groups": groups, "groups_without_lengths": silent, "notes": list(fleet.notes)}
        print_json(document)
    else:
        shown = console(120)
        table = Table(box=None, pad_edge=False)
        for heading in ("model", "operation", "answers", "ended early", f"limit that cuts {percent(cut)}"):
            table.add_column(
                heading, justify="left" if heading in ("model", "operation") else "right", no_wrap=True
            )
        for limit in limits:
            bounds = limit.bounds
            upper = "" if bounds.high is None else f", up to {bounds.high:,.0f}"
            table.add_row(
                limit.model,
                limit.operation,
                f"{bounds.answers:,}",
                percent(bounds.cut_off_share),
                f"above {bounds.low:,.0f}{upper}",
            )
        shown.print(table)
        shown.print()
        for note in fleet.notes:
            shown.print(note, style="dim", soft_wrap=True)
        for limit in limits:
            name = ", ".join(part for part in (limit.model, limit.operation) if part)
            shown.print(f"{name}: {fleet_limit_verdict(limit)}", style="bold", soft_wrap=True)
    return 0 if any(limit.bounds.high is not None for limit in limits) else NOT_ENOUGH


def cap_fleet(
    source: PrometheusSource,
    streams: StreamOptions,
    *,
    pool: Pool,
    as_json: bool,
) -> int:
    """Print the caps by the lengths alone, and return the exit status."""
    with source:
        total = fleet_of(source, streams.since, streams.until, streams.where).total
    try:
        limits = fleet_caps(total, pool.tokens)
    except ValueError as error:
        raise CliError(f"{error}: monitor(..., include_usage=True)") from error
    verdict = (
        f"Let at most {limits.average} run at once: the cache holds so many average requests ({limits.never}: no "
        "preemption even if long answers run at the same time). With a journal, a simulation finds the cap between "
        "the two, and its cost."
    )
    if as_json:
        print_json({"pool": asdict(pool), "caps": asdict(limits), "verdict": verdict})
    else:
        shown = console(120)
        shown.print(f"KV cache: {pool.tokens:,} tokens ({pool.source})", soft_wrap=True)
        shown.print(verdict, style="bold", soft_wrap=True)
    return 0
