"""`midstream advise max-tokens`: the smallest limit that cuts hardly any answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from midstream.advice.limits import limit_advice
from midstream.advice.reserving import RESERVING
from midstream.advice.survival import Quantile
from midstream.cli.advise.fleet import advise_fleet, refuse_with_prometheus
from midstream.cli.advise.limits_plot import plot_limits
from midstream.cli.advise.limits_show import document, show
from midstream.cli.advise.options import NOT_ENOUGH, JsonOption, check_plot, parse_share
from midstream.cli.common.errors import CliError
from midstream.cli.common.http_options import HeaderOption
from midstream.cli.common.journal_options import (
    JournalOption,
    SinceOption,
    UntilOption,
    WhereOption,
    chosen_records,
)
from midstream.cli.common.plots import ENDINGS
from midstream.cli.common.prometheus_options import PrometheusOption, source_of
from midstream.cli.common.selection import empty


def max_tokens(
    *,
    journal: JournalOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    where: WhereOption = None,
    cut: Annotated[
        str, typer.Option(metavar="SHARE", help="The share of answers that may be cut off.")
    ] = "0.1%",
    limit: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Say what this limit would cut, too; may be repeated.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"Only this server: {', '.join(RESERVING)}.", show_default=False),
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="One limit for all models and operations.")
    ] = False,
    confidence: Annotated[
        float, typer.Option(metavar="X", min=0.5, max=0.999, help="How sure the interval is.")
    ] = 0.95,
    prometheus: PrometheusOption = None,
    header: HeaderOption = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw lengths and limits into a .png or .svg file.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Choose max_tokens from the lengths that answers really have.

    For each model and operation: the smallest limit that cuts at most a share of answers, how sure that is, and how
    much today's limits reserve for nothing. An answer that was cut at its limit, left or broken off counts as longer
    than it is, not as it stands: otherwise a limit that is too low would confirm itself. Exit status: 0 advice, 1
    failed, 2 wrong usage, 3 not enough data for any limit.

    `midstream demo --journal streams.db` makes a journal to try this on; its 16 answers are too few for a limit, and
    you see how that is said.

    \u0008
    From the journal of the last week, at most one answer in a thousand cut:
      midstream advise max-tokens --journal streams.db --since 7d

    \u0008
    A fleet, from its metrics, as exactly as their buckets are:
      midstream advise max-tokens --prometheus localhost:9090 --since 7d

    \u0008
    One model, one in a hundred, and what 2,048 would cut, with a picture:
      midstream advise max-tokens --journal streams.db --where model=demo --cut 1% --limit 2048 --plot lengths.png
    """
    share = parse_share(cut, "--cut")
    check_plot(plot, ENDINGS)
    if engine is not None and engine not in RESERVING:
        raise typer.BadParameter(f"{engine} is not one of {', '.join(RESERVING)}.", param_hint="--engine")
    if prometheus is not None:
        given = {"--journal": journal, "--limit": limit, "--plot": plot, "--together": together or None}
        refuse_with_prometheus(given)
        return advise_fleet(
            source_of(prometheus, header),
            since,
            until,
            where,
            cut=share,
            confidence=confidence,
            as_json=as_json,
        )
    records = chosen_records(journal, since, until, where)
    if not records:
        raise CliError(empty(journal, filtered=bool(since or until or where)))
    advised, silent = limit_advice(
        records, cut=share, confidence=confidence, limits=limit or (), by_group=not together
    )
    if not advised:
        sys.stderr.write(
            f"midstream: none of the {len(records):,} streams says how long its answer was; ask servers for usage: "
            "stream_options={'include_usage': True}, or monitor(..., include_usage=True)\n"
        )
        return NOT_ENOUGH
    if plot is not None:
        plot_limits(plot, advised)
    engines = tuple(RESERVING) if engine is None else (engine,)
    if as_json:
        json.dump(document(advised, silent, engines), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        console = Console(
            highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 120
        )
        show(console, advised, silent, engines)
    return 0 if any(isinstance(each.limit, Quantile) for each in advised) else NOT_ENOUGH
