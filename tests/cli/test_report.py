"""`midstream report`, as its users run it."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from midstream.cli import main
from midstream.journal import Journal
from midstream.stream.model import StreamRecord
from support.metrics_pages import Served, serving
from support.records import a_record
from support.report_records import AT, hostile, ten


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIDSTREAM_JOURNAL", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def keep(tmp_path: Path) -> Callable[..., Path]:
    """Write records to a journal."""

    def keeping(records: list[StreamRecord], name: str = "streams.db") -> Path:
        path = tmp_path / name
        journal = Journal(path, max_days=None)
        for record in records:
            journal.write(record)
        journal.close()
        return path

    return keeping


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command; what came: status, output, complaints."""

    def running(*arguments: str | Path) -> tuple[int, str, str]:
        status = main(["report", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return running


Keep = Callable[..., Path]
Told = Callable[..., tuple[int, str, str]]


def test_the_tables_of_a_journal_are_printed_without_colour(keep: Keep, told: Told) -> None:
    status, out, err = told("--journal", keep([*ten(), hostile()]))
    assert (status, err) == (0, "")
    assert "11 streams begun from " in out
    assert "3 of 9 streams froze (a gap of 5 s or more), 4 times in all, for 30.5 s together" in out
    assert "froze: a gap of 5 s or more.\n" in out
    assert "Longest gap of each stream  by model" in out
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_streams_are_chosen_and_told_apart_as_asked(keep: Keep, told: Told) -> None:
    journal = keep(ten())
    _, out, _ = told("--journal", journal, "--where", "model=small", "--by", "team", "--by", "server")
    assert "4 streams begun from" in out
    assert [line for line in out.splitlines() if line.endswith(("by team", "by server"))][::4] == [
        "Longest gap of each stream  by team",
        "Longest gap of each stream  by server",
    ]


def test_json_has_every_number(keep: Keep, told: Told) -> None:
    status, out, _ = told("--journal", keep(ten()), "--json")
    found: dict[str, Any] = json.loads(out)
    assert status == 0
    assert found["streams"] == 10
    assert found["first_started_at"] == AT
    assert found["freeze_after_s"] == 5.0
    assert found["total"]["froze"]["count"] == 2
    assert found["total"]["gap"] == {"count": 8, "p50": 0.3, "p95": 12.0, "p99": 12.0, "max": 12.0}
    assert found["total"]["outcomes"] == {"completed": 8, "cancelled": 1, "error": 1}
    assert [group["name"] for group in found["by"]["model"]] == ["big", "small"]
    assert found["by"]["model"][1]["froze"]["high"] == pytest.approx(0.4899, abs=1e-4)
    assert found["lost"] == []


def test_thresholds_that_differ_are_null_in_json(keep: Keep, told: Told) -> None:
    records = [a_record(max_gap_s=0.18), a_record(max_gap_s=4.3, freezes=1, frozen_s=4.3, freeze_after_s=2.0)]
    _, out, _ = told("--journal", keep(records), "--json")
    assert json.loads(out)["freeze_after_s"] is None
    _, out, _ = told("--journal", keep(records))
    assert "froze: these streams were watched with several thresholds: 2, 5 s.\n" in out


def test_what_is_not_known_is_null_in_json(keep: Keep, told: Told) -> None:
    _, out, _ = told("--journal", keep([a_record(output_tokens=None, usage_complete=False)]), "--json")
    total = json.loads(out)["total"]
    assert total["gap"] == {"count": 0, "p50": None, "p95": None, "p99": None, "max": None}
    assert total["froze"]["value"] is None
    assert total["limit_used"]["p50"] is None


def test_a_page_is_one_file_and_its_size_is_said(keep: Keep, told: Told, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    status, out, _ = told("--journal", keep([*ten(), hostile()]), "--html", page, "--by", "team")
    assert status == 0
    size = f"{page.stat().st_size / 1e6:.1f} MB"
    assert out == f"{page}: 11 streams, {size}. It opens in any browser, without a network.\n"
    assert "<h2>By team</h2>" in page.read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir() if "report" in path.name) == ["report.html"]


def test_before_and_after_are_split_where_asked(keep: Keep, told: Told) -> None:
    before = [a_record(started_at=AT + n, max_gap_s=8.0, freezes=1, frozen_s=8.0) for n in range(40)]
    after = [a_record(started_at=AT + 7200 + n, max_gap_s=0.1) for n in range(40)]
    journal = keep([*before, *after])
    status, out, _ = told("--journal", journal, "--split-at", "2026-09-21T15:00:00Z")
    assert status == 0
    assert "Better: the share of streams that froze fell from 100 % to 0" in out
    assert out.index("Before and after") < out.index("Longest gap of each stream")
    _, out, _ = told("--journal", journal, "--split-at", "2026-09-21T15:00:00Z", "--json")
    found = json.loads(out)
    assert (found["before"]["streams"], found["after"]["streams"]) == (40, 40)
    assert found["verdict"].startswith("Better")


def test_before_may_be_another_journal(keep: Keep, told: Told) -> None:
    before = keep([a_record(started_at=AT, max_gap_s=8.0, freezes=1, frozen_s=8.0)], "before.db")
    status, out, _ = told("--journal", keep(ten()), "--before", before)
    assert status == 0
    assert "froze  " in out
    assert "1 of 1" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--where", "model=none"],
            "no stream in {journal} matches: its 10 streams began from ",
        ),
        (
            ["--by", "tema"],
            "no stream has an attribute 'tema', there are team; --by takes model, server, operation or an attribute",
        ),
        (["--html", ""], "the file to write has no name; give it one"),
        (
            ["--html", "/dev/null/report.html"],
            "there is no folder /dev/null; make it, or name another file than /dev/null/report.html",
        ),
        (
            ["--split-at", "2001-01-01"],
            "no stream began before 2001-01-01 00:00:00, where --split-at divides",
        ),
        (["--split-at", "tomorrow"], "'tomorrow' is not a valid time"),
        (["--split-at", "1d", "--before", "x.db"], "--split-at and --before exclude each other"),
        (["--prometheus", "http://localhost:1", "--html", "x.html"], "a page with plots needs a journal"),
        (
            ["--freeze-after", "5"],
            "--freeze-after: it goes with --prometheus: a journal's streams have the threshold they were watched with",
        ),
        (["--top", "0"], "greater than or equal to 1"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_cannot_be_reported_is_said_in_a_sentence(
    arguments: list[str], sentence: str, keep: Keep, told: Told
) -> None:
    journal = keep(ten())
    source = [] if "--prometheus" in arguments else ["--journal", str(journal)]
    status, out, err = told(*source, *arguments)
    assert status in {1, 2}
    assert out == ""
    assert sentence.format(journal=journal) in err
    assert err.count("\n") == 1


def test_a_page_that_cannot_take_its_place_leaves_nothing_behind(
    keep: Keep, told: Told, tmp_path: Path
) -> None:
    """A folder has its name: the half-written page is not left beside it."""
    place = tmp_path / "pages"
    (place / "report.html").mkdir(parents=True)
    status, out, err = told("--journal", keep(ten()), "--html", place / "report.html")
    assert (status, out) == (1, "")
    assert err == f"midstream: {place / 'report.html'} is a folder; name a file in it\n"
    assert [path.name for path in place.iterdir()] == ["report.html"]


def scripted(begun: float, team: str = "search", died: float = math.inf) -> Served:
    """A Prometheus that has scraped two endings since it `begun`, every second until the program `died`."""
    labels = {"gen_ai_request_model": "big", "team": team}

    def answer(path: str) -> str:
        asked = {name: value[0] for name, value in parse_qs(urlsplit(path).query).items()}
        if "/label/" in path:
            return json.dumps({"status": "success", "data": ["stream_ended_total"]})
        result: list[object] = []
        if "query_range" not in path:
            by = asked["query"].partition("(")[2].partition(")")[0].split(", ")
            metric = {name: value for name, value in labels.items() if value and name in by}
            result = [{"metric": metric, "value": [float(asked["time"]), "2"]}]
        else:
            window = re.search(r"\[(\d+)s\]", asked["query"])
            back = float(window[1]) if window else 300.0
            start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
            moments = [start + step * n for n in range(int((end - start) / step + 1e-6) + 1)]
            there = [[at, "1"] for at in moments if at >= begun and at - back < died]
            result = [{"metric": {}, "values": there}] if there else []
        return json.dumps({"status": "success", "data": {"resultType": "", "result": result}})

    return Served("", kind="application/json", answer=answer)


@pytest.mark.parametrize("since", ["10m", "24h", "7d", "400d"])
def test_where_data_begin_is_told_to_the_second_however_long_the_span(since: str, told: Told) -> None:
    begun = time.time() - 90
    with serving(scripted(begun)) as served:
        status, out, _ = told("--prometheus", served.url, "--since", since)
    assert status == 0
    said = re.search(r"There are data from (.+) on only\.", out)
    assert said is not None
    assert 0 <= time.mktime(time.strptime(said[1], "%Y-%m-%d %H:%M:%S")) - math.floor(begun) <= 2


def test_data_that_came_and_went_between_two_steps_are_where_data_begin(told: Told) -> None:
    begun = time.time() - 5 * 86400 - 3600
    with serving(scripted(begun, died=begun + 60)) as served:
        _, out, _ = told("--prometheus", served.url, "--since", "7d")
    day = time.strftime("%Y-%m-%d %H", time.localtime(begun))
    assert f"There are data from {day}:" in out


def test_data_that_were_there_before_have_no_beginning(told: Told) -> None:
    with serving(scripted(0.0)) as served:
        assert "There are data from" not in told("--prometheus", served.url, "--since", "24h")[1]


def test_a_label_that_no_series_has_is_refused(told: Told) -> None:
    """What every fleet may be told apart by is only unknown where it is not there."""
    with serving(scripted(0.0)) as served:
        status, out, err = told("--prometheus", served.url, "--by", "model", "--by", "foo")
        assert (status, out) == (1, "")
        assert err == (
            f"midstream: no stream in {served.url} has a label 'foo' in this time; --by takes model, server, "
            "operation or a label of its metrics\n"
        )
        assert told("--prometheus", served.url, "--by", "team", "--by", "server")[0] == 0


def test_an_empty_journal_says_how_streams_get_into_it(keep: Keep, told: Told) -> None:
    journal = keep(ten())
    with closing(sqlite3.connect(journal)) as emptied, emptied:
        emptied.execute("DELETE FROM streams")
    status, out, err = told("--journal", journal)
    assert (status, out) == (1, "")
    assert err == (
        f"midstream: {journal} holds no streams yet; a program writes one when each stream ends, if it calls "
        "monitor(..., journal=FILE) or runs with MIDSTREAM_JOURNAL set\n"
    )


def test_without_a_journal_it_says_which_options_name_one(told: Told) -> None:
    status, _, err = told()
    assert status == 1
    assert "give --journal FILE, or set MIDSTREAM_JOURNAL" in err


def test_tables_need_nothing_that_pages_need(keep: Keep) -> None:
    """Plotly and Jinja are an extra of their own, and slow to import."""
    program = (
        "import sys\n"
        "from midstream.cli import main\n"
        f"assert main(['report', '--journal', {str(keep(ten()))!r}]) == 0\n"
        "assert not {'plotly', 'jinja2', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)


def test_a_page_without_its_extra_says_what_to_install(
    keep: Keep, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "midstream.report.page", raising=False)
    status, _, err = told("--journal", keep(ten()), "--html", tmp_path / "report.html")
    assert status == 1
    assert err == (
        "midstream: this needs an extra that is not installed: pip install 'midstream[report]', or in a clone "
        "'.[report]'\n"
    )


@pytest.mark.parametrize("command", ["report", "export"])
@pytest.mark.parametrize("operator", ["=", "!="])
def test_an_attribute_that_no_stream_has_is_named_with_those_that_exist(
    command: str, operator: str, keep: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Instead of a sentence about times, or of every stream where it must not have a value."""
    journal = keep(ten())
    assert main([command, "--journal", str(journal), "--where", f"foo{operator}bar"]) == 1
    assert capsys.readouterr() == (
        "",
        f"midstream: no stream in {journal} has an attribute 'foo'; there are team\n",
    )
    bare = keep([a_record()], "bare.db")
    assert main([command, "--journal", str(bare), "--where", f"foo{operator}bar"]) == 1
    assert "has an attribute 'foo'; no stream has any\n" in capsys.readouterr().err
