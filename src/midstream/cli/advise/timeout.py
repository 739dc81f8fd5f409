"""`midstream advise timeout`: the stall timeout that ends hardly any stream that would have gone on."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from midstream._support.statistics import CONFIDENCE
from midstream.advice.timeouts import TimeoutValue, advise_timeout
from midstream.cli.advise.fleet import refuse_with_prometheus
from midstream.cli.advise.options import NOT_ENOUGH, JsonOption, parse_seconds, parse_share, print_json
from midstream.cli.advise.timeout_fleet import advise_fleet_timeout
from midstream.cli.advise.timeout_plot import plot_timeouts
from midstream.cli.advise.timeout_show import document, show
from midstream.cli.common.journal_options import StreamOptions
from midstream.cli.common.option_groups import with_option_groups
from midstream.cli.common.plots import PlotOption, check_plot
from midstream.cli.common.prometheus_options import PrometheusOptions, source_of
from midstream.cli.common.selection import some_records
from midstream.report.terminal import console


@dataclass(frozen=True, slots=True)
class TimeoutOptions:
    """The option group of the timeout that is looked for."""

    kill: Annotated[
        str,
        typer.Option(metavar="SHARE", help="The share of streams that would go on, and may be ended."),
    ] = "0.1%"
    timeout: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME",
            help="Show what this timeout would have done, too, as in 45s; may be repeated.",
            show_default=False,
        ),
    ] = None
    together: Annotated[
        bool, typer.Option("--together", help="One timeout by phase for all models and operations.")
    ] = False
    confidence: Annotated[
        float, typer.Option(metavar="X", min=0.5, max=0.999, help="The confidence of the interval.")
    ] = CONFIDENCE

    def timeouts_s(self) -> list[float]:
        """Return the timeouts that were asked about, in seconds. Raises BadParameter for one that is none."""
        found = [parse_seconds(each, "--timeout") for each in self.timeout or ()]
        if not all(found):
            raise typer.BadParameter("a timeout is longer than 0 s.", param_hint="--timeout")
        return found


@with_option_groups
def timeout(
    *,
    streams: StreamOptions,
    wanted: TimeoutOptions,
    fleet: PrometheusOptions,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> int:
    """Choose the stall timeout from the gaps that streams really had.

    For each model, operation and phase, and for the first content: the shortest timeout that ends at most a share of
    the streams that would have gone on by themselves, how sure that is, what it would have ended and the waiting that
    it would have saved. A gap that was left, cancelled, timed out or cut off may have gone on or not: survival analysis
    tells the two apart as far as the data allow. Exit status: 0 advice, 1 failed, 2 wrong usage, 3 not enough data for
    any timeout.

    `midstream demo --journal streams.db` makes a journal to try this on, with `--kill 10%`: one in a thousand takes
    some 5,800 streams.

    \u0008
    From the journal of the last week, at most one stream in a thousand ended that would have gone on:
      midstream advise timeout --journal streams.db --since 7d

    \u0008
    A fleet, from its metrics, as exactly as their buckets are:
      midstream advise timeout --prometheus localhost:9090 --since 7d

    \u0008
    One model, one in a hundred, and what 45 seconds would do, with a picture:
      midstream advise timeout --journal streams.db --where model=demo --kill 1% --timeout 45s --plot gaps.png
    """
    kill, timeouts_s = parse_share(wanted.kill, "--kill"), wanted.timeouts_s()
    check_plot(plot)
    if fleet.prometheus is not None:
        given = {"--timeout": wanted.timeout, "--plot": plot, "--together": wanted.together}
        refuse_with_prometheus({"--journal": streams.journal, **given})
        source = source_of(fleet.prometheus, fleet.header)
        return advise_fleet_timeout(source, streams, kill=kill, confidence=wanted.confidence, as_json=as_json)
    records = some_records(streams)
    advice = advise_timeout(
        records,
        kill=kill,
        confidence=wanted.confidence,
        timeouts_s=timeouts_s,
        by_group=not wanted.together,
    )
    if not advice.groups:
        sys.stderr.write(
            f"midstream: none of the {len(records):,} streams shows how long it waited: their answers came in one "
            "piece, or something on the way held them back (docs/troubleshooting.md)\n"
        )
        return NOT_ENOUGH
    if plot is not None:
        plot_timeouts(plot, advice.groups)
    if as_json:
        print_json(document(advice))
    else:
        show(console(120), advice)
    advised = (wait.value for group in advice.groups for wait in group.waits)
    return 0 if any(isinstance(value, TimeoutValue) for value in advised) else NOT_ENOUGH
