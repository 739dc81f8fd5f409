"""`midstream export`: the streams of a journal as CSV, JSON Lines or Parquet."""

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
from midstream.cli.common.interrupts import exiting_at_once
from midstream.cli.common.journal_options import StreamOptions
from midstream.cli.common.option_groups import with_option_groups
from midstream.cli.common.plain_help import choices
from midstream.cli.common.selection import empty
from midstream.cli.export.formats import TEXT_FORMATS, ExportFormat, write_parquet
from midstream.stream.model import StreamRecord

_ENDINGS = {
    ".csv": ExportFormat.CSV,
    ".jsonl": ExportFormat.JSONL,
    ".ndjson": ExportFormat.JSONL,
    ".parquet": ExportFormat.PARQUET,
}
_OTHERS = {".xlsx", ".xls", ".ods", ".json", ".feather", ".arrow", ".avro", ".db", ".sqlite", ".html"}
"""Endings of formats that are not written; a file with any other ending is CSV."""


@with_option_groups
def export(
    *,
    streams: StreamOptions,
    format_: Annotated[
        ExportFormat | None,
        typer.Option(
            "--format",
            metavar=choices(ExportFormat),
            help="[by the ending of the file, otherwise csv]",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write. [standard output]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Export the streams of a journal, one row each: CSV, JSON Lines or Parquet.

    In CSV, text is in quotes, unknown values are empty, and lists are JSON. Parquet needs a file (-o) and
    pip install 'midstream[parquet]'.

    The journal is what `monitor(journal=FILE)` or MIDSTREAM_JOURNAL writes.
    `midstream demo --journal streams.db` makes one to try this on.

    \u0008
    midstream export --journal streams.db > streams.csv          for a spreadsheet
    midstream export --journal streams.db -o streams.parquet     for pandas, DuckDB, Polars
    midstream export --journal streams.db --where model=demo --format jsonl | jq .max_gap_s
    """
    chosen = _format(format_, output)
    if chosen is ExportFormat.PARQUET:
        with exiting_at_once():
            import pyarrow as pa  # noqa: F401, PLC0415 - before the work, not after it
    records = streams.records()
    if not records:
        raise CliError(empty(streams.journal, filtered=streams.filtered))
    if output is None:
        _print(records, chosen)
        return
    with _replacing(output, chosen) as file:
        _write(records, chosen, file)
    rows = "1 stream" if len(records) == 1 else f"{len(records)} streams"
    sys.stderr.write(f"midstream: {rows} in {output}\n")


def _format(asked: ExportFormat | None, output: Path | None) -> ExportFormat:
    """Return the format to write. Raises BadParameter or CliError for one that does not fit the file."""
    ending = "" if output is None else output.suffix.lower()
    chosen = asked or _ENDINGS.get(ending) or ExportFormat.CSV
    if output is None and chosen is ExportFormat.PARQUET:
        raise typer.BadParameter("parquet goes into a file; give -o FILE.", param_hint="--format")
    if output is not None:
        spare_databases(output)
    if asked is None and ending in _OTHERS:
        known = ", ".join(_ENDINGS)
        raise typer.BadParameter(
            f"{ending} is none of {known}; end it so, or say --format.", param_hint="--output"
        )
    return chosen


def _print(records: Sequence[StreamRecord], chosen: ExportFormat) -> None:
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


def _write(records: Sequence[StreamRecord], chosen: ExportFormat, file: IO[Any]) -> None:
    if chosen is ExportFormat.PARQUET:
        write_parquet(records, file)
    else:
        TEXT_FORMATS[chosen](records, file)


@contextmanager
def _replacing(output: Path, chosen: ExportFormat) -> Iterator[IO[Any]]:
    """Give a temporary file beside the output, which replaces it once it is complete."""
    text: dict[str, Any] = {} if chosen is ExportFormat.PARQUET else {"encoding": "utf-8", "newline": ""}
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
