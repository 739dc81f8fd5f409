"""How far a long read has come is shown after two seconds, and removed at the end."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from midstream.cli.common.reading import reading
from midstream.journal import Journal, read
from midstream.testing import ManualClock
from support.records import a_record


def test_a_short_read_shows_nothing_and_a_long_one_its_count() -> None:
    clock, shown = ManualClock(), io.StringIO()
    with reading(
        Path("/var/streams.db"), Console(file=shown, force_terminal=True, width=80), clock
    ) as progress:
        clock.advance(1.9)
        progress(4096)
        assert shown.getvalue() == ""
        clock.advance(0.2)
        progress(81_920)

    assert "Reading streams.db: 81,920 streams so far" in shown.getvalue()
    assert shown.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # the cursor is back, and the line gone


def test_a_pipe_gets_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    with reading(Path("streams.db"), clock=clock) as progress:
        clock.advance(9.0)
        progress(4096)

    assert capsys.readouterr().err == ""


def test_the_journal_counts_what_it_reads(tmp_path: Path) -> None:
    """Every 4,096 rows."""
    journal = Journal(tmp_path / "streams.db", max_mb=None, threaded=False)
    now = time.time()
    for half in range(3):
        for number in range(3000):
            journal.write(a_record(started_at=now - number, chunks=half))
        assert journal.flush(60)
    assert journal.close(60)

    counts: list[int] = []
    contents = read(tmp_path / "streams.db", progress=counts.append)

    assert len(contents.records) == 9000
    assert counts == [0, 4096, 8192]
