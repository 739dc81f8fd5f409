"""What a panel and a dashboard are, before anybody renders them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["timeseries", "stat", "heatmap", "table"]


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel. `legend` is a template such as `{{job}}`."""

    expr: str
    legend: str = ""
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. The description states what to look for; `steps` colours values from there on."""

    title: str
    description: str
    unit: str
    targets: tuple[Target, ...]
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 8
    steps: tuple[tuple[float, str], ...] = ()
    stacked: bool = False
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of a dashboard: the values of a label."""

    name: str
    label: str
    source: str
    """The selector whose label is offered."""
    of: str
    """The label."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard with a stable address."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Every panel, in order."""
        return tuple(panel for row in self.rows for panel in row.panels)
