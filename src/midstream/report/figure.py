"""A plot of the page as data: what Plotly shall draw, in colours that the page decides. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any, TypeAlias

from midstream._support.sanitize import clean

Json: TypeAlias = dict[str, Any]

COLOURS: Mapping[str, tuple[str, str]] = {
    "<ink>": ("#1f2328", "#e6edf3"),
    "<faint>": ("#d0d7de", "#3d444d"),
    "<paper>": ("#ffffff", "#0d1117"),
    "<stream>": ("#9fb6cf", "#46627f"),
    "<waiting>": ("#dde6ef", "#26323f"),
    "<freeze>": ("#d1242f", "#ff6b6b"),
    "<shared>": ("#8250df", "#c297ff"),
    "<column>": ("rgba(130,80,223,0.16)", "rgba(194,151,255,0.20)"),
    "<hidden>": ("#9a6700", "#e3b341"),
    "<good>": ("#0969da", "#58a6ff"),
    "<limit>": ("#bc4c00", "#f0883e"),
    "<series1>": ("#0969da", "#58a6ff"),
    "<series2>": ("#bf8700", "#e3b341"),
    "<series3>": ("#1a7f37", "#3fb950"),
    "<series4>": ("#8250df", "#c297ff"),
    "<series5>": ("#cf222e", "#ff7b72"),
    "<series6>": ("#57606a", "#b1bac4"),
}
"""Every colour by the name that a figure uses for it: on light paper, and on dark.

A label cannot be taken for one: its brackets are escaped.
"""

SERIES = tuple(name for name in COLOURS if name.startswith("<series"))


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot. `data` and `layout` are Plotly's, with the names of COLOURS for colours; `height` is in pixels."""

    name: str
    title: str
    caption: str
    data: list[Json]
    layout: Json
    height: int = 340

    def renamed(self, name: str) -> Figure:
        """Return the same plot under another name: names are unique in a page."""
        return replace(self, name=name)

    def as_json(self) -> Json:
        """Return what the page's script draws."""
        return {"data": self.data, "layout": {**_LAYOUT, **self.layout, "height": self.height}}


def label(text: str, longest: int = 60) -> str:
    """Return a foreign name as a label that Plotly shows as it is: it reads a little HTML in labels."""
    shown = clean(text)
    return escape(shown if len(shown) <= longest else f"{shown[: longest - 1]}…", quote=True)


def axis(title: str, **more: Any) -> Json:
    """Return an axis in the page's colours."""
    return {
        "title": {"text": title},
        "gridcolor": "<faint>",
        "linecolor": "<faint>",
        "zerolinecolor": "<faint>",
        "automargin": True,
        **more,
    }


def upright(x: float, colour: str, dash: str) -> Json:
    """Return a vertical line over the whole height of a plot."""
    line = {"color": colour, "width": 1.5, "dash": dash}
    return {"type": "line", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": line}


_LAYOUT: Json = {
    "paper_bgcolor": "<paper>",
    "plot_bgcolor": "<paper>",
    "font": {"color": "<ink>", "family": "system-ui, sans-serif", "size": 13},
    "hoverlabel": {"bgcolor": "<paper>", "bordercolor": "<ink>", "font": {"color": "<ink>"}, "align": "left"},
    "legend": {"orientation": "h", "x": 0, "yref": "container", "y": 0, "yanchor": "bottom"},
    "margin": {"l": 60, "r": 20, "t": 30, "b": 90},
    "bargap": 0.05,
}
