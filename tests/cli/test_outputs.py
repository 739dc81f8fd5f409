"""What commands write, and what they must not write over."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from midstream.cli import main
from midstream.journal import Journal, read
from support.records import a_record


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    written = Journal(tmp_path / "streams.db")
    for number in range(3):
        written.write(a_record(started_at=time.time() - number))
    assert written.flush(60)
    return written.path


@pytest.mark.parametrize(
    "command",
    [
        ["export", "--journal", "{journal}", "-o", "{journal}"],
        ["export", "--journal", "{journal}", "--format", "parquet", "-o", "{journal}"],
        ["report", "--journal", "{journal}", "--html", "{journal}"],
        ["rules", "-o", "{journal}"],
    ],
    ids=["export", "export parquet", "report", "rules"],
)
def test_no_command_writes_over_a_journal(
    command: list[str], journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two options that name one file are a slip of the hand, and the streams are worth more than the output."""
    assert main([word.format(journal=journal) for word in command]) == 1

    assert capsys.readouterr().err == (
        f"midstream: {journal} is a database, perhaps the journal; it is left as it is: name another file\n"
    )
    assert len(read(journal).records) == 3


def test_export_does_not_guess_what_an_ending_means(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A spreadsheet would open it as what it is not."""
    sheet = tmp_path / "streams.xlsx"
    assert main(["export", "--journal", str(journal), "-o", str(sheet)]) == 2
    assert (
        ".xlsx is none of .csv, .jsonl, .ndjson, .parquet; end it so, or say --format"
        in capsys.readouterr().err
    )
    assert not sheet.exists()

    assert main(["export", "--journal", str(journal), "-o", str(sheet), "--format", "csv"]) == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_written_to_and_not_read(journal: Path, tmp_path: Path) -> None:
    """Whoever reads at its other end gets the streams; to look into it first would wait for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = "import sys; from midstream.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "export", "--journal", str(journal), "-o", str(pipe)]
    with subprocess.Popen(command) as exporting:
        try:
            reading = subprocess.run(
                ["cat", str(pipe)], capture_output=True, text=True, timeout=120, check=True
            )
        finally:
            exporting.kill()
    assert len(reading.stdout.splitlines()) == 4
