"""`midstream report`: tables of recorded streams, or one page that works offline."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from midstream.advice.threshold import threshold_of
from midstream.cli.common.errors import CliError
from midstream.cli.common.http_options import HeaderOption
from midstream.cli.common.journal_options import StreamOptions, losses
from midstream.cli.common.option_groups import with_option_groups
from midstream.cli.common.prometheus_options import PrometheusOption, source_of
from midstream.cli.common.selection import checked_bys, empty, halves_of
from midstream.cli.report.fleet import refuse_with_prometheus, report_fleet
from midstream.cli.report.page import write_page
from midstream.report.before_after import judged, side_by_side
from midstream.report.document import document
from midstream.report.grouping import FIELDS, grouped
from midstream.report.phases import phase_table
from midstream.report.tables import tables
from midstream.report.terminal import console, show
from midstream.report.words import in_words
from midstream.stream.model import FREEZE_AFTER_S, StreamRecord


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What the tables show."""

    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD",
            help=f"Group streams by {', '.join(FIELDS)} or an attribute of yours; may be repeated. [model]",
            show_default=False,
        ),
    ] = None
    top: Annotated[
        int, typer.Option(metavar="N", min=1, help="Rows of a table; the other groups are added up in one.")
    ] = 20


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """A change, before and after which streams are compared."""

    split_at: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Also compare the streams before and after this time.", show_default=False
        ),
    ] = None
    before: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also compare with another journal, from before a change.",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """A Prometheus-compatible API in place of a journal."""

    prometheus: PrometheusOption = None
    header: HeaderOption = None
    freeze_after: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="--prometheus: a gap of this length is a freeze; a bound of the histogram. [5]",
            show_default=False,
        ),
    ] = None


@with_option_groups
def report(
    *,
    streams: StreamOptions,
    fleet: FleetOptions,
    table: TableOptions,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with plots instead of tables.", show_default=False),
    ] = None,
    change: ChangeOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of tables.")
    ] = False,
) -> None:
    """Report recorded streams: gaps, freezes, endings and token limits.

    The journal is what `monitor(journal=FILE)` or MIDSTREAM_JOURNAL writes.
    `midstream demo --journal streams.db` makes one to try this on.

    \u0008
    midstream report --journal streams.db                          all streams, by model
    midstream report --journal streams.db --since 2h --by server   the last two hours, by server
    midstream report --journal streams.db --html report.html       a page with plots, which works offline

    \u0008
    Compare before and after a change; report a whole fleet from its Prometheus (tables only):
      midstream report --journal streams.db --split-at 2026-11-20T14:00 --html report.html
      midstream report --prometheus http://localhost:9090 --since 24h
    """
    if fleet.prometheus is not None:
        _report_fleet(streams, fleet, table, change, html=html, as_json=as_json)
        return
    if fleet.freeze_after is not None:
        raise typer.BadParameter(
            "it goes with --prometheus: a journal's streams have the threshold they were watched with.",
            param_hint="--freeze-after",
        )
    contents = streams.contents()
    records, lost = contents.records, tuple(losses(contents))
    for note in lost:
        sys.stderr.write(f"midstream: {note}\n")
    if not records:
        raise CliError(empty(streams.journal, filtered=streams.filtered))
    bys = checked_bys(records, table.by)
    halves = halves_of(records, change.split_at, change.before, streams)
    if html is not None:
        written = write_page(html, records, bys=bys, top=table.top, halves=halves, lost=lost)
        (sys.stderr if as_json else sys.stdout).write(f"{written}\n")
    if as_json:
        json.dump({**_document(records, bys, halves), "lost": lost}, sys.stdout, indent=2, allow_nan=False)
        sys.stdout.write("\n")
    elif html is None:
        _show(records, bys, table.top, halves)


def _report_fleet(
    streams: StreamOptions,
    fleet: FleetOptions,
    table: TableOptions,
    change: ChangeOptions,
    *,
    html: Path | None,
    as_json: bool,
) -> None:
    """Report from the Prometheus API that `fleet` names. Raises BadParameter for options that need a journal."""
    given = {
        "--journal": streams.journal,
        "--html": html,
        "--split-at": change.split_at,
        "--before": change.before,
    }
    refuse_with_prometheus([name for name, value in given.items() if value is not None])
    report_fleet(
        source_of(fleet.prometheus or "", fleet.header),
        (streams.since, streams.until, streams.where),
        bys=table.by,
        top=table.top,
        freeze_after_s=FREEZE_AFTER_S if fleet.freeze_after is None else fleet.freeze_after,
        as_json=as_json,
    )


def _show(
    records: list[StreamRecord],
    bys: list[str],
    top: int,
    halves: tuple[list[StreamRecord], list[StreamRecord]] | None,
) -> None:
    threshold = threshold_of(records)
    shown = [table for by in bys for table in tables(grouped(records, by, top), threshold)]
    phases = phase_table(records)
    if phases is not None:
        shown.insert(0, phases)
    sentences = list(in_words(records))
    if halves is not None:
        shown.insert(0, side_by_side(*halves))
        sentences.append(judged(*halves))
    show(console(), sentences, shown)


def _document(
    records: list[StreamRecord],
    bys: list[str],
    halves: tuple[list[StreamRecord], list[StreamRecord]] | None,
) -> dict[str, object]:
    found = document(records, bys)
    if halves is not None:
        found["before"], found["after"] = (document(half, []) for half in halves)
        found["verdict"] = judged(*halves)
    return found
