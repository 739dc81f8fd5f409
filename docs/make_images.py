"""Makes the pictures of the documentation from real runs: `python docs/make_images.py`."""

from __future__ import annotations

import asyncio
import io
import re
from functools import partial
from pathlib import Path

from rich.console import Console, Group
from rich.terminal_theme import SVG_EXPORT_THEME

from midstream import setup
from midstream.cli._demo_live import frame, latest
from midstream.cli._demo_load import Load, Plan
from midstream.cli.demo import FILE, FREEZE_AFTER_S
from midstream.lab.apart import serve_apart
from midstream.lab.library import read_recordings
from midstream.lab.observed import read_load
from midstream.lab.replay import replayer

IMAGES = Path(__file__).with_name("images")
COLUMNS = 100
EVERY_S = 0.05


def main() -> None:
    """Run the demo once, and draw it as it was at the worst moment."""
    plan = Plan(read_load(FILE), 1.0, FREEZE_AFTER_S)
    with (
        setup(otlp=False, prometheus=0) as metrics,
        serve_apart(partial(replayer, read_recordings([FILE]))) as base_url,
    ):
        picture = asyncio.run(_worst(plan, base_url, metrics.prometheus_url or ""))
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(picture)
    drawn = console.export_svg(title="midstream demo", theme=SVG_EXPORT_THEME, unique_id="midstream-demo")
    # A picture in a README may not fetch a font, and need not.
    (IMAGES / "demo.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))


async def _worst(plan: Plan, base_url: str, metrics_url: str) -> Group:
    """Return the picture in which most streams are frozen, and for the longest time."""
    news = latest()
    load = Load(plan, base_url, metrics_url, news.append)
    run = asyncio.create_task(load.run())
    worst, picture = (0, 0.0), frame(load, news)
    while not run.done():
        await asyncio.wait([run], timeout=EVERY_S)
        silences = [row.silent_s or 0.0 for row in load.rows() if row.state == "FROZEN"]
        if worst < (len(silences), sum(silences)):
            worst, picture = (len(silences), sum(silences)), frame(load, news)
    await run
    return picture


if __name__ == "__main__":
    main()
