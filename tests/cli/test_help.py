"""The `--help` of every command, as somebody reads it who has nothing but this repository."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from midstream.cli import COMMANDS, main
from support.paths import ROOT

ALL = [[name] for name in COMMANDS] + [
    ["advise", name] for name in ("max-tokens", "concurrency", "timeout", "flags")
]
EACH = pytest.mark.parametrize("command", ALL, ids=" ".join)

OBTAINED: Mapping[str, tuple[str, ...]] = {
    "streams.db": (
        "midstream demo",
        "is not there yet is waited for",
        "--journal streams.db    keep a record",
    ),
    "vllm.log": ("| tee vllm.log",),
    "config.json": ("the config.json in the model's folder",),
    "before.db": ("each written by its own monitor(journal=FILE)",),
    "after.db": ("each written by its own monitor(journal=FILE)",),
    "roomy.jsonl": ("cd tests/recordings/load",),
    "cap4_active.jsonl": ("cd tests/recordings/load",),
    "over8.jsonl": ("cd tests/recordings/load",),
}
"""A file that an example reads, and what the same help says, one of these, about where it comes from."""
MADE = re.compile(r"(?:-o|>|--html|--plot|--output) (\S+)")


def help_of(command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What is printed on a wide terminal."""
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*command, "--help"]) == 0
    return capsys.readouterr().out


def examples(text: str) -> list[str]:
    """The commands to copy, each as one line."""
    before_options = re.split(r"^(?:Arguments|Options):$", text, flags=re.MULTILINE)[0]
    lines = before_options.replace("\\\n", " ").splitlines()[1:]
    return [line.strip() for line in lines if re.match(r" +midstream [a-z]", line)]


@EACH
def test_no_help_speaks_of_types(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says seconds, a file or a URL, and not how the program keeps them."""
    shown = help_of(command, capsys, monkeypatch)
    assert (
        re.findall(r"<[a-z]\S*|\{|\blist\[|\b(?:FLOAT|INTEGER|TEXT RANGE|PATH|str|int)\b(?!\])", shown) == []
    )


@EACH
def test_every_example_names_files_that_one_can_have(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an earlier line, from the repository, or with the words that say from where."""
    shown = help_of(command, capsys, monkeypatch)
    made: set[str] = set()
    for example in examples(shown):
        read = set(re.findall(r"[\w./-]+\.(?:db|jsonl?|log|csv|parquet|txt|html|png|svg|ya?ml)\b", example))
        made |= set(MADE.findall(example))
        for name in read - made:
            assert (ROOT / name).exists() or any(words in shown for words in OBTAINED[name]), (name, example)


READERS = [
    ("rules", "--config"),
    ("simulate", "--arrivals"),
    ("simulate", "--lengths"),
    ("simulate", "--answer"),
    ("advise", "flags", "--engine", "vllm", "--metrics"),
    ("advise", "flags", "--engine", "vllm", "--log"),
    ("advise", "flags", "--engine", "vllm", "--memory", "4GiB", "--model-config"),
]


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_a_file_that_cannot_be_read_is_one_sentence(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder, or what is no text: in our words, and not in those of the library that reads it."""
    noise = tmp_path / "noise"
    noise.write_bytes(bytes(range(128, 256)) * 9)
    assert main([*command, str(tmp_path)]) == 1
    assert capsys.readouterr() == ("", f"midstream: {tmp_path} is a folder; name a file in it\n")
    assert main([*command, str(noise)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"midstream: {noise}")
    assert err.count("\n") == 1
    assert "codec" not in err
    assert err.isascii()


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "--sweep", "max-num-seqs=2..4", "--plot"),
        ("advise", "max-tokens", "--plot"),
        ("advise", "concurrency", "--pool", "3584", "--plot"),
    ],
    ids=" ".join,
)
def test_a_picture_with_no_place_to_go_is_known_before_the_work(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not a minute later."""
    picture = tmp_path / "none" / "cap.png"
    assert main([*command, str(picture)]) == 1
    sentence = f"there is no folder {picture.parent}; make it, or name another file than {picture}"
    assert capsys.readouterr() == ("", f"midstream: {sentence}\n")


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("probe", "Usage: midstream probe [OPTIONS] URL"),
        ("compare", "Usage: midstream compare [OPTIONS] [BEFORE] [AFTER]"),
        ("replay", "Usage: midstream replay [OPTIONS] [PATH]..."),
        ("dashboard", "Usage: midstream dashboard [OPTIONS] [NAME]..."),
        ("demo", "Usage: midstream demo [OPTIONS]"),
    ],
)
def test_the_usage_line_names_what_is_to_be_given(
    command: str, usage: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With brackets around what may be left out, and no other signs."""
    assert help_of([command], capsys, monkeypatch).splitlines()[0] == usage


def test_arguments_have_their_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the options."""
    shown = help_of(["probe"], capsys, monkeypatch)
    assert (
        "Arguments:\n  URL  Address of the server; /v1 and http:// may be left out.\n\nOptions:\n  --model NAME "
        in shown
    )


def test_the_recorded_loads_of_the_help_are_there() -> None:
    """Where it says."""
    names = [path.name for path in sorted((ROOT / "tests" / "recordings" / "load").glob("*.jsonl"))]
    assert names == ["cap4_active.jsonl", "over8.jsonl", "roomy.jsonl"]
