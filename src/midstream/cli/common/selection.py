"""What a report is about, checked: the fields to group by, the two halves, and the sentence for no streams."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from midstream._support.numbers import moment as written
from midstream._support.numbers import plural, zone_name
from midstream._support.sanitize import clean
from midstream.cli.common.errors import CliError
from midstream.cli.common.journal_options import StreamOptions, chosen_records
from midstream.report.grouping import FIELDS, attribute_names
from midstream.sources.select import SelectionError, journal_path, moment
from midstream.stream.model import StreamRecord


def checked_bys(records: Sequence[StreamRecord], asked: list[str] | None) -> list[str]:
    """Return the fields to group by, each once. Raises CliError for an attribute that no stream has."""
    bys = list(dict.fromkeys(asked or ["model"]))
    names = attribute_names(records)
    for by in bys:
        if by not in FIELDS and by not in names:
            there = f"there are {', '.join(map(clean, names))}" if names else "they have none at all"
            raise CliError(
                f"no stream has an attribute {clean(by)!r}, {there}; --by takes {', '.join(FIELDS)} or an attribute"
            )
    return bys


def some_records(streams: StreamOptions) -> list[StreamRecord]:
    """Return the chosen streams, oldest first. Raises CliError if there is none."""
    records = streams.records()
    if not records:
        raise CliError(empty(streams.journal, filtered=streams.filtered))
    return records


def empty(journal: Path | None, *, filtered: bool) -> str:
    """Return why there is nothing to report, and what to do."""
    path = journal_path(journal)
    everything = chosen_records(journal, None, None, None) if filtered else []
    if not everything:
        return (
            f"{path} holds no streams yet; a program writes one when each stream ends, if it calls "
            "monitor(..., journal=FILE) or runs with MIDSTREAM_JOURNAL set"
        )
    first, last = everything[0].started_at, everything[-1].started_at
    return (
        f"no stream in {path} matches: its {plural(len(everything), 'stream')} began from {written(first)} to "
        f"{written(last)} ({zone_name(last)}); give another --since, --until or --where"
    )


def halves_of(
    records: list[StreamRecord],
    split_at: str | None,
    before: Path | None,
    streams: StreamOptions,
) -> tuple[list[StreamRecord], list[StreamRecord]] | None:
    """Return the streams from before a change and after it; None if not asked for. Raises CliError if one is empty."""
    if split_at is not None and before is not None:
        raise typer.BadParameter("--split-at and --before exclude each other.", param_hint="--split-at")
    if before is not None:
        earlier = replace(streams, journal=before).records()
        if not earlier:
            raise CliError(empty(before, filtered=streams.filtered))
        return earlier, records
    if split_at is None:
        return None
    try:
        at = moment(split_at, time.time())
    except SelectionError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--split-at") from error
    halves = (
        [record for record in records if record.started_at < at],
        [record for record in records if record.started_at >= at],
    )
    if not all(halves):
        side = "before" if not halves[0] else "from"
        raise CliError(
            f"no stream began {side} {written(at)}, where --split-at divides: they began from "
            f"{written(records[0].started_at)} to {written(records[-1].started_at)} ({zone_name(at)})"
        )
    return halves
