"""The options that every command about recorded streams has in common: which journal, from when, which streams."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from midstream.cli.common.errors import CliError
from midstream.journal import JournalContents
from midstream.sources.select import SelectionError, contents_from
from midstream.stream.model import StreamRecord

JournalOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        help="The journal. [MIDSTREAM_JOURNAL]",
        readable=False,  # not checked here: the journal's own sentence says more
        show_default=False,
    ),
]
SinceOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="WHEN", help="Streams from then on: 2h, 7d, 2026-11-01T14:30.", show_default=False
    ),
]
UntilOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="Streams before then.", show_default=False),
]
WhereOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="NAME=VALUE",
        help="Only these: model=, server=, operation=, or an attribute as in team=search; may be repeated.",
        show_default=False,
    ),
]


def chosen_records(
    journal: Path | None, since: str | None, until: str | None, where: Sequence[str] | None
) -> list[StreamRecord]:
    """Return the streams that the options choose, oldest first; what the journal lost is said on standard error.

    Raises CliError, or BadParameter for the options.
    """
    contents = chosen_contents(journal, since, until, where)
    for note in losses(contents):
        sys.stderr.write(f"midstream: {note}\n")
    return contents.records


def chosen_contents(
    journal: Path | None, since: str | None, until: str | None, where: Sequence[str] | None
) -> JournalContents:
    """Return the same, together with what the journal lost."""
    try:
        return contents_from(journal, since, until, where or ())
    except SelectionError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--since, --until or --where") from error
    except ValueError as error:
        raise CliError(str(error)) from error


def losses(contents: JournalContents) -> Iterator[str]:
    """Say what is missing from the streams of this span of time."""
    if contents.skipped:
        rows = "row is" if contents.skipped == 1 else "rows are"
        yield f"{contents.skipped} {rows} damaged and left out"
    if contents.dropped:
        yield (
            f"{contents.dropped} more streams are missing: the journal could not be written fast enough, or at all"
        )
