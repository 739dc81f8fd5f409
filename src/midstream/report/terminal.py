"""A report in a terminal, as wide as that is, or whole in a pipe. Nothing that decides is cut on a narrow one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table as Printed
from rich.text import Text

from midstream.report.tables import Table

PIPE_WIDTH = 200
_UNBOUNDED = 10_000


def console(pipe_width: int = PIPE_WIDTH) -> Console:
    """Return standard output: names of others are never markup, and a pipe is not as narrow as a terminal."""
    width = None if sys.stdout.isatty() else pipe_width
    return Console(highlight=False, markup=False, emoji=False, width=width)


def fits(console: Console, shown: RenderableType) -> bool:
    """Whether this can be printed without cutting or wrapping a cell."""
    options = console.options.update(max_width=_UNBOUNDED)
    return Measurement.get(console, options, shown).maximum <= console.width


def bar(console: Console, share: float, width: int) -> str:
    """Return a bar for a share of `width` characters, in ASCII where the terminal has nothing else."""
    return ("#" if console.options.ascii_only else "█") * round(share * width)


def show(console: Console, sentences: Iterable[str], tables: Sequence[Table]) -> None:
    """Print the sentences, then every table."""
    for sentence in sentences:
        line(console, Text(sentence))
    for table in tables:
        line(console, Text())
        line(console, Text.assemble((table.title, "bold"), f"  by {table.by}" if table.by else ""))
        for part in _parts(console, table):
            console.print(part)
        for note in table.notes:
            line(console, Text(note, style="dim"))


def line(console: Console, shown: str | Text) -> None:
    """Print a line of text: whole in a pipe, and broken between words on a terminal."""
    console.print(shown, soft_wrap=not console.is_terminal)


def _parts(console: Console, table: Table) -> Iterator[Printed]:
    """Return the table, or several below each other with some of its columns each, where it is too wide."""
    columns = list(range(len(table.columns)))
    while columns:
        fitting = len(columns)
        while fitting > 1 and not fits(console, _printed(table, columns[:fitting])):
            fitting -= 1
        yield _printed(table, columns[:fitting])
        columns = columns[fitting:]


def _printed(table: Table, columns: Sequence[int]) -> Printed:
    printed = Printed(box=None, pad_edge=False, header_style="bold")
    printed.add_column(Text(table.by), overflow="fold", vertical="bottom")
    for column in columns:
        printed.add_column(Text(table.columns[column]), justify="right", no_wrap=True)
    for row in table.rows:
        cells = (Text(row.cells[n], style="red" if table.alarming(row, n) else "") for n in columns)
        printed.add_row(Text(row.name), *cells, style="bold" if row.total else "")
    return printed
