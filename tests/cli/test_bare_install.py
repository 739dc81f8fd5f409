"""The command where extras are missing: it still answers what it can, and names the extras that a command needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

import midstream
from midstream.cli import COMMANDS

WITHOUT = """
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

missing = sys.argv.pop(1).split(",")
sys.meta_path.insert(0, Missing())
runpy.run_module("midstream", run_name="__main__", alter_sys=True)
"""
CLI = ("typer", "click", "rich", "yaml", "requests", "prometheus_client")
LAB = ("matplotlib", "scipy", "starlette", "uvicorn", "prometheus_client")


def run_without(missing: Sequence[str], *words: str) -> tuple[int, str, str]:
    """Return exit status, standard output and standard error of the command where these modules are not installed."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, ",".join(missing), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_version_needs_no_extra() -> None:
    """Neither as a command nor as an attribute."""
    assert midstream.__version__ == "0.1.0"
    assert run_without([*CLI, *LAB], "--version") == (0, "midstream 0.1.0\n", "")


def test_help_without_extras_lists_the_commands_and_says_what_they_need() -> None:
    """In place of an error about a library."""
    status, out, err = run_without([*CLI, *LAB], "--help")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  ")] == list(COMMANDS)
    assert err == (
        "midstream: this needs an extra that is not installed: pip install 'midstream[cli]', or in a clone '.[cli]'\n"
    )


@pytest.mark.parametrize(
    ("command", "extras"),
    [
        ("report", "cli"),
        ("export", "cli"),
        ("compare", "cli"),
        ("rules", "cli"),
        ("watch", "cli"),
        ("probe", "cli"),
        ("dashboard", "cli"),
        ("serve", "cli,lab"),
        ("demo", "cli,lab"),
        ("simulate", "cli,lab"),
        ("replay", "cli,lab"),
        ("advise", "cli,lab"),
        ("proxy", "cli,proxy"),
    ],
)
def test_a_command_without_its_extras_names_all_of_them(command: str, extras: str) -> None:
    """In one sentence, so that one installation is enough."""
    noun = "an extra that is" if "," not in extras else "extras that are"
    assert run_without([*CLI, *LAB], command) == (
        1,
        "",
        (
            f"midstream: this needs {noun} not installed: pip install 'midstream[{extras}]', "
            f"or in a clone '.[{extras}]'\n"
        ),
    )


@pytest.mark.parametrize("command", ["serve", "demo", "replay"])
def test_the_lab_is_named_where_only_it_is_missing(command: str) -> None:
    """Beside what is there already."""
    assert run_without(LAB[:-1], command) == (
        1,
        "",
        "midstream: this needs an extra that is not installed: pip install 'midstream[lab]', or in a clone '.[lab]'\n",
    )


@pytest.mark.parametrize("command", ["dashboard", "export", "probe", "report", "rules", "watch", "compare"])
def test_a_command_works_without_the_extras_that_it_does_not_need(command: str) -> None:
    """Its help, at least, which imports all that it is made of."""
    status, out, err = run_without([*LAB[:-1], "pyarrow", "jinja2", "plotly"], command, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: midstream {command} ")
