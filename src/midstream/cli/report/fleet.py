"""The tables of `midstream report --prometheus`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence

import typer

from midstream._support.sanitize import clean
from midstream.cli.common.errors import CliError
from midstream.cli.common.prometheus_options import fleet_of
from midstream.report.fleet import LABELS, fleet_in_words, fleet_tables
from midstream.report.fleet_document import fleet_document
from midstream.report.terminal import console, show
from midstream.sources.prometheus import PrometheusSource


def refuse_with_prometheus(given: Sequence[str]) -> None:
    """Raise BadParameter for options that need single streams, or another source."""
    for option in given:
        why = {
            "--html": "metrics hold no single streams: a page with plots needs a journal.",
            "--journal": "the numbers come from one or the other.",
        }.get(option, "`midstream compare --prometheus` compares two times.")
        raise typer.BadParameter(f"it does not go with --prometheus: {why}", param_hint=option)


def report_fleet(
    source: PrometheusSource,
    chosen: tuple[str | None, str | None, Sequence[str] | None],
    *,
    bys: Sequence[str] | None,
    top: int,
    freeze_after_s: float,
    as_json: bool,
) -> None:
    """Query the API once for each field to group by, and print the result; `chosen` is --since, --until, --where."""
    if not (math.isfinite(freeze_after_s) and freeze_after_s > 0):
        raise typer.BadParameter(
            f"{freeze_after_s} is not a positive number of seconds.", param_hint="--freeze-after"
        )
    by_fields = list(dict.fromkeys(bys or ["model"]))
    labels = {by: LABELS.get(by, by) for by in by_fields}
    with source:
        fleets = {}
        for by, label in labels.items():
            fleet = fleet_of(source, *chosen, by=(label,), freeze_after_s=freeze_after_s)
            if by not in LABELS and not any(each.labels.get(label) for each in fleet.summaries):
                raise CliError(
                    f"no stream in {source.url} has a label {clean(by)!r} in this time; --by takes "
                    f"{', '.join(LABELS)} or a label of its metrics"
                )
            fleets[by] = fleet
    words = fleet_in_words(fleets[by_fields[0]], freeze_after_s)
    if as_json:
        json.dump(
            fleet_document(fleets, labels, freeze_after_s, words), sys.stdout, indent=2, allow_nan=False
        )
        sys.stdout.write("\n")
        return
    shown = [
        table
        for by, fleet in fleets.items()
        for table in fleet_tables(fleet, by, labels[by], top, freeze_after_s)
    ]
    show(console(), words, shown)
