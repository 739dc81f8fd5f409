"""The options that every command about recorded streams has in common: which journal, from when, which streams."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from midstream._support.sanitize import clean
from midstream.cli.common.errors import CliError
from midstream.cli.common.reading import reading
from midstream.journal import JournalContents
from midstream.report.grouping import attribute_names
from midstream.sources.select import SelectionError, attribute_of, contents_from, journal_path
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
        "--since",
        metavar="WHEN",
        help="Streams that began at this time or later: 2h or 7d ago, 2026-11-01T14:30.",
        show_default=False,
    ),
]
UntilOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="Streams that began before this time.", show_default=False),
]
WhereOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="NAME=VALUE",
        help="Only streams with model=, server=, operation=, or an attribute as in team=search; may be repeated.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Which streams of which journal."""

    journal: JournalOption = None
    since: SinceOption = None
    until: UntilOption = None
    where: WhereOption = None

    @property
    def filtered(self) -> bool:
        """Whether only some of the journal's streams are chosen."""
        return bool(self.since or self.until or self.where)

    def contents(self) -> JournalContents:
        """Return the streams, oldest first, and what the journal lost. Raises CliError or BadParameter."""
        return chosen_contents(self.journal, self.since, self.until, self.where)

    def records(self) -> list[StreamRecord]:
        """Return the streams, oldest first; print what the journal lost. Raises CliError or BadParameter."""
        return chosen_records(self.journal, self.since, self.until, self.where)


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
        with reading(journal_path(journal)) as progress:
            contents = contents_from(journal, since, until, where or (), progress)
        _check_attributes(journal, where or (), contents.records)
    except SelectionError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--since, --until or --where") from error
    except ValueError as error:
        raise CliError(str(error)) from error
    return contents


def _check_attributes(journal: Path | None, where: Sequence[str], chosen: Sequence[StreamRecord]) -> None:
    """Raise CliError for an attribute that no stream of the journal has: most likely a slip of the pen."""
    unseen = [
        name
        for name in map(attribute_of, where)
        if name is not None and not any(name in record.attributes for record in chosen)
    ]
    everything = contents_from(journal, None, None, ()).records if unseen else []
    names = attribute_names(everything)
    for name in unseen:
        if everything and name not in names:
            there = f"there are {', '.join(map(clean, names))}" if names else "no stream has any"
            raise CliError(f"no stream in {journal_path(journal)} has an attribute {clean(name)!r}; {there}")


def losses(contents: JournalContents) -> Iterator[str]:
    """Say what is missing from the streams of this span of time."""
    if contents.skipped:
        rows = "row is" if contents.skipped == 1 else "rows are"
        yield f"{contents.skipped} {rows} damaged and left out"
    if contents.dropped:
        yield (
            f"{contents.dropped} more streams are missing: the journal could not be written fast enough, or at all"
        )
