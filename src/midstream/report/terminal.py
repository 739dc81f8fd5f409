"""A report in a terminal, as wide as that is, or whole in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table as Printed
from rich.text import Text

from midstream.report.tables import Table

PIPE_WIDTH = 200


def console() -> Console:
    """Return standard output: names of others are never markup, and a pipe is not as narrow as a terminal."""
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width)


def show(console: Console, sentences: Iterable[str], tables: Sequence[Table]) -> None:
    """Print what there is to say in words, then every table."""
    for sentence in sentences:
        _line(console, Text(sentence))
    for table in tables:
        _line(console, Text())
        _line(console, Text.assemble((table.title, "bold"), f"  by {table.by}" if table.by else ""))
        console.print(_printed(table))
        for note in table.notes:
            _line(console, Text(note, style="dim"))


def _printed(table: Table) -> Printed:
    printed = Printed(box=None, pad_edge=False, header_style="bold")
    printed.add_column(Text(table.by), overflow="fold", vertical="bottom")
    for column in table.columns:
        printed.add_column(Text(column), justify="right", no_wrap=True)
    for row in table.rows:
        cells = (
            Text(cell, style="red" if table.alarming(row, n) else "") for n, cell in enumerate(row.cells)
        )
        printed.add_row(Text(row.name), *cells, style="bold" if row.total else "")
    return printed


def _line(console: Console, line: Text) -> None:
    # Whoever reads a pipe wants lines whole; on a terminal they break between words.
    console.print(line, soft_wrap=not console.is_terminal)
