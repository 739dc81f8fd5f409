"""What `midstream probe` shows on a terminal while it runs: one line for each stream that is open."""

from __future__ import annotations

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from midstream import OpenStream, streams
from midstream.probe import WORKER, Probe

PER_S = 8
"""How often the lines are drawn; each drawing takes well under a millisecond from the streams."""


def live(probe: Probe) -> Live:
    """Return the display; it draws on standard error while its `with` block lasts, and is gone afterwards."""
    return Live(
        console=Console(stderr=True, highlight=False),
        get_renderable=lambda: _lines(probe),
        refresh_per_second=PER_S,
        transient=True,
        redirect_stdout=False,
    )


def _lines(probe: Probe) -> Group:
    opened = {stream.attributes.get(WORKER): stream for stream in streams()}
    head = Text(f"{probe.url}  {probe.ended} of {probe.plan.count} streams have ended")
    running = sorted((stream, worker) for worker, stream in probe.running.copy().items())
    return Group(head, *(_line(stream, opened.get(worker)) for stream, worker in running))


def _line(number: int, stream: OpenStream | None) -> Text:
    if stream is None or stream.since_content_s is None:
        return Text(f"{number:>4}  waiting for the first content", style="dim")
    state = "FROZEN" if stream.frozen else "streaming"
    pieces = f"{stream.chunks} chunk{'' if stream.chunks == 1 else 's'}"
    line = f"{number:>4}  {state:<9}  {pieces:>11}  {stream.since_content_s:6.1f} s since the last content"
    return Text(line, style="bold red" if stream.frozen else "")
