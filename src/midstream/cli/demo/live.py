"""What `midstream demo` shows on a terminal while it runs: a row for each user, and its answers in time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from midstream.cli.demo.crowd import ActLoad
from midstream.cli.demo.story import ANSWERS
from midstream.cli.demo.user import Span, State, StreamRow

PER_S = 10
"""How often it is drawn."""

NEWS = 3
"""How many of the latest events stand below the table."""

STYLES: dict[State, str] = {
    "-": "dim",
    "waiting": "dim",
    "streaming": "green",
    "silent": "yellow",
    "FROZEN": "bold red",
    "ended": "dim",
}

ABSENT = "-"


class AnswerTimeline:
    """Answers on a line that is `lasts_s` long: output solid, freezes dotted, the rest empty."""

    def __init__(
        self, answers: Sequence[Span], frozen: Sequence[Span], lasts_s: float, *, ended: bool
    ) -> None:
        self._answers = answers
        self._frozen = frozen
        self._lasts_s = lasts_s
        self._flowing = Style.parse("dim green" if ended else "green")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(8, options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        flows, stands = ("=", ".") if options.ascii_only else ("■", "·")
        width = options.max_width
        for cell in range(width):
            middle = (cell + 0.5) * self._lasts_s / width
            if not any(_within(middle, span) for span in self._answers):
                yield Segment(" ")
            elif any(_within(middle, span) for span in self._frozen):
                yield Segment(stands, Style(color="red", bold=True))
            else:
                yield Segment(flows, self._flowing)


def live(load: ActLoad, news: Sequence[str]) -> Live:
    """Return the display; it draws on standard error while its `with` block lasts, and is gone afterwards."""
    return Live(
        console=Console(stderr=True, highlight=False),
        get_renderable=lambda: frame(load, news),
        refresh_per_second=PER_S,
        transient=True,
        redirect_stdout=False,
    )


def latest() -> deque[str]:
    """Return a place for news that keeps as many as are shown."""
    return deque(maxlen=NEWS)


def frame(load: ActLoad, news: Sequence[str]) -> Group:
    """Return the whole picture as it is now."""
    rows = load.rows()
    table = timeline_table(load.lasts_s, "state", "chunks", "last content", "first content", "freezes")
    table.columns[1].justify = "left"
    table.columns[1].min_width = len("streaming")
    for row in rows:
        table.add_row(
            *_cells(row), AnswerTimeline(row.answers, row.frozen, load.lasts_s, ended=row.state == "ended")
        )
    latest_news = [*news, *[""] * NEWS][:NEWS]
    return Group(_headline(rows, load), "", table, "", *(Text(line, style="dim") for line in latest_news))


def timeline_table(lasts_s: float, *columns: str) -> Table:
    """Return a table with a row for each user: its number, these columns, and a timeline in the rest."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column("user", justify="right", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column(f"0 to {lasts_s:.0f} s", ratio=1, no_wrap=True)
    return table


def _headline(rows: Sequence[StreamRow], load: ActLoad) -> Text:
    frozen = [row.silent_s or 0.0 for row in rows if row.state == "FROZEN"]
    line = Text(f"{load.elapsed_s:4.1f} s  ", style="bold")
    if frozen:
        noun = "stream is" if len(frozen) == 1 else "streams are"
        line.append(f"{len(frozen)} {noun} FROZEN now, for up to {max(frozen):.1f} s", style="bold red")
    else:
        line.append("no stream is frozen now", style="green")
    line.append(f"   {len(load.records)} of {len(ANSWERS)} have ended", style="dim")
    return line


def _cells(row: StreamRow) -> tuple[Text, ...]:
    style = STYLES[row.state]
    loud = "" if row.state == "streaming" else style
    ago = "" if row.silent_s is None else f"{row.silent_s:.1f} s ago"
    return (
        Text(str(row.number), style=loud),
        Text(row.state, style=style),
        Text(str(row.chunks), style=loud),
        Text(ago, style=loud),
        Text(seconds(row.first_content_s), style=loud),
        Text(str(row.freezes), style="red" if row.freezes else loud),
    )


def seconds(value: float | None, digits: int = 2) -> str:
    """Return a duration as it is shown, or a dash."""
    return ABSENT if value is None else f"{value:.{digits}f} s"


def _within(moment: float, span: Span) -> bool:
    return span[0] <= moment <= span[1]
