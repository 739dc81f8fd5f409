"""`midstream watch`: what it prints, beside a server that comes and goes and a journal that grows."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from midstream.cli import main
from midstream.cli.watch.run import Run
from midstream.cli.watch.show import line, row, together
from midstream.journal import Journal
from midstream.sources.scrape import Scraper
from midstream.sources.server import view_of
from midstream.sources.tail import Tail
from midstream.stream.model import FreezeSpan, StreamRecord
from support.commands import end, read_until, running
from support.metrics_pages import LLAMACPP, SGLANG, TGI, Served, serving, vllm
from support.records import a_record
from support.waiting import until

SECRET = "s3cr3t-v4lue"


def watch(*arguments: str | Path) -> int:
    """Run the command in this process."""
    return main(["watch", *map(str, arguments)])


def test_one_reading_is_a_line_with_what_must_be_known_above_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Title, reasons, header, numbers."""
    with serving(Served(TGI)) as served:
        assert watch("--server", served.url, "--once") == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0] == f"TGI, {served.url}/metrics: KV cache ?"
    assert lines[1].startswith("? KV use: TGI exposes how much is reserved")
    assert lines[2].startswith(
        "? KV cache: TGI does not expose it in its metrics; it is --max-batch-total-tokens"
    )
    assert lines[3] == "re-queues: an estimate: passes less requests, TGI counts none"
    assert lines[-2].split() == [
        "time",
        "running",
        "waiting",
        "KV",
        "use",
        "re-queues/s",
        "since",
        "start",
        "tokens/s",
    ]
    assert lines[-1].split()[1:] == ["2", "4", "?", "-", "4", "-"]


def test_one_reading_for_a_script_names_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Null, and the reason beside it."""
    with serving(Served(LLAMACPP)) as served:
        assert watch("--server", served.url, "--once", "--json") == 0
    found = json.loads(capsys.readouterr().out)

    assert (found["engine"], found["running"], found["waiting"], found["preemptions"]) == (
        "llamacpp",
        2,
        7,
        None,
    )
    assert set(found["unknown"]) == {"kv_usage", "pool_tokens"}


def test_a_share_and_a_pool_are_written_for_people() -> None:
    """A dash where the engine has nothing of the kind, a question mark where it is not known."""
    cells = row(0.0, view_of(SGLANG), None)

    assert cells[1:] == ("3", "2", "25 %", "-", "0", "-")
    assert row(0.0, view_of(vllm().replace("_running", "_walking")), None)[1] == "?"
    assert line(cells).endswith("25 %               -             0          -")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--server", "127.0.0.1:1"], 1, "nothing listens at http://127.0.0.1:1"),
        (["--server", "ftp://h"], 2, "only http and https can be asked"),
        (["--server", "h", "--engine", "ollama"], 2, "ollama is not one of vllm, sglang"),
        (["--server", "h", "--interval", "0"], 2, "0 is not a positive number of seconds"),
        (["--server", "h", "--for", "nan"], 2, "nan is not a positive number of seconds"),
        (["--server", "h", "--where", "model=m"], 2, "it chooses streams of a journal, and none is named"),
        (["--server", "h", "--journal", "/nowhere/j.db"], 1, "there is no journal at /nowhere/j.db"),
        (["--server", "h", "--journal", ""], 1, "no journal is named; give --journal FILE"),
        (["--server", "h", "--header", SECRET], 2, "it is not NAME:VALUE"),
        ([], 2, "--server"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    arguments: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What, where, what to do; never a header's value."""
    assert watch(*arguments) == status
    printed = capsys.readouterr()

    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert SECRET not in printed.out + printed.err


def test_the_token_of_the_environment_is_sent_and_never_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside headers from the command line."""
    monkeypatch.setenv("MIDSTREAM_SERVER_TOKEN", SECRET)
    with serving(Served("no", 401)) as served:
        assert watch("--server", served.url, "--once", "--header", f"X-Team: {SECRET}2") == 1
    printed = capsys.readouterr()

    assert SECRET not in printed.out + printed.err
    assert served.asked[0][1]["Authorization"] == f"Bearer {SECRET}"
    assert served.asked[0][1]["X-Team"] == f"{SECRET}2"


def test_a_server_that_goes_is_unknown_and_comes_back() -> None:
    """The watch goes on meanwhile, and Ctrl-C ends it with nothing but its lines."""
    with serving(Served(vllm(preemptions=1))) as served:
        arguments = ["watch", "--server", served.url, "--interval", "0.05", "--timeout", "2"]
        port = served.port
        with running(*arguments) as process:
            read_until(process, r"^\d\d:\d\d:\d\d +1 +0 +50 % +-")
            served.text = vllm(preemptions=3)
            read_until(process, r"^\d\d:\d\d:\d\d +1 +0 +50 % +[1-9]")
            served.status = 503
            gone = read_until(process, r"^\d\d:\d\d:\d\d +\? +\? +\? +\? +\? +\?")
            assert "unknown since" in gone
            assert f"http://127.0.0.1:{port}/metrics answers 503" in gone
            served.status = 200
            back = read_until(process, r"back after")
            assert re.search(r"back after [0-9.]+ s$", back, re.MULTILINE)
            served.text = vllm(preemptions=0)
            read_until(process, r"restarted: its counters began anew")
            assert end(process) == (130, "")


def test_json_is_a_document_for_each_reading() -> None:
    """Also for one that failed."""
    with (
        serving(Served(vllm(preemptions=1, tokens=10))) as served,
        running("watch", "--server", served.url, "--interval", "0.05", "--json") as process,
    ):
        first = json.loads(read_until(process, "."))
        served.text = vllm(preemptions=2, tokens=40)
        later = json.loads(read_until(process, '"preemptions": 2').splitlines()[-1])
        served.text = "<html>"
        failed = json.loads(read_until(process, '"error"').splitlines()[-1])
        assert end(process) == (130, "")

    assert (first["preemptions"], first["preemptions_per_s"], first["pool_tokens"]) == (1, None, 1600)
    assert later["preemptions_per_s"] > 0
    assert "is a web page and not metrics" in failed["error"]
    assert failed["unknown_since"] <= failed["at"]


def frozen(at: float, length_s: float, **more: object) -> StreamRecord:
    """A stream that froze in its first second."""
    span = FreezeSpan(at_s=1.0, length_s=length_s, phase="text", hidden=False, shared=False, open=False)
    return a_record(
        started_at=at,
        duration_s=length_s + 2,
        max_gap_s=length_s,
        freezes=1,
        frozen_s=length_s,
        freeze_spans=(span,),
        **more,
    )


def test_a_freeze_in_the_journal_is_set_beside_the_preemption_of_its_time(tmp_path: Path) -> None:
    """And one that has none in its time is told from it."""
    path = tmp_path / "j.db"
    journal = Journal(path)
    journal.write(frozen(time.time() - 3600, 9.0))  # before the watch
    journal.flush()
    said: list[str] = []
    with serving(Served(vllm(preemptions=0))) as served, Scraper(served.url) as scraper:
        run = Run(scraper, Tail(path))
        run.say = lambda event: said.append(event.words()) if hasattr(event, "words") else None
        begun = time.time()
        run.first()
        served.text = vllm(preemptions=2)
        run.step()
        journal.write(frozen(time.time() - 1.0, 0.01))
        journal.flush()

        def told() -> bool:
            run.step()
            return bool(said)

        until(told)
        concluded = list(run.finish())
    journal.close()

    assert time.time() - begun < 10
    assert len(said) == 1
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d  m: a freeze of 0.0 s that began .* (after|of) 2 preemptions", said[0]
    ), said
    assert concluded[0].startswith("1 of 1 freeze began or ended with preemptions")


def test_a_journal_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    """It is said once, and the freezes of its first stream are seen."""
    path = tmp_path / "w.db"
    with (
        serving(Served(vllm(preemptions=0))) as served,
        running("watch", "--server", served.url, "--interval", "0.05", "--journal", str(path)) as process,
    ):
        read_until(process, r"^\d\d:\d\d:\d\d +1 +0 +50 % +-")
        assert not path.exists()
        journal = Journal(path)
        journal.write(frozen(time.time() - 1.0, 0.01))
        journal.flush()
        read_until(process, r"^\d\d:\d\d:\d\d  freeze at \d\d:\d\d:\d\d  m: a freeze of 0\.0 s")
        journal.close()
        assert end(process) == (130, f"midstream: no journal yet at {path}; waiting for it\n")


def test_a_tail_gives_each_freeze_once_and_only_those_that_are_meant(tmp_path: Path) -> None:
    """Those that ended before the first look are old."""
    path = tmp_path / "j.db"
    journal = Journal(path)
    journal.write(frozen(1000.0, 5.0))
    journal.flush()
    now = 1100.0
    tail = Tail(path, [lambda record: record.request_model == "m"], clock=lambda: now)

    assert tail.poll() == []
    journal.write(frozen(1090.0, 20.0))
    journal.write(frozen(1090.0, 20.0, request_model="other"))
    journal.write(a_record(started_at=1095.0))
    journal.flush()
    journal.close()
    now = 1120.0
    assert [(each.start, each.end) for each in tail.poll()] == [(1091.0, 1111.0)]
    now = 1130.0
    assert tail.poll(last=True) == []


def test_freezes_of_one_moment_are_one_line_with_their_number(tmp_path: Path) -> None:
    """Six streams that froze together, and an earlier one: in the order of time, whatever the journal's is."""
    path = tmp_path / "j.db"
    began = float(int(time.time())) + 0.2
    with serving(Served(vllm(preemptions=0))) as served, Scraper(served.url) as scraper:
        run = Run(scraper, Tail(path))
        steps: list[list[str]] = []
        run.say_freezes = lambda found: steps.append(together(found))
        run.first()
        journal = Journal(path)
        for number in range(6):
            journal.write(frozen(began + 8.0 + number / 1000, 0.01))
        journal.write(frozen(began + 2.0, 0.02))
        journal.flush()
        shown = list(run.finish())
    journal.close()

    (lines,) = steps
    assert len(lines) == 2
    assert "a freeze of 0.0 s" in lines[0]
    assert not lines[0].endswith(" streams)")
    assert lines[1].endswith(" (6 streams)")
    assert lines[0][:8] != lines[1][:8]
    assert " of 7 freezes " in shown[0]


def test_times_are_in_one_zone_which_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local one."""
    monkeypatch.setenv("TZ", "UTC-5:30")
    time.tzset()
    try:
        with serving(Served(TGI)) as served:
            assert watch("--server", served.url, "--once") == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "\nTimes are local time, UTC+05:30.\n" in capsys.readouterr().out


def test_an_engine_that_the_page_contradicts_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The page decides, and the option has no effect; the right one needs no word."""
    with serving(Served(TGI)) as served:
        assert watch("--server", served.url, "--once", "--engine", "vllm") == 0
        assert capsys.readouterr().err == (
            "midstream: --engine vllm has no effect: the server's page shows the engine, which is tgi\n"
        )
        assert watch("--server", served.url, "--once", "--engine", "tgi") == 0
    assert capsys.readouterr().err == ""
