"""The journal as people switch it on: by keyword, by variable, without touching the program."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.wire import WireServer
from openai import OpenAI

from midstream import StreamRecord, monitor
from midstream.cli import main
from midstream.journal import flush, read_records
from midstream.runtime.settings import Settings, settings_from
from midstream.testing import DONE, ManualClock, collect, finish, role, scripted, text, usage
from support.harness import ASK

LAUNCHER = Path(sysconfig.get_path("scripts")) / "opentelemetry-instrument"
SECRET = "s3cret"
PROGRAM = """
import sys
from openai import OpenAI
client = OpenAI(api_key="s3cret", base_url=sys.argv[1], default_headers={"x-team": "s3cret"})
for _ in range(3):
    list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "s3cret"}], stream=True))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "streams.db"


@pytest.fixture
def server() -> Iterator[WireServer]:
    script = [(0.0, role()), (0.01, text(SECRET)), (0.02, text("two")), (0.03, finish() + usage(3, 2) + DONE)]
    with WireServer(script) as wire:
        yield wire


def words() -> Iterator[str]:
    yield "one"
    yield "two"


def test_journal_gives_back_the_record_that_on_end_got(path: Path) -> None:
    """Every field of a real stream, its freeze included."""
    clock = ManualClock(1e9)
    script = [(1.0, text("a")), (9.5, text("b")), (9.6, finish() + usage(5, 2) + DONE)]
    client = OpenAI(api_key="none", http_client=scripted(script, clock))
    seen = collect(client, clock=clock, journal=path, journal_max_days=None, attributes={"team": "search"})
    list(client.chat.completions.create(**ASK, stream=True, max_tokens=7))
    assert flush()

    (record,) = read_records(path)
    assert record == seen.record
    assert (record.freezes, len(record.freeze_spans), record.token_limit) == (1, 1, 7)
    assert record.attributes == {"team": "search"}


def test_keyword_switches_the_journal_on_for_what_is_given(path: Path) -> None:
    """A stream of any make; two monitors with one path share its writer."""
    list(monitor(words(), journal=path))
    list(monitor(words(), journal=str(path)))
    list(monitor(words()))
    assert flush()

    assert [record.chunks for record in read_records(path)] == [2, 2]


def test_variable_switches_it_on_and_the_keyword_wins(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None keeps a stream out of it."""
    monkeypatch.setenv("MIDSTREAM_JOURNAL", str(path))
    list(monitor(words()))
    list(monitor(words(), journal=None))
    list(monitor(words(), journal=path.with_name("other.db")))
    assert flush()

    assert len(read_records(path)) == 1
    assert len(read_records(path.with_name("other.db"))) == 1


def test_relative_path_stays_where_it_was_meant(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The program changes its directory afterwards."""
    monkeypatch.chdir(tmp_path)
    follow = monitor(journal="streams.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    list(follow(words()))
    assert flush()

    assert len(read_records(path)) == 1


def launched(path: Path, server: WireServer, *launcher: str, program: str = PROGRAM) -> None:
    done = subprocess.run(
        [*launcher, sys.executable, "-c", program, server.base_url],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "MIDSTREAM_JOURNAL": str(path)},
    )
    assert done.returncode == 0, done.stderr


def test_program_with_one_line_keeps_a_journal(path: Path, server: WireServer) -> None:
    """It ends right after its last stream, and nothing is missing."""
    launched(path, server, program=f"import midstream\nmidstream.instrument()\n{PROGRAM}")

    assert [record.output_tokens for record in read_records(path)] == [2, 2, 2]


@pytest.mark.skipif(not LAUNCHER.exists(), reason="opentelemetry-instrument is not installed")
def test_program_that_does_not_know_of_us_keeps_a_journal(path: Path, server: WireServer) -> None:
    """The launcher's environment is enough."""
    options = ["--traces_exporter", "none", "--logs_exporter", "none", "--metrics_exporter", "none"]
    launched(path, server, str(LAUNCHER), *options)

    assert [record.request_model for record in read_records(path)] == ["m", "m", "m"]


def test_no_prompt_output_or_key_is_in_the_file(path: Path, server: WireServer) -> None:
    """Nor in the files that SQLite keeps beside it."""
    launched(
        path, server, program=f"import midstream\nmidstream.instrument()\n{PROGRAM}\nimport os\nos._exit(0)"
    )
    launched(path, server, program=f"import midstream\nmidstream.instrument()\n{PROGRAM}")

    everything = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"127.0.0.1" in everything
    assert SECRET.encode() not in everything


def test_probe_stays_out_of_the_journal(
    path: Path, server: WireServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it asks for is not what users do, and would be advised upon."""
    monkeypatch.setenv("MIDSTREAM_JOURNAL", str(path))
    assert main(["probe", server.base_url, "--model", "m", "-n", "1"]) == 0
    assert flush()

    assert "1 stream" in capsys.readouterr().out
    assert not path.exists()


def test_hook_hears_of_a_stream_whose_journal_cannot_be_written(tmp_path: Path) -> None:
    """The two know nothing of each other."""
    ended: list[StreamRecord] = []
    list(monitor(words(), journal=tmp_path / "no" / "streams.db", on_end=ended.append))

    assert [record.chunks for record in ended] == [2]
    assert not flush()
    (tmp_path / "no").mkdir()
    assert flush()
    assert read_records(tmp_path / "no" / "streams.db") == ended


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (None, 100.0, 30.0)),
        ({"MIDSTREAM_JOURNAL": ""}, (None, 100.0, 30.0)),
        (
            {"MIDSTREAM_JOURNAL": " /var/lib/app/streams.db ", "MIDSTREAM_JOURNAL_MAX_MB": "0.5"},
            (Path("/var/lib/app/streams.db"), 0.5, 30.0),
        ),
        (
            {"MIDSTREAM_JOURNAL_MAX_MB": "off", "MIDSTREAM_JOURNAL_MAX_DAYS": "365"},
            (None, None, 365.0),
        ),
    ],
)
def test_environment_says_where_and_how_large(environment: dict[str, str], expected: tuple[Any, ...]) -> None:
    """An empty variable is none."""
    settings = settings_from(environment, {})

    assert (settings.journal, settings.journal_max_mb, settings.journal_max_days) == expected


def test_home_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell has looked at a variable that a service sets."""
    monkeypatch.setenv("HOME", "/home/ada")
    assert Settings(journal="~/streams.db").journal == Path("/home/ada/streams.db")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("journal", "error", "sentence"),
    [
        (7, TypeError, "journal must be the path of a file or None, got 7"),
        (True, TypeError, "journal must be the path of a file or None, got True"),
        (b"streams.db", TypeError, "journal must be the path of a file or None, got b'streams.db'"),
        ("", ValueError, "journal must be the path of a file, got an empty one; use None for no journal"),
    ],
)
def test_what_is_no_path_is_refused_at_once(journal: Any, error: type[Exception], sentence: str) -> None:
    """Nothing raises later."""
    with pytest.raises(error) as caught:
        monitor(words(), journal=journal)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("name", ["MIDSTREAM_JOURNAL_MAX_MB", "MIDSTREAM_JOURNAL_MAX_DAYS"])
@pytest.mark.parametrize("value", ["0", "-1", "much", "inf", "nan"])
def test_limit_that_is_no_number_is_refused_at_once(name: str, value: str) -> None:
    """With the variable, its value and the remedy."""
    with pytest.raises(ValueError, match=f"{name} must be a positive number of .* or 'off', got '{value}'"):
        settings_from({name: value}, {})
