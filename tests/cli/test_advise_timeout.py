"""`midstream advise timeout`, as its users run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from midstream.cli import main
from midstream.journal import Journal
from midstream.stream.model import Outcome, StreamRecord
from support.records import a_record


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Run the command, and return its status and what it printed on both channels."""
    status = main(["advise", "timeout", *map(str, arguments)])
    return (status, *capsys.readouterr())


def journal_of(path: Path, records: list[StreamRecord]) -> Path:
    """Write a journal."""
    journal = Journal(path, max_days=None)
    for record in records:
        journal.write(record)
    assert journal.close(20)
    return path


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 streams with gaps of up to 6 s, and six that were silent until a time limit."""
    gone_on = [
        a_record(
            started_at=1.7e9 + n,
            content_chunks=9,
            max_gap_s=n / 100,
            max_gap_phase="text",
            time_to_first_content_s=0.4,
        )
        for n in range(1, 601)
    ]
    silent = [
        a_record(
            started_at=1.7e9 + n,
            content_chunks=9,
            max_gap_s=300.0,
            max_gap_phase="text",
            max_gap_open=True,
            outcome=Outcome.TIMEOUT,
            finish_reasons=(),
            time_to_first_content_s=0.4,
        )
        for n in range(6)
    ]
    return journal_of(tmp_path_factory.mktemp("timeout") / "streams.db", [*gone_on, *silent])


def test_it_prints_the_timeout_its_effect_and_the_line_of_code(
    capsys: pytest.CaptureFixture[str], journal: Path
) -> None:
    status, out, err = run(capsys, "--journal", journal, "--kill", "5%", "--timeout", "5500ms")
    assert (status, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[:4] == [
        "m, chat: 606 streams",
        "",
        "Longest wait in text: 600 ended by themselves, 6 did not (6 timed out); about 0.99 % of all never end",
        "timeout ends of them went on after saves ends of those that go on",
    ]
    assert "5.5 s 57 (9.4 %) 51 (89 %) 0.25 s more 29 min 8.5 % (6.4 % to 11 %)" in lines
    assert any(line.startswith("6 s 7 (1.2 %) 1 (14 %)") for line in lines)
    assert (
        'client = midstream.monitor(client, stall_timeout_s={"text": 6}, first_content_timeout_s=1)' in lines
    )
    assert lines[-1].endswith("one number has to cover pauses in reasoning as well.")


def test_a_script_gets_one_document(capsys: pytest.CaptureFixture[str], journal: Path) -> None:
    status, out, err = run(capsys, "--journal", journal, "--kill", "5%", "--json")
    assert (status, err) == (0, "")
    (group,) = json.loads(out)["groups"]
    assert [wait["kind"] for wait in group["waits"]] == ["text", "first_content"]
    text = group["waits"][0]
    assert (text["ended_by_themselves"], text["did_not_end"]) == (600, {"timed out": 6})
    assert text["advice"]["advised_s"] == 6.0
    assert text["not_enough_data"] is None
    assert [effect["timeout_s"] for effect in text["timeouts"]] == [6.0, 10.0, 30.0, 60.0, 120.0, 300.0]


def test_it_draws_what_it_found(capsys: pytest.CaptureFixture[str], journal: Path, tmp_path: Path) -> None:
    picture = tmp_path / "gaps.png"
    status, _, err = run(capsys, "--journal", journal, "--kill", "5%", "--plot", picture)
    assert (status, err) == (0, "")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_thin_data_give_no_timeout_and_a_status_of_their_own(
    capsys: pytest.CaptureFixture[str], journal: Path
) -> None:
    status, out, err = run(capsys, "--journal", journal)
    assert (status, err) == (3, "")
    assert "cannot be determined" in out
    assert "midstream.monitor(" not in out


def test_streams_that_show_no_wait_are_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, err = run(capsys, "--journal", journal_of(tmp_path / "a.db", [a_record()] * 3))
    assert (status, out) == (3, "")
    assert err.startswith("midstream: none of the 3 streams shows how long it waited")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--kill", "2"], "'2' is no share; write it as in 0.1% or 0.001"),
        (["--timeout", "soon"], "'soon' is no time; write it as in 2s or 500ms"),
        (["--timeout", "0s"], "a timeout is longer than 0 s"),
        (["--prometheus", "localhost:1", "--timeout", "3s"], "it does not go with --prometheus"),
    ],
)
def test_what_cannot_be_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], journal: Path, arguments: list[str], sentence: str
) -> None:
    given = arguments if "--prometheus" in arguments else ["--journal", str(journal), *arguments]
    status, out, err = run(capsys, *given)
    assert (status, out) == (2, "")
    assert sentence in err
