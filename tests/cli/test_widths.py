"""Tables on narrow terminals: nothing that decides is cut, and bars are ASCII where the terminal has nothing else."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from rich.console import Console

from midstream.advice import CompareGoal, advise_concurrency, advise_flags, advise_max_tokens, compare
from midstream.advice.before_after import sides_of_records
from midstream.cli.advise import cap_show, flags_show, limits_show
from midstream.cli.compare.show import show as show_comparison
from midstream.report import terminal
from midstream.report.grouping import grouped
from midstream.report.tables import tables
from midstream.stream.model import StreamRecord
from support.records import a_record

WIDTHS = pytest.mark.parametrize("width", [60, 80, 200])
MODEL = "a-model-with-a-name-of-some-length"


def a_console(width: int, encoding: str = "utf-8") -> Console:
    """A terminal of so many characters."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    return Console(
        file=file, width=width, force_terminal=True, color_system=None, highlight=False, markup=False
    )


def printed(console: Console) -> str:
    """What stands in the terminal; every line fits into it."""
    file = console.file
    assert isinstance(file, io.TextIOWrapper)
    file.flush()
    assert isinstance(file.buffer, io.BytesIO)
    text = file.buffer.getvalue().decode(file.encoding)
    assert "…" not in text
    return text


def streams(froze: int, count: int = 200) -> list[StreamRecord]:
    """Eight users who ask in turn; of each eight answers so many froze."""
    drawn = random.Random(froze)
    return [
        a_record(
            started_at=1.7e9 + 20.0 * (n // 8),
            duration_s=18.0,
            request_model=MODEL if n % 2 else "b",
            input_tokens=49,
            output_tokens=drawn.randint(600, 760),
            token_limit=1024,
            time_to_first_content_s=0.5,
            freeze_after_s=2.0,
            freezes=int(n % 8 < froze),
            max_gap_s=7.0 if n % 8 < froze else 0.2,
            frozen_s=7.0 if n % 8 < froze else 0.0,
        )
        for n in range(count)
    ]


@WIDTHS
def test_a_comparison_shows_its_verdicts_its_times_and_its_changes(width: int) -> None:
    """As a table, or with times and changes around a narrower one."""
    before, after = streams(4), streams(0)
    console = a_console(width)
    show_comparison(console, *sides_of_records(before, after), compare(before, after), CompareGoal())
    shown = printed(console)

    rows = {line.split("  ")[0]: line for line in shown.splitlines()}
    assert "better" in rows["streams that froze"]
    assert "better" in rows["longest gap, p99"]
    assert "held" in rows["tokens per second"]
    assert "bearable" in rows["first content, p95"]
    words = " ".join(shown.split())
    for whole in (
        "2023-11-14 22:13:20",
        "50 %",
        "-57 to -43 points",
        "Better: the share of streams that froze",
    ):
        assert whole in words
    assert max(map(len, shown.splitlines())) <= width


@WIDTHS
def test_the_curve_of_caps_shows_which_one_is_advised(width: int) -> None:
    """With its cap in the same line, and the flag below it whole."""
    advice = advise_concurrency(streams(4), 3584, seeds=2, requests=100)
    console = a_console(width)
    cap_show.show(console, advice, Path("streams.db"), anyway=True)
    lines = printed(console).splitlines()

    (line,) = [line for line in lines if "<- advised" in line]
    assert line.split()[0] == str(advice.cap)
    assert any(f"--max-num-active-seqs {advice.cap}" in line for line in lines)


@pytest.mark.parametrize(("encoding", "full"), [("ascii", "#" * 16), ("utf-8", "█" * 16)])
def test_bars_are_ascii_where_the_terminal_has_nothing_else(encoding: str, full: str) -> None:
    """The fastest cap has a whole bar."""
    advice = advise_concurrency(streams(4), 3584, seeds=1, requests=60)
    console = a_console(200, encoding)
    cap_show.show(console, advice, Path("streams.db"), anyway=True)
    assert full in printed(console)


@WIDTHS
def test_flags_are_whole(width: int) -> None:
    """However long they are: one copies them."""
    for engine, flag in (
        ("vllm", "--max-num-active-seqs 12"),
        ("trtllm", "scheduler_config.capacity_scheduler_policy: GUARANTEED_NO_EVICT"),
        ("llamacpp", "--parallel 12"),
    ):
        console = a_console(width)
        flags_show.show(console, advise_flags(engine, cap=12))
        assert flag in printed(console).replace("\n", "")


@WIDTHS
def test_limits_are_whole(width: int) -> None:
    """The limit, the interval, and what each engine reserves."""
    console = a_console(width)
    limits_show.show(console, advise_max_tokens(streams(0, 800), cut=0.05), ("vllm", "sglang", "tgi-2.4"))
    words = " ".join(printed(console).split())
    assert "Set max_tokens to 7" in words
    assert "95 % interval" in words
    assert "half the limit, nearly twice as many answers at once" in words


@WIDTHS
def test_a_report_shows_every_model_and_every_column(width: int) -> None:
    """A table that is too wide goes on below, with its first column again."""
    console = a_console(width)
    records = streams(4)
    terminal.show(console, (), tables(grouped(records, "model", 10)))
    shown = printed(console)

    assert MODEL in shown.replace("\n", "")
    for heading in ("worst", "frozen", "hidden", "completed", "tokens"):
        assert heading in shown
    assert max(map(len, shown.splitlines())) <= width
