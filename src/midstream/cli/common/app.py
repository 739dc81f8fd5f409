"""Builds the Typer application around the one command that was asked for, so that the others cost nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.completion import completion_init  # type: ignore[attr-defined] # not in its __all__

from midstream import __version__
from midstream._support.interrupts import INTERRUPTED
from midstream.cli.common.completion import (
    SHELLS,
    install_completion,
    is_completing,
    show_completion,
    with_shell,
    words_to_complete,
)
from midstream.cli.common.interrupts import raise_from_now_on
from midstream.cli.common.plain_help import PlainCommand

if TYPE_CHECKING:
    from midstream.cli import Command

_CLOSING = """
`midstream COMMAND --help` explains a command and its options.

Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""


def run(commands: Mapping[str, Command], argv: Sequence[str]) -> int:
    """Run what `argv` asks for and return the exit status; nothing asked for is a request for help."""
    completion_init()
    words = words_to_complete() if is_completing() else with_shell(argv)
    wanted = next((word for word in words if not word.startswith("-")), None)
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(epilog=_CLOSING)(_midstream)
    for name, command in commands.items():
        found = _load(command) if name == wanted else _placeholder
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, short_help=command.help)
        else:
            app.command(name, cls=PlainCommand, short_help=command.help)(found)
    try:
        status = typer.main.get_command(app).main(words or ["--help"], "midstream", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except SystemExit as stop:
        status = stop.code
    return status if isinstance(status, int) else 0


def _load(command: Command) -> Callable[..., Any] | typer.Typer:
    """Return the command's function, or the Typer application of one that has commands of its own."""
    found: Callable[..., Any] | typer.Typer = getattr(
        importlib.import_module(command.module), command.function
    )
    return found


def _placeholder() -> None:
    """Take the place of a command that was not asked for: only its line in the overview is shown."""


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"midstream {__version__}")
        raise typer.Exit


def _midstream(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    install: Annotated[
        str | None,
        typer.Option(
            "--install-completion",
            metavar="[SHELL]",
            callback=install_completion,
            is_eager=True,
            help=f"Install completion for {', '.join(SHELLS)}, and exit.",
            show_default=False,
        ),
    ] = None,
    show: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="[SHELL]",
            callback=show_completion,
            is_eager=True,
            help="Print the completion script, and exit.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Tell when an LLM answer freezes in mid-stream, for how long, and whose fault it was."""
    raise_from_now_on()
