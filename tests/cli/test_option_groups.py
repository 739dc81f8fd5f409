"""Option groups: the fields of a dataclass are options of the command that takes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from midstream.cli.common.option_groups import with_option_groups


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time."""

    since: Annotated[str | None, typer.Option(metavar="WHEN", help="Streams from then on.")] = None
    until: Annotated[str, typer.Option("--before", metavar="WHEN", help="Streams before then.")] = "now"


@dataclass(frozen=True, slots=True)
class NamedWindow(Window):
    """One that must be named."""

    name: Annotated[list[str] | None, typer.Option(help="Its name.")] = None


@with_option_groups
def report(path: Annotated[str, typer.Argument()] = "here", *, window: NamedWindow, count: int = 1) -> None:
    """Report on a span."""
    typer.echo(f"{path} {window} {count}")


def run(*arguments: str) -> str:
    """Run the command through Typer and return what it prints."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(report)
    result = CliRunner().invoke(app, list(arguments))
    return result.output


def test_every_field_is_an_option_with_its_default() -> None:
    """Inherited ones first; the command gets one value for the group."""
    assert run() == "here NamedWindow(since=None, until='now', name=None) 1\n"
    assert (
        run("there", "--since", "2h", "--before", "1h", "--name", "a", "--name", "b", "--count", "3")
        == "there NamedWindow(since='2h', until='1h', name=['a', 'b']) 3\n"
    )


def test_the_help_shows_options_where_the_group_stands() -> None:
    """In the order of the fields, with their words."""
    shown = run("--help")
    assert "Report on a span." in shown
    places = [
        shown.index(word) for word in ("--since WHEN", "Streams from then on.", "--before WHEN", "--count")
    ]
    assert places == sorted(places)


def test_a_command_can_be_called_without_typer() -> None:
    """What is left out has its default."""
    report("x", since="3h")


def test_two_options_of_one_name_are_refused_when_the_command_is_defined() -> None:
    """And a default that Typer cannot show."""
    with pytest.raises(TypeError, match="report has two options named since"):

        @with_option_groups
        def report(*, window: Window, since: str = "") -> None: ...

    @dataclass
    class Unshown:
        names: list[str] = field(default_factory=list)

    def command(*, group: Unshown) -> None: ...

    command.__annotations__["group"] = Unshown
    with pytest.raises(TypeError, match="the option names has a default factory"):
        with_option_groups(command)
