"""Today's setting, measured beside simulated, as a table and for a script."""

from __future__ import annotations

from dataclasses import asdict
from statistics import mean

from rich.table import Table

from midstream.advice.today import TITLES, FigureName, Today


def today_table(today: Today) -> Table:
    """Return a row for each figure: what was measured, the mean of the runs, and their least and most."""
    table = Table(box=None, pad_edge=False)
    table.add_column("today")
    for heading in ("measured", "simulated", "least-most"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, title in TITLES.items():
        values = today.each(name)
        known = bool(values) and (today.paced or name in ("frozen", "preemptions"))
        spread = f"{_text(name, values[0])}-{_text(name, values[-1])}" if known else "-"
        simulated = _text(name, mean(values)) if known else "-"
        table.add_row(title, _text(name, getattr(today.measured, name)), simulated, spread)
    return table


def _text(name: FigureName, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if name == "tokens_per_s" else f"{100 * value if name == 'frozen' else value:.1f}"


def today_document(today: Today) -> dict[str, object]:
    """Return the same for a script."""
    return {
        "measured": asdict(today.measured),
        "simulated": [asdict(run) for run in today.runs],
        "disagrees": today.disagrees,
    }
