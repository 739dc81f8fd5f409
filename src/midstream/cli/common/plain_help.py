"""The `--help` of a command in words for people: what an argument is called, and no types."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from typer.core import TyperArgument, TyperCommand

if TYPE_CHECKING:
    from collections.abc import Sequence


def choices(words: type[Enum]) -> str:
    """Return the words of an enumeration, as they stand in a command's help."""
    return "|".join(str(each.value) for each in words)


class PlainCommand(TyperCommand):
    """A command whose help shows each argument by its metavar alone, whatever this version of Typer adds to it."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what stands behind the command's name: options first, as everywhere."""
        return ["[OPTIONS]", *(_usage(argument) for argument in self._arguments())]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options, each with its sentence."""
        rows: Sequence[tuple[str, str]] = [
            (argument.metavar or argument.name or "", argument.help or "") for argument in self._arguments()
        ]
        if rows:
            with formatter.section("Arguments"):
                formatter.write_dl(rows)
        told = (each.get_help_record(ctx) for each in self.get_params(ctx))
        arguments = {argument.name for argument in self._arguments()}
        options = [
            record
            for each, record in zip(self.get_params(ctx), told, strict=True)
            if record is not None and each.name not in arguments
        ]
        with formatter.section("Options"):
            formatter.write_dl(options)

    def _arguments(self) -> list[TyperArgument]:
        return [each for each in self.params if isinstance(each, TyperArgument)]


def _usage(argument: TyperArgument) -> str:
    name = argument.metavar or argument.name or ""
    return name if argument.required or name.startswith("[") else f"[{name}]"
