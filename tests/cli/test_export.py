"""`midstream export`: what goes into a file comes out of it again, with the tools that people read it with."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from midstream import FreezeSpan, Outcome, StreamRecord
from midstream.cli import main
from midstream.cli.export.formats import COLUMNS, write_csv, write_jsonl, write_parquet
from midstream.journal import Journal
from support.any_records import RECORDS
from support.records import a_record

NOW = time.time()
FULL = a_record(
    started_at=NOW - 7200.0,
    request_model='a "model", with commas',
    response_model='m-1, the "next"',
    attributes={"team": "search", "ä": "ö"},
    finish_reasons=("stop", None),
    outcome=Outcome.NO_FINISH,
    max_gap_s=12.5,
    max_gap_at_s=0.1,
    max_gap_phase="tool_call",
    freezes=1,
    frozen_s=12.5,
    output_tokens=0,
    wire_gap_s=12.6,
    clock_jump_s=-1.5,
    trace_id="0af7651916cd43dd8448eb211c80319c",
    freeze_spans=(FreezeSpan(0.1, 12.5, "tool_call", hidden=False, shared=True, open=False),),
)
BARE = a_record(started_at=NOW - 600.0)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with two streams, one of which has everything."""
    path = tmp_path / "streams.db"
    writer = Journal(path, threaded=False)
    for record in (FULL, BARE):
        writer.write(record)
    assert writer.close(60)
    return path


@pytest.fixture
def beside_the_journal(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the directory where `streams.db` is, and nothing else names it."""
    monkeypatch.chdir(journal.parent)
    monkeypatch.delenv("MIDSTREAM_JOURNAL", raising=False)


def from_plain(values: dict[str, Any]) -> StreamRecord:
    """A record from what JSON and Parquet give back."""
    return StreamRecord(
        **{
            **values,
            "attributes": dict(values["attributes"]),
            "outcome": Outcome(values["outcome"]),
            "finish_reasons": tuple(values["finish_reasons"]),
            "freeze_spans": tuple(FreezeSpan(**span) for span in values["freeze_spans"]),
        }
    )


def from_csv(row: list[str]) -> StreamRecord:
    """A record from a row of CSV by the rules that `--help` states, where an empty field is not known."""
    kinds = {field.name: str(field.type) for field in fields(StreamRecord)}
    values: dict[str, Any] = {}
    for name, cell in zip(COLUMNS, row, strict=True):
        kind = kinds[name]
        if kind.endswith(" | None") and cell == "":
            values[name] = None
        elif name in {"attributes", "finish_reasons", "freeze_spans"}:
            values[name] = json.loads(cell)
        elif kind.startswith("float"):
            values[name] = float(cell)
        elif kind.startswith("int"):
            values[name] = int(cell)
        elif kind == "bool":
            values[name] = {"true": True, "false": False}[cell]
        else:
            values[name] = cell
    return from_plain(values)


def test_csv_has_a_head_and_a_row_for_each_stream(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Read with the csv module, every field is what it was, and what is not known is empty."""
    assert main(["export", "--journal", str(journal)]) == 0

    head, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert tuple(head) == COLUMNS == tuple(field.name for field in fields(StreamRecord))
    assert [from_csv(row) for row in rows] == [FULL, BARE]
    assert rows[1][COLUMNS.index("max_gap_s")] == ""
    assert rows[0][COLUMNS.index("output_tokens")] == "0"


def test_json_lines_hold_one_object_for_each_stream(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not known is null."""
    assert main(["export", "--journal", str(journal), "--format", "jsonl"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [from_plain(json.loads(line)) for line in lines] == [FULL, BARE]
    assert json.loads(lines[1])["max_gap_s"] is None


def test_parquet_keeps_types_and_nested_fields(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ending of the file says that it is meant."""
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "streams.parquet"
    assert main(["export", "--journal", str(journal), "-o", str(out)]) == 0

    assert capsys.readouterr() == ("", f"midstream: 2 streams in {out}\n")
    table = parquet.read_table(out)
    assert [from_plain(row) for row in table.to_pylist()] == [FULL, BARE]
    assert str(table.schema.field("attributes").type).startswith("map<string, string")
    assert [table.schema.field(name).nullable for name in ("started_at", "max_gap_s")] == [False, True]


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(RECORDS, max_size=3))
def test_any_record_goes_through_every_format(records: list[StreamRecord]) -> None:
    """CSV alone cannot tell text that is empty from text that is not known."""
    lines = io.StringIO()
    write_jsonl(records, lines)
    assert [from_plain(json.loads(line)) for line in lines.getvalue().split("\n")[:-1]] == records

    parquet = pytest.importorskip("pyarrow.parquet")
    binary = io.BytesIO()
    write_parquet(records, binary)
    assert [
        from_plain(row) for row in parquet.read_table(io.BytesIO(binary.getvalue())).to_pylist()
    ] == records

    cells = io.StringIO(newline="")
    write_csv(records, cells)
    if sys.version_info < (3, 11) and "\0" in cells.getvalue():
        return  # this Python's own reader cannot take it
    rows = list(csv.reader(io.StringIO(cells.getvalue(), newline="")))[1:]
    optional = [field.name for field in fields(StreamRecord) if str(field.type).endswith("str | None")]
    if not any(getattr(record, name) == "" for record in records for name in optional):
        assert [from_csv(row) for row in rows] == records


def test_options_choose_what_is_exported(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as of every command about recorded streams."""
    for options, kept in [
        (["--since", "1h"], 1),
        (["--until", "1h"], 1),
        (["--where", "team=search"], 1),
        (["--since", "3h"], 2),
    ]:
        assert main(["export", "--journal", str(journal), *options]) == 0
        assert len(list(csv.reader(io.StringIO(capsys.readouterr().out)))) == kept + 1


def test_journal_is_the_one_in_the_environment(
    journal: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same variable as for the program that writes it."""
    monkeypatch.setenv("MIDSTREAM_JOURNAL", str(journal))
    assert main(["export", "--format", "jsonl"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("ending", ["csv", "jsonl", "ndjson", "txt"])
def test_file_takes_its_place_when_it_is_whole(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    """It is private, nothing else is left, and it holds what standard output would."""
    out = tmp_path / f"out.{ending}"
    out.write_text("old")
    assert main(["export", "--journal", str(journal), "-o", str(out)]) == 0
    capsys.readouterr()
    json_lines = ["--format", "jsonl"] if ending in {"jsonl", "ndjson"} else []
    assert main(["export", "--journal", str(journal), *json_lines]) == 0

    assert out.read_bytes().decode() == capsys.readouterr().out
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([out.name, "streams.db"])


def test_pipe_and_device_are_written_to_and_not_replaced(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-o /dev/null` leaves /dev/null where it is; a link goes on pointing at its file."""
    assert main(["export", "--journal", str(journal), "-o", os.devnull]) == 0
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)

    link, target = tmp_path / "link.csv", tmp_path / "target.csv"
    link.symlink_to(target)
    assert main(["export", "--journal", str(journal), "-o", str(link)]) == 0
    assert link.is_symlink()
    assert len(target.read_text().splitlines()) > 2
    capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        (["--journal", "none.db"], 1, "there is no journal at none.db; "),
        ([], 1, "no journal is named; "),
        (["--journal", "streams.db", "--format", "parquet"], 2, "parquet goes into a file; give -o FILE"),
        (
            ["--journal", "streams.db", "--format", "xml"],
            2,
            "'xml' is not one of 'csv', 'jsonl', 'parquet'",
        ),
        (
            ["--journal", "streams.db", "-o", "no/such/out.csv"],
            1,
            "there is no folder no/such; make it, or name another file than no/such/out.csv",
        ),
        (["--journal", "streams.db", "-o", "."], 1, "the file to write has no name; give it one"),
        (["--journal", "streams.db", "--since", "soon"], 2, "'soon' is not a valid time"),
    ],
)
@pytest.mark.usefixtures("beside_the_journal")
def test_what_cannot_be_done_is_one_sentence(
    capsys: pytest.CaptureFixture[str], options: list[str], status: int, sentence: str
) -> None:
    """With the way out of it."""
    assert main(["export", *options]) == status

    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.startswith("midstream: ")
    assert len(err.splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the device is Linux's")
def test_full_disk_is_one_sentence(journal: Path) -> None:
    """The shell gets the status, and nobody takes half a file for a whole one."""
    code = f"import sys; from midstream.cli import main; sys.exit(main(['export', '--journal', {str(journal)!r}]))"
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )

    assert (done.returncode, done.stderr) == (
        1,
        "midstream: standard output cannot be written: No space left on device\n",
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the device is Linux's")
@pytest.mark.parametrize("command", ["report", "advise max-tokens", "report --json"])
def test_full_disk_is_no_bug_of_any_command(journal: Path, command: str) -> None:
    """Whatever prints: tables or JSON, at once or when the interpreter ends."""
    arguments = [*command.split(), "--journal", str(journal)]
    code = f"import sys; from midstream.cli import main; sys.exit(main({arguments!r}))"
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )

    assert (done.returncode, done.stderr) == (
        1,
        "midstream: the output cannot be written: No space left on device; make room, or write elsewhere\n",
    )


@pytest.mark.parametrize("to_file", [False, True])
def test_nothing_chosen_fails_as_a_report_of_it_does(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], to_file: bool
) -> None:
    """A misspelt condition looks like an empty journal otherwise; a file of an earlier export stays as it is."""
    chosen = ["--journal", str(journal), "--where", "model==m"]
    earlier = tmp_path / "earlier.csv"
    earlier.write_text("as it was")
    assert main(["export", *chosen, *(["-o", str(earlier)] if to_file else [])]) == 1
    out, err = capsys.readouterr()
    assert main(["report", *chosen]) == 1

    assert (out, err) == ("", capsys.readouterr().err)
    assert "midstream: no stream in " in err
    assert " matches: its 2 streams began from " in err
    assert earlier.read_text() == "as it was"


@pytest.mark.parametrize("command", ["export", "report", "advise max-tokens"])
def test_names_that_the_terminal_cannot_show_end_no_command(tmp_path: Path, command: str) -> None:
    """A table has question marks in them; data for other programs is UTF-8 wherever it goes."""
    path = tmp_path / "streams.db"
    with_name = Journal(path, threaded=False)
    for _ in range(30):
        with_name.write(a_record(started_at=NOW, request_model="modèle-█"))
    assert with_name.close(60)
    arguments = [*command.split(), "--journal", str(path)]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; from midstream.cli import main; sys.exit(main({arguments!r}))"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=120,
        check=False,
    )

    assert done.stderr == b""
    shown = "modèle-█".encode() if command == "export" else b"mod?le-?"
    assert shown in done.stdout
