"""Makes the pictures of the documentation from real runs: `python docs/make_images.py`."""

from __future__ import annotations

import io
import re
import threading
from collections import deque
from functools import partial
from pathlib import Path

import make_report_image
from rich.console import Console, Group
from rich.terminal_theme import SVG_EXPORT_THEME

from midstream.cli.demo.crowd import ActLoad, Members, crowd
from midstream.cli.demo.live import frame, latest
from midstream.cli.demo.story import first_act
from midstream.lab.apart import serve_apart
from midstream.lab.emulation import emulator

IMAGES = Path(__file__).with_name("images")
COLUMNS = 100
EVERY_S = 0.05


def main() -> None:
    """Make them all."""
    demo()
    make_report_image.main()


def demo() -> None:
    """Run the demo's first act, and draw it as it was at the worst moment."""
    act = first_act(1.0)
    with crowd() as members, serve_apart(partial(emulator, act.emulated)) as base_url:
        news = latest()
        picture = _worst(ActLoad(act, news.append), news, members, base_url)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(picture)
    drawn = console.export_svg(title="midstream demo", theme=SVG_EXPORT_THEME, unique_id="midstream-demo")
    # A picture in a README may not fetch a font, and need not.
    (IMAGES / "demo.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))


def _worst(load: ActLoad, news: deque[str], members: Members, base_url: str) -> Group:
    """Return the picture in which most streams are frozen, and for the longest time."""
    run = threading.Thread(target=load.run, args=(members, base_url))
    run.start()
    worst, picture = (0, 0.0), frame(load, news)
    while run.is_alive():
        run.join(EVERY_S)
        silences = [row.silent_s or 0.0 for row in load.rows() if row.state == "FROZEN"]
        if worst < (len(silences), sum(silences)):
            worst, picture = (len(silences), sum(silences)), frame(load, news)
    return picture


if __name__ == "__main__":
    main()
