"""`midstream report`: tables of recorded streams, or one page that works offline."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from midstream.advice.threshold import threshold_of
from midstream.cli.common.errors import CliError
from midstream.cli.common.http_options import HeaderOption
from midstream.cli.common.journal_options import (
    JournalOption,
    SinceOption,
    UntilOption,
    WhereOption,
    chosen_contents,
    losses,
)
from midstream.cli.common.prometheus_options import PrometheusOption, source_of
from midstream.cli.common.selection import checked_bys, empty, halves_of
from midstream.cli.report.fleet import refuse_with_prometheus, report_fleet
from midstream.cli.report.page import write_page
from midstream.report.before_after import judged, side_by_side
from midstream.report.document import document
from midstream.report.grouping import FIELDS, grouped
from midstream.report.tables import tables
from midstream.report.terminal import console, show
from midstream.report.words import in_words
from midstream.stream.model import FREEZE_AFTER_S, StreamRecord


def report(
    *,
    journal: JournalOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    where: WhereOption = None,
    prometheus: PrometheusOption = None,
    header: HeaderOption = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            help=f"Tell streams apart by {', '.join(FIELDS)} or an attribute of yours; may be repeated. "
            "Without it: by model.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(metavar="N", min=1, help="Rows of a table; the others are taken together.")
    ] = 20,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with plots instead of tables.", show_default=False),
    ] = None,
    split_at: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Also show the streams before and after then apart.", show_default=False
        ),
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Another journal, from before a change, to show beside.", show_default=False
        ),
    ] = None,
    freeze_after: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="--prometheus: silence that counts as a freeze; a bound of the histogram. Without it: 5.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of tables.")
    ] = False,
) -> None:
    """Show what recorded streams were like: silences, freezes, endings, limits.

    The journal is what `monitor(journal=FILE)` or MIDSTREAM_JOURNAL writes.
    `midstream demo --journal streams.db` makes one to try this on.

    \u0008
    midstream report --journal streams.db                          everything, by model
    midstream report --journal streams.db --since 2h --by server   lately, by server
    midstream report --journal streams.db --html report.html       a page with plots, for whoever asks

    \u0008
    Did the change at that time help? And a whole fleet, from its Prometheus, tables only:
      midstream report --journal streams.db --split-at 2026-11-20T14:00 --html report.html
      midstream report --prometheus http://localhost:9090 --since 24h
    """
    if prometheus is not None:
        given = {"--journal": journal, "--html": html, "--split-at": split_at, "--before": before}
        refuse_with_prometheus([name for name, value in given.items() if value is not None])
        report_fleet(
            source_of(prometheus, header),
            since,
            until,
            where,
            bys=by,
            top=top,
            freeze_after_s=FREEZE_AFTER_S if freeze_after is None else freeze_after,
            as_json=as_json,
        )
        return
    if freeze_after is not None:
        raise typer.BadParameter(
            "it goes with --prometheus: a journal's streams have the threshold they were watched with.",
            param_hint="--freeze-after",
        )
    contents = chosen_contents(journal, since, until, where)
    records, lost = contents.records, tuple(losses(contents))
    for note in lost:
        sys.stderr.write(f"midstream: {note}\n")
    if not records:
        raise CliError(empty(journal, filtered=bool(since or until or where)))
    bys = checked_bys(records, by)
    halves = halves_of(records, split_at, before, since=since, until=until, where=where)
    if html is not None:
        said = write_page(html, records, bys=bys, top=top, halves=halves, lost=lost)
        (sys.stderr if as_json else sys.stdout).write(f"{said}\n")
    if as_json:
        json.dump({**_document(records, bys, halves), "lost": lost}, sys.stdout, indent=2, allow_nan=False)
        sys.stdout.write("\n")
    elif html is None:
        _show(records, bys, top, halves)


def _show(
    records: list[StreamRecord],
    bys: list[str],
    top: int,
    halves: tuple[list[StreamRecord], list[StreamRecord]] | None,
) -> None:
    threshold = threshold_of(records)
    shown = [table for by in bys for table in tables(grouped(records, by, top), threshold)]
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
