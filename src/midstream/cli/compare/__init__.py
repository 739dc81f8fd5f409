"""`midstream compare`: whether a change helped, and what it cost."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from midstream._support.numbers import moment as written
from midstream.advice.before_after import compare as compared_of
from midstream.advice.before_after import sides_of_records
from midstream.advice.comparison import CompareGoal, Side
from midstream.advice.sides import side_of_fleet
from midstream.cli.common.errors import CliError
from midstream.cli.common.journal_options import StreamOptions, chosen_records
from midstream.cli.common.option_groups import with_option_groups
from midstream.cli.common.prometheus_options import PrometheusOptions, fleet_of, source_of
from midstream.cli.compare.show import document, show
from midstream.cli.compare.spans import Span, as_long_before, spans_of
from midstream.report.terminal import console
from midstream.sources.prometheus import PrometheusSource
from midstream.stream.model import FREEZE_AFTER_S, StreamRecord

STATUSES = {"better": 0, "unchanged": 0, "worse": 3, "cannot tell": 4}


@dataclass(frozen=True, slots=True)
class SpanOptions:
    """The option group of the two spans of time."""

    at: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="When the change was made: 2h (ago), 2026-11-01T14:30.", show_default=False
        ),
    ] = None
    before: Annotated[
        str | None,
        typer.Option(
            metavar="FROM..TO", help="The time before the change, as in 3d..2d.", show_default=False
        ),
    ] = None
    after: Annotated[
        str | None,
        typer.Option(metavar="FROM..TO", help="The time after it, as in 1d..now.", show_default=False),
    ] = None


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """The option group of what counts as good."""

    give_up: Annotated[float, typer.Option(metavar="PERCENT", help="Tokens per second that may be lost.")] = (
        10.0
    )
    bearable: Annotated[
        float, typer.Option(metavar="SECONDS", help="Acceptable time to first content (TTFT, p95).")
    ] = 10.0
    margin: Annotated[
        float,
        typer.Option(
            metavar="POINTS", help="Change of the share of frozen streams, in percent, that does not matter."
        ),
    ] = 1.0
    freeze_after: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Gap from which a stream counts as frozen. Without it: as recorded, or 5.",
            show_default=False,
        ),
    ] = None

    def goal(self) -> CompareGoal:
        """Return them, checked. Raises BadParameter."""
        if self.freeze_after is not None:
            _number(self.freeze_after, "--freeze-after")
        return CompareGoal(
            give_up=_number(self.give_up, "--give-up", 100) / 100,
            bearable_s=_number(self.bearable, "--bearable"),
            margin=_number(self.margin, "--margin", 100) / 100,
        )


@with_option_groups
def compare(
    journals: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[BEFORE] [AFTER]", help="Two journals, instead of two spans of time.", show_default=False
        ),
    ] = None,
    *,
    spans: SpanOptions,
    streams: StreamOptions,
    fleet: PrometheusOptions,
    wanted: GoalOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of a table.")
    ] = False,
) -> int:
    """Tell whether a change helped: whether freezes and the longest gaps fell, and what it cost.

    Compares two spans of a journal, two journals, or two spans of a Prometheus-compatible server. Everything has
    a 95 % interval. Exit status: 0 better or no difference, 3 worse, 4 too little data to tell.

    The journal is what `monitor(journal=FILE)` or MIDSTREAM_JOURNAL writes. `midstream demo --journal streams.db` makes
    one with a change in it, and prints the command that compares its sides.

    \u0008
    All that the journal holds, split two hours ago; or two spans of it:
      midstream compare --journal streams.db --at 2h
      midstream compare --journal streams.db --before 3d..2d --after 1d..now

    \u0008
    Two journals, each written by its own monitor(journal=FILE):
      midstream compare before.db after.db

    \u0008
    A fleet, from its metrics, as long before as after:
      midstream compare --prometheus localhost:9090 --at 2h --where model=big
    """
    goal = wanted.goal()
    if journals:
        sides = _of_journals(journals, spans, streams, fleet, wanted.freeze_after)
    else:
        both = spans_of(spans.at, spans.before, spans.after, Span(streams.since, streams.until), time.time())
        if fleet.prometheus is None:
            chosen = [chosen_records(streams.journal, span.since, span.until, streams.where) for span in both]
            sides = _of_records(chosen, [span.words for span in both], wanted.freeze_after)
        elif streams.journal is not None:
            raise typer.BadParameter("choose one of them.", param_hint="--journal, --prometheus")
        else:
            with source_of(fleet.prometheus, fleet.header) as source:
                sides = _of_fleets(source, both, streams.where, wanted.freeze_after or FREEZE_AFTER_S)
    compared = compared_of(*sides, goal)
    if as_json:
        json.dump(document(*sides, compared, goal), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        show(console(), *sides, compared, goal)
    return STATUSES[compared.verdict]


def _of_journals(
    journals: Sequence[Path],
    spans: SpanOptions,
    streams: StreamOptions,
    fleet: PrometheusOptions,
    threshold: float | None,
) -> tuple[Side, Side]:
    others = (spans.at, spans.before, spans.after, streams.journal, streams.since, streams.until)
    if any(given is not None for given in (*others, fleet.prometheus)):
        raise typer.BadParameter(
            "two journals are compared as a whole; leave out --journal, --prometheus, and the times.",
            param_hint="BEFORE AFTER",
        )
    if len(journals) != 2:
        raise typer.BadParameter(
            "give two journals: the one before, and the one after.", param_hint="BEFORE AFTER"
        )
    chosen = [chosen_records(path, None, None, streams.where) for path in journals]
    return _of_records(chosen, [str(path) for path in journals], threshold)


def _of_records(
    chosen: Sequence[list[StreamRecord]], words: Sequence[str], threshold: float | None
) -> tuple[Side, Side]:
    begun = [record.started_at for records in chosen for record in records]
    for records, where in zip(chosen, words, strict=True):
        if not records:
            others = (
                f", those on the other side began from {written(min(begun))} to {written(max(begun))}"
                if begun
                else ""
            )
            raise CliError(f"there are no streams in {where}{others}; choose another time, or other streams")
    return sides_of_records(chosen[0], chosen[1], threshold)


def _of_fleets(
    source: PrometheusSource, spans: tuple[Span, Span], where: Sequence[str] | None, threshold: float
) -> tuple[Side, Side]:
    sides = []
    for span in as_long_before(*spans, time.time()):
        fleet = fleet_of(source, span.since, span.until, where, freeze_after_s=threshold)
        try:
            sides.append(side_of_fleet(fleet, threshold))
        except ValueError as error:
            raise CliError(f"{source.url}: {error}, in {span.words}") from error
    return sides[0], sides[1]


def _number(value: float, option: str, most: float = math.inf) -> float:
    if not (math.isfinite(value) and 0 < value <= most):
        limit = f" and up to {most:g}" if most < math.inf else ""
        raise typer.BadParameter(f"{value:g} is not a number above 0{limit}.", param_hint=option)
    return value
