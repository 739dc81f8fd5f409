"""Shell completion: the scripts, their installation, and what real shells offer with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from midstream.cli import COMMANDS, main

SHELLS = ["bash", "zsh", "fish"]
SCRIPTS = os.path.dirname(sys.executable)

BASH = """
source {script}
COMP_WORDS=({words})
COMP_CWORD={last}
_midstream_completion midstream
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What bash is offered for a line; the last word is unfinished."""
    monkeypatch.setenv("_MIDSTREAM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["midstream", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert main([]) == 0
    return capsys.readouterr().out.split()


def test_every_command_is_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name."""
    assert completed(monkeypatch, capsys, "") == list(COMMANDS)
    assert completed(monkeypatch, capsys, "re") == ["replay", "report"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_every_command_are_offered(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of the command that stands on the line already."""
    offered = completed(monkeypatch, capsys, command, "--h")
    assert "--help" in offered


def test_a_command_of_a_command_is_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And its options."""
    assert "max-tokens" in completed(monkeypatch, capsys, "advise", "")
    assert "timeout" in completed(monkeypatch, capsys, "advise", "")
    assert "--journal" in completed(monkeypatch, capsys, "advise", "max-tokens", "--j")
    assert "--kill" in completed(monkeypatch, capsys, "advise", "timeout", "--k")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the shell named, or the one in SHELL where none started the command."""
    assert main(["--show-completion", shell]) == 0
    out, err = capsys.readouterr()
    assert f"_MIDSTREAM_COMPLETE=complete_{shell}" in out
    assert err == ""


def test_without_a_name_the_shell_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it cannot be, one sentence says how to name it."""
    import shellingham

    def fails() -> None:
        raise shellingham.ShellDetectionFailure

    monkeypatch.setattr(shellingham, "detect_shell", fails)
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert main(["--show-completion"]) == 0
    assert "complete_fish" in capsys.readouterr().out
    monkeypatch.setenv("SHELL", "")
    assert main(["--install-completion"]) == 1
    assert capsys.readouterr().err == (
        "midstream: the shell is not known; name it, as in --install-completion bash (or zsh, fish)\n"
    )
    assert main(["--show-completion", "tcsh"]) == 2
    assert "'tcsh' is not one of bash, zsh, fish" in capsys.readouterr().err


@pytest.mark.parametrize("shell", SHELLS)
def test_it_is_installed_for_this_user(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the shell's own place, which is named."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["--install-completion", shell]) == 0
    place = {
        "bash": ".bash_completions/midstream.sh",
        "zsh": ".zfunc/_midstream",
        "fish": ".config/fish/completions/midstream.fish",
    }[shell]
    assert "_MIDSTREAM_COMPLETE" in (tmp_path / place).read_text()
    assert capsys.readouterr().out == (
        f"Completion for {shell} is installed in {tmp_path / place}. Start a new shell to use it.\n"
    )


def test_a_place_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A home that is a file."""
    home = tmp_path / "home"
    home.write_text("")
    monkeypatch.setenv("HOME", str(home))
    assert main(["--install-completion", "fish"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def in_shell(shell: str, program: str, home: Path) -> str:
    """What a shell prints that runs a program; it finds the command of this environment."""
    done = subprocess.run(
        [shell, *([] if shell == "fish" else ["-f"] if shell == "zsh" else ["--norc"]), "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": f"{SCRIPTS}:{os.environ['PATH']}", "HOME": str(home), "TERM": "dumb"},
    )
    return done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the script that is printed."""
    assert main(["--show-completion", "bash"]) == 0
    script = tmp_path / "midstream.sh"
    script.write_text(capsys.readouterr().out)
    line = BASH.format(script=script, words="midstream report --jou", last=2)
    assert in_shell("bash", line, tmp_path) == "--journal\n"


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what is installed, and the help beside each word."""
    (tmp_path / ".config").mkdir()
    assert main(["--show-completion", "fish"]) == 0
    script = tmp_path / "midstream.fish"
    script.write_text(capsys.readouterr().out)
    offered = in_shell("fish", f"source {script}; complete -C 'midstream rep'", tmp_path)
    assert [line.split("\t")[0] for line in offered.splitlines()] == ["replay", "report"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_completes(tmp_path: Path) -> None:
    """What its completion function evaluates."""
    line = (
        "eval \"$(env _TYPER_COMPLETE_ARGS='midstream rep' _MIDSTREAM_COMPLETE=complete_zsh midstream "
        '| sed s/^_arguments/print/)"'
    )
    offered = in_shell("zsh", line, tmp_path)
    assert "replay" in offered
    assert "report" in offered
