"""Shell completion: prints or installs the script for bash, zsh or fish, and finds the command to complete.

Typer makes the scripts and the completions. Which shell is asked for can be left out: it is then the one that started
the command, or the one in SHELL.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import typer
from typer.completion import get_completion_script, install  # type: ignore[attr-defined] # not in its __all__

from midstream.cli.common.errors import CliError, unwritten

SHELLS: Final = ("bash", "zsh", "fish")
_OPTIONS = ("--install-completion", "--show-completion")
_VARIABLE = "_MIDSTREAM_COMPLETE"
_PROGRAM = "midstream"


def is_completing(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a shell asks for completions."""
    return _VARIABLE in environment


def words_to_complete(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the words on the shell's line behind the program's name, the last of which may be unfinished."""
    line = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        return shlex.split(line)[1:]
    except ValueError:  # an open quotation mark
        return line.split()[1:]


def with_shell(argv: Sequence[str]) -> list[str]:
    """Add the current shell to an option about completion that is given without one. Raises CliError."""
    words = list(argv)
    if len(words) == 1 and words[0] in _OPTIONS:
        words.append(_current_shell(words[0]))
    return words


def show_completion(shell: str | None) -> None:
    """Print the script that makes a shell complete the command, and end it. Raises BadParameter."""
    if shell is not None:
        typer.echo(_script(_known(shell, "--show-completion")))
        raise typer.Exit


def install_completion(shell: str | None) -> None:
    """Install that script for this user, and end the command. Raises BadParameter or CliError."""
    if shell is None:
        return
    known = _known(shell, "--install-completion")
    try:
        _, path = install(known, _PROGRAM, _VARIABLE)
    except OSError as error:
        raise unwritten(Path(error.filename or "the file"), error) from error
    typer.echo(f"Completion for {known} is installed in {path}. Start a new shell to use it.")
    raise typer.Exit


def _script(shell: str) -> str:
    return str(get_completion_script(prog_name=_PROGRAM, complete_var=_VARIABLE, shell=shell))


def _known(shell: str, option: str) -> str:
    if shell not in SHELLS:
        raise typer.BadParameter(f"{shell!r} is not one of {', '.join(SHELLS)}.", param_hint=option)
    return shell


def _current_shell(option: str) -> str:
    import shellingham  # noqa: PLC0415 - Typer's own, and only used here

    try:
        found = str(shellingham.detect_shell()[0])
    except (shellingham.ShellDetectionFailure, OSError):
        found = ""
    if found not in SHELLS:
        found = os.path.basename(os.environ.get("SHELL", ""))
    if found not in SHELLS:
        raise CliError(f"the shell is not known; name it, as in {option} bash (or {', '.join(SHELLS[1:])})")
    return found
