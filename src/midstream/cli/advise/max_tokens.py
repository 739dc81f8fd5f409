"""`midstream advise max-tokens`: the smallest limit that cuts hardly any answer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from midstream._support.statistics import CONFIDENCE
from midstream.advice.limits import advise_max_tokens
from midstream.advice.reserving import RESERVING
from midstream.advice.survival import Quantile
from midstream.cli.advise.fleet import advise_fleet, refuse_with_prometheus
from midstream.cli.advise.limits_plot import plot_limits
from midstream.cli.advise.limits_show import document, show
from midstream.cli.advise.options import NOT_ENOUGH, JsonOption, parse_share, print_json
from midstream.cli.common.journal_options import StreamOptions
from midstream.cli.common.option_groups import with_option_groups
from midstream.cli.common.plots import PlotOption, check_plot
from midstream.cli.common.prometheus_options import PrometheusOptions, source_of
from midstream.cli.common.selection import some_records
from midstream.report.terminal import console


@dataclass(frozen=True, slots=True)
class MaxTokensOptions:
    """The option group of the limit that is looked for."""

    cut: Annotated[str, typer.Option(metavar="SHARE", help="The share of answers that may be cut off.")] = (
        "0.1%"
    )
    limit: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Show what this limit would cut, too; may be repeated.",
            show_default=False,
        ),
    ] = None
    engine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"Only this server: {', '.join(RESERVING)}.", show_default=False),
    ] = None
    together: Annotated[bool, typer.Option("--together", help="One limit for all models and operations.")] = (
        False
    )
    confidence: Annotated[
        float, typer.Option(metavar="X", min=0.5, max=0.999, help="The confidence of the interval.")
    ] = CONFIDENCE

    def share(self) -> float:
        """Return the share that may be cut. Raises BadParameter for one that is none, and for an unknown engine."""
        share = parse_share(self.cut, "--cut")
        if self.engine is not None and self.engine not in RESERVING:
            raise typer.BadParameter(
                f"{self.engine} is not one of {', '.join(RESERVING)}.", param_hint="--engine"
            )
        return share


@with_option_groups
def max_tokens(
    *,
    streams: StreamOptions,
    wanted: MaxTokensOptions,
    fleet: PrometheusOptions,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> int:
    """Choose max_tokens from the lengths that answers really have.

    For each model and operation: the smallest limit that cuts at most a share of answers, how sure that is, and how
    many tokens today's limits reserve and no answer uses. An answer that was cut at its limit, left or broken off
    counts as longer than it is: otherwise a limit that is too low would confirm itself. Exit status: 0 advice, 1
    failed, 2 wrong usage, 3 not enough data for any limit.

    `midstream demo --journal streams.db` makes a journal to try this on, with `--cut 10%`: one in a thousand takes some
    5,800 answers.

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
    share = wanted.share()
    check_plot(plot)
    if fleet.prometheus is not None:
        given = {"--limit": wanted.limit, "--plot": plot, "--together": wanted.together}
        refuse_with_prometheus({"--journal": streams.journal, **given})
        source = source_of(fleet.prometheus, fleet.header)
        return advise_fleet(source, streams, cut=share, confidence=wanted.confidence, as_json=as_json)
    records = some_records(streams)
    advice = advise_max_tokens(
        records,
        cut=share,
        confidence=wanted.confidence,
        limits=wanted.limit or (),
        by_group=not wanted.together,
    )
    if not advice.groups:
        sys.stderr.write(
            f"midstream: none of the {len(records):,} streams shows how long its answer was; ask servers for usage: "
            "stream_options={'include_usage': True}, or monitor(..., include_usage=True)\n"
        )
        return NOT_ENOUGH
    if plot is not None:
        plot_limits(plot, advice.groups)
    engines = tuple(RESERVING) if wanted.engine is None else (wanted.engine,)
    if as_json:
        print_json(document(advice, engines))
    else:
        show(console(120), advice, engines)
    return 0 if any(isinstance(each.limit, Quantile) for each in advice.groups) else NOT_ENOUGH
