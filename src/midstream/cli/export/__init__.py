"""`midstream export`: the streams of a journal, for whatever reads CSV, JSON Lines or Parquet."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from midstream.cli.common.errors import CliError, spare_databases, unwritten
from midstream.cli.common.journal_options import (
    JournalOption,
    SinceOption,
    UntilOption,
    WhereOption,
    chosen_records,
)
from midstream.cli.common.plain_help import choices
from midstream.cli.common.selection import empty
from midstream.cli.export.formats import TEXT_FORMATS, Format, write_parquet
from midstream.stream.model import StreamRecord

_ENDINGS = {".csv": Format.CSV, ".jsonl": Format.JSONL, ".ndjson": Format.JSONL, ".parquet": Format.PARQUET}
_OTHERS = {".xlsx", ".xls", ".ods", ".json", ".feather", ".arrow", ".avro", ".db", ".sqlite", ".html"}
"""Endings that promise something that is not written here; whatever else a file is called, it is CSV."""


def export(
    *,
    journal: JournalOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    where: WhereOption = None,
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format",
            metavar=choices(Format),
            help="By default what the file's ending says, else csv.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write there instead of standard output.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Export the streams of a journal, one row each: CSV, JSON Lines or Parquet.

    In CSV text stands in quotes, and what is not known is empty; lists are JSON. Parquet goes into a file and needs
    pip install 'midstream[parquet]'.

    The journal is what `monitor(journal=FILE)` or MIDSTREAM_JOURNAL writes.
    `midstream demo --journal streams.db` makes one to try this on.

    \u0008
    midstream export --journal streams.db > streams.csv          for a spreadsheet
    midstream export --journal streams.db -o streams.parquet     for pandas, DuckDB, Polars
    midstream export --journal streams.db --where model=demo --format jsonl | jq .max_gap_s
    """
    chosen = format_ or (_ENDINGS.get(output.suffix.lower()) if output is not None else None) or Format.CSV
    if output is None and chosen is Format.PARQUET:
        raise typer.BadParameter("parquet goes into a file; give -o FILE.", param_hint="--format")
    if output is not None:
        spare_databases(output)
        if format_ is None and output.suffix.lower() in _OTHERS:
            known = ", ".join(_ENDINGS)
            raise typer.BadParameter(
                f"{output.suffix} is none of {known}; end it so, or say --format.", param_hint="--output"
            )
    if chosen is Format.PARQUET:
        import pyarrow as pa  # noqa: F401, PLC0415 - before the work, not after it
    records = chosen_records(journal, since, until, where)
    if not records:
        raise CliError(empty(journal, filtered=bool(since or until or where)))
    if output is None:
        _print(records, chosen)
        return
    with _replacing(output, chosen) as file:
        _write(records, chosen, file)
    rows = "1 stream" if len(records) == 1 else f"{len(records)} streams"
    sys.stderr.write(f"midstream: {rows} in {output}\n")


def _print(records: Sequence[StreamRecord], chosen: Format) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as in a file: nothing may be lost, wherever it is printed
    try:
        TEXT_FORMATS[chosen](records, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more
        raise CliError(f"standard output cannot be written: {error.strerror}") from error


def _write(records: Sequence[StreamRecord], chosen: Format, file: IO[Any]) -> None:
    if chosen is Format.PARQUET:
        write_parquet(records, file)
    else:
        TEXT_FORMATS[chosen](records, file)


@contextmanager
def _replacing(output: Path, chosen: Format) -> Iterator[IO[Any]]:
    """A file beside the one that is meant, which takes its place once it is whole."""
    text: dict[str, Any] = {} if chosen is Format.PARQUET else {"encoding": "utf-8", "newline": ""}
    mode = "w" if text else "wb"
    try:
        meant = output.resolve()
        if meant.exists() and not meant.is_file():  # a pipe, /dev/null
            with meant.open(mode, **text) as file:
                yield file
            return
        descriptor, name = tempfile.mkstemp(dir=meant.parent, prefix=f".{meant.name}.")
        try:
            with open(descriptor, mode, **text) as file:
                yield file
            os.replace(name, meant)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise unwritten(output, error) from error
