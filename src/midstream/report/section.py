"""A part of the page: a heading with sentences, plots and tables."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.report.figure import Figure
from midstream.report.tables import Table


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: a heading, sentences, plots, tables; whichever it has."""

    title: str
    sentences: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
