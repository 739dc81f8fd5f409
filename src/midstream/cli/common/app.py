"""Builds the Typer application around the one command that was asked for, so that the others cost nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

import typer

from midstream.cli.common.plain_help import PlainCommand

if TYPE_CHECKING:
    from midstream.cli import Command

_CLOSING = """
`midstream COMMAND --help` explains a command and its options.

Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""


def run(commands: Mapping[str, Command], argv: Sequence[str]) -> int:
    """Run what `argv` asks for and return the exit status; nothing asked for is a request for help."""
    wanted = next((word for word in argv if not word.startswith("-")), None)
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(epilog=_CLOSING)(_midstream)
    for name, command in commands.items():
        found = _load(command) if name == wanted else _not_wanted
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, short_help=command.help)
        else:
            app.command(name, cls=PlainCommand, short_help=command.help)(found)
    try:
        status = typer.main.get_command(app).main(
            list(argv) or ["--help"], "midstream", standalone_mode=False
        )
    except typer.Abort:
        return 130
    except SystemExit as stop:
        status = stop.code
    return status if isinstance(status, int) else 0


def _load(command: Command) -> Callable[..., Any] | typer.Typer:
    """Return the command's function, or the Typer application of one that has commands of its own."""
    found: Callable[..., Any] | typer.Typer = getattr(
        importlib.import_module(command.module), command.function
    )
    return found


def _not_wanted() -> None:
    """Stand in for a command that was not asked for: only its line in the overview is shown."""


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"midstream {version('midstream')}")
        raise typer.Exit


def _midstream(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Tell when an LLM answer freezes in mid-stream, for how long, and whose fault it was."""
