import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
from openai import OpenAI

from midstream.cli import COMMANDS, main
from midstream.cli.common.errors import CliError, explain
from support.commands import end, read_until, running
from support.paths import RECORDINGS

STREAMS = RECORDINGS / "streams"

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path, target=None):
        if name == MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def test_replay_serves_recordings_until_it_is_interrupted() -> None:
    """It says where, what and how to use it; a real client uses it; Ctrl-C ends it with 130 and no word."""
    files = [STREAMS / "vllm_chat_plain.jsonl", STREAMS / "vllm_404_model.jsonl"]
    with running("replay", *files, "--speed", "20") as process:
        printed = read_until(process, r"print\(chunk\)")
        base_url = re.search(r"^http://127\.0\.0\.1:\d+/v1$", printed, re.MULTILINE)
        assert base_url is not None
        assert (
            printed
            == f"""\
Serving 2 recordings, 20 times as fast as recorded, until Ctrl-C:

{base_url[0]}

name             recorded model  operation       lasts  longest gap
vllm_chat_plain  tiny            chat            0.8 s      0.055 s
vllm_404_model   nope            chat, HTTP 404  0.0 s      0.000 s

Try it:

    from openai import OpenAI

    client = OpenAI(base_url="{base_url[0]}", api_key="none")
    for chunk in client.chat.completions.create(model="vllm_chat_plain", messages=[], stream=True):
        print(chunk)
"""
        )
        with OpenAI(base_url=base_url[0], api_key="none") as client:
            stream = client.chat.completions.create(model="vllm_chat_plain", messages=[], stream=True)
            assert len(list(stream)) == 40
        assert end(process) == (130, "")


def test_replay_without_paths_serves_what_comes_with_the_library() -> None:
    """No path and no key are needed to see a frozen stream, and no client in mid-stream holds it up."""
    with running("replay", "--host", "0.0.0.0") as process:
        printed = read_until(process, r"print\(chunk\)")
        base_url = re.search(r"http://127\.0\.0\.1:\d+/v1", printed)
        assert base_url is not None
        assert "Serving 15 recordings, as recorded, until Ctrl-C:" in printed
        with OpenAI(base_url=base_url[0], api_key="none") as client:
            stream = client.chat.completions.create(model="over8-7", messages=[], stream=True)
            assert next(stream).model == "over8"
            status, said = end(process)
            stream.close()
    assert status == 130
    assert (
        said == "midstream: warning: every machine that can reach this one on 0.0.0.0 can use this server\n"
    )


def test_a_client_that_takes_the_first_model_gets_a_stream() -> None:
    """Recordings of errors come last, whatever their names; `midstream probe` without --model works."""
    files = [STREAMS / "vllm_404_model.jsonl", STREAMS / "vllm_chat_plain.jsonl"]
    with running("replay", "--speed", "10", *files) as process:
        url = read_until(process, r"^http").splitlines()[-1]
        with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            assert next(iter(client.models.list())).id == "vllm_chat_plain"
        end(process)


def test_the_overview_names_every_command_and_imports_none() -> None:
    """Help is quick because it loads only itself."""
    program = (
        "import sys; from midstream.cli import main; main(['--help']); print('starlette' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    *overview, loaded = done.stdout.split()
    assert loaded == "False"
    for name, command in COMMANDS.items():
        assert f"{name} {command.help}" in " ".join(overview)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_is_also_what_nothing_gets(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Called without a word, the program explains itself."""
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("Usage: midstream [OPTIONS] COMMAND [ARGS]...\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command of the table can be imported, and has help of its own."""
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: midstream {name} [OPTIONS]")


def test_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints the name and the version, and nothing else."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"midstream {version('midstream')}\n"


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["nope"], 2, "No such command 'nope'; `midstream --help` explains"),
        (["replay", "--zz"], 2, "No such option: --zz; `midstream replay --help` explains"),
        (
            ["replay", "--speed", "0"],
            2,
            "Invalid value for --speed: 0.0 is not a positive number; `midstream replay --help` explains",
        ),
        (
            ["replay", "/nowhere/at/all"],
            1,
            "there is no file or folder /nowhere/at/all; check the path",
        ),
        (
            ["replay", "--host", "192.0.2.1"],
            1,
            "192.0.2.1 is not an address of this machine; leave --host out to listen on 127.0.0.1",
        ),
        (
            ["replay", "--host", "no such host"],
            1,
            "no such host is not an address of this machine; leave --host out to listen on 127.0.0.1",
        ),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_a_status(
    arguments: Sequence[str], status: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mistakes of the caller are named on standard error, without a traceback."""
    assert main(arguments) == status
    assert capsys.readouterr() == ("", f"midstream: {sentence}\n")


def test_a_malformed_recording_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence says which line of which file is wrong, and what to do."""
    lines = (STREAMS / "vllm_chat_plain.jsonl").read_text().splitlines()
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join([*lines[:6], lines[6][:40], *lines[7:]]))
    assert main(["replay", str(broken)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"midstream: {broken}, line 7: not JSON (Unterminated string starting at)")
    assert said.endswith("; each line is one JSON object: repair or delete it\n")


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence says which port, and how to get another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["replay", "--port", str(port)]) == 1
    assert capsys.readouterr().err == (
        f"midstream: port {port} on 127.0.0.1 is in use; choose another, or take any free one with --port 0\n"
    )


@pytest.mark.parametrize(("module", "extra"), [("typer", "cli"), ("rich", "cli"), ("starlette", "lab")])
def test_a_missing_extra_is_named(module: str, extra: str) -> None:
    """Without what a command is built on, the user learns what to install."""
    program = f"MISSING = {module!r}\n{WITHOUT}\nfrom midstream.cli import main\nsys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "replay"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"midstream: this needs an extra that is not installed: pip install 'midstream[{extra}]', or in a clone "
        f"'.[{extra}]'\n"
    )


@pytest.mark.parametrize("arguments", [["--help"], ["replay"]])
def test_a_reader_that_leaves_is_no_error(arguments: list[str]) -> None:
    """`midstream ... | head -0` ends without a word."""
    with running(*arguments) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 1
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_our_own_mistakes_are_one_sentence_too() -> None:
    """An error that nobody foresaw says what and where, and asks for a report."""
    try:
        {}["speed"]  # type: ignore[index] # the mistake
    except KeyError as error:
        sentence, status = explain(error)
    assert status == 1
    assert re.fullmatch(
        r"KeyError in test_our_own_mistakes_are_one_sentence_too \(.*test_replay\.py, line \d+\): "
        r"'speed'; this is a bug, please report it with the command you ran",
        sentence,
    )
    assert explain(CliError("the server is down; start it")) == ("the server is down; start it", 1)
