"""`midstream compare`: journals and spans of one, what it prints, what it refuses, and its exit status."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from midstream.cli import main
from midstream.journal import Journal
from support.records import a_record

DAY = datetime(2026, 11, 1)  # noqa: DTZ001 - as a user writes it


def write(path: Path, begun: datetime, froze: int, model: str = "m", streams: int = 500) -> Path:
    """Add a day's streams to a journal."""
    drawn = random.Random(froze)
    frozen = set(drawn.sample(range(streams), froze))
    journal = Journal(path, max_days=None)
    for index in range(streams):
        journal.write(
            a_record(
                started_at=(begun + timedelta(seconds=60 * index)).timestamp(),
                duration_s=20.0,
                request_model=model,
                max_gap_s=8.0 if index in frozen else 0.1,
                freezes=int(index in frozen),
                frozen_s=8.0 if index in frozen else 0.0,
                time_to_first_content_s=drawn.uniform(0.2, 0.4),
                output_tokens=300,
            )
        )
        if index % 200 == 199:
            journal.flush()
    journal.flush()
    journal.close()
    return path


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days: 40 of 500 streams froze on the first, one on the second; another model froze as ever."""
    path = tmp_path_factory.mktemp("compare") / "j.db"
    write(path, DAY, 40)
    write(path, DAY + timedelta(days=1), 1)
    write(path, DAY, 30, "other")
    return write(path, DAY + timedelta(days=1), 30, "other")


def compare(*arguments: str | Path) -> int:
    """Run the command in this process."""
    return main(["compare", *map(str, arguments)])


def test_one_moment_splits_a_journal(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the streams that are meant."""
    assert compare("--journal", journal, "--at", "2026-11-02", "--where", "model=m") == 0
    printed = capsys.readouterr().out

    assert printed.splitlines()[1].split() == [
        "from",
        "(UTC)",
        "2026-11-01",
        "00:00:00",
        "2026-11-02",
        "00:00:00",
    ]
    assert "streams that froze                            8 %" in printed
    assert printed.splitlines()[-1].startswith(
        "Better: the share of streams that froze fell from 8 % to 0.2 %; the longest gap (p99) fell from 8.00 s"
    )


def test_two_spans_may_be_named_and_turned_round(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """3 is for worse: a script need not read."""
    spans = ["--before", "2026-11-02..2026-11-03", "--after", "2026-11-03T00:00..2026-11-04"]
    assert compare("--journal", journal, *spans, "--where", "model=m") == 1
    assert capsys.readouterr().err == (
        "midstream: there are no streams in the time from 2026-11-03T00:00 to 2026-11-04, those on the other side "
        "began from 2026-11-02 00:00:00 to 2026-11-02 08:19:00; choose another time, or other streams\n"
    )

    days = ["2026-11-01..2026-11-02", "2026-11-02..2026-11-03"]
    assert compare("--journal", journal, "--before", days[0], "--after", days[1], "--where", "model=m") == 0


def test_two_journals_and_every_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 better or unchanged, 3 worse, 4 cannot tell."""
    good, bad = write(tmp_path / "good.db", DAY, 1), write(tmp_path / "bad.db", DAY, 60)
    few = write(tmp_path / "few.db", DAY, 1, streams=20)

    assert compare(bad, good) == 0
    assert compare(good, good, "--margin", "2") == 0
    assert compare(good, bad) == 3
    assert compare(few, few) == 4
    assert "more streams on each side would decide it" in capsys.readouterr().out


def test_a_script_gets_every_number(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In seconds and shares, with the ends of the intervals."""
    assert compare("--journal", journal, "--at", "2026-11-02", "--where", "model=m", "--json") == 0
    found = json.loads(capsys.readouterr().out)

    assert (found["verdict"], found["more_streams"]) == ("better", None)
    froze = found["measures"]["freeze_share"]
    assert (froze["before"], froze["after"], froze["judgement"]) == (0.08, 0.002, "better")
    assert froze["low"] < froze["change"] < froze["high"] < 0
    assert found["measures"]["tokens_per_s"]["before"] == pytest.approx(15.0)
    assert found["before"]["streams"] == 500


def test_the_threshold_is_that_of_the_records_unless_one_is_given(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gap of 8 s is no freeze to whoever waits for 9."""
    arguments: list[str | Path] = ["--journal", journal, "--at", "2026-11-02", "--where", "model=m", "--json"]
    assert compare(*arguments, "--freeze-after", "9") == 0
    assert json.loads(capsys.readouterr().out)["before"]["froze"] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "name what is compared: --at WHEN"),
        (["--at", "2h", "--before", "3d..2d"], 2, "give --at, or both --before and --after"),
        (["--before", "3d..2d"], 2, "name what is compared"),
        (["--before", "3d", "--after", "2d..1d"], 2, "'3d' is not FROM..TO"),
        (["--before", "3d..1d", "--after", "2d..now"], 2, "it ends after --after begins"),
        (["--at", "soon"], 2, "'soon' is not a valid time"),
        (["--since", "3d", "--before", "3d..2d", "--after", "1d..now"], 2, "they go with --at"),
        (["one.db"], 2, "give two journals"),
        (["one.db", "two.db", "--at", "2h"], 2, "two journals are compared as a whole"),
        (["--at", "2h", "--journal", "/nowhere/j.db"], 1, "there is no journal at /nowhere/j.db"),
        (["--at", "2h", "--journal", "j.db", "--prometheus", "h:1"], 2, "choose one of them"),
        (["--at", "2h", "--prometheus", "127.0.0.1:1"], 1, "nothing listens at http://127.0.0.1:1"),
        (["--at", "2h", "--prometheus", "ftp://h"], 2, "only http and https can be asked"),
        (["--at", "2h", "--give-up", "0"], 2, "0 is not a number above 0 and up to 100"),
        (["--at", "2h", "--bearable", "inf"], 2, "inf is not a number above 0"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    arguments: list[str],
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What, where, what to do."""
    monkeypatch.delenv("MIDSTREAM_JOURNAL", raising=False)
    assert compare(*arguments) == status
    printed = capsys.readouterr()

    assert said in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
