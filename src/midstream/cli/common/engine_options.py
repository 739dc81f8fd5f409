"""Gives a command the flags of every engine, by the names that the engines themselves use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any

import typer

from midstream.lab.admission import ENGINES
from midstream.lab.experiment import type_of_flag


def with_engine_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for every setting of every engine to a command, which gets those given as `flags`.

    An option that was left out is not in `flags`, so that the engine's own default counts.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "flags"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _options().items()
    ]

    def with_flags(**given: Any) -> None:
        flags = {name: given.pop(name) for name in _options()}
        command(**given, flags={name: value for name, value in flags.items() if value is not None})

    with_flags.__doc__ = command.__doc__
    with_flags.__name__ = command.__name__
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    # Typer reads a command's options from its signature; functions do not declare that they may have one.
    with_flags.__signature__ = signature.replace(parameters=[*keywords, *added])  # type: ignore[attr-defined]
    with_flags.__annotations__ = {p.name: p.annotation for p in [*keywords, *added]}
    return with_flags


def _options() -> dict[str, Any]:
    """Return an annotation for each setting; engines that call theirs the same share one."""
    texts: dict[str, dict[str, str]] = {}
    kinds: dict[str, type] = {}
    for engine, kind in ENGINES.items():
        for setting in fields(kind.settings):
            text = f"{setting.metadata['help']}{_default(setting.default)}"
            engines = texts.setdefault(setting.name, {})
            engines[text] = f"{engines[text]}, {engine}" if text in engines else engine
            kinds[setting.name] = type_of_flag(engine, setting.name)
    return {
        name: Annotated[
            kinds[name] | None,
            typer.Option(
                help="; ".join(f"{engines}: {text}" for text, engines in told.items()),
                show_default=False,
                metavar={int: "N", float: "X"}.get(kinds[name]),
                rich_help_panel="Engine",
            ),
        ]
        for name, told in texts.items()
    }


def _default(value: object) -> str:
    if value is None:
        return ""
    return f" ({'on' if value else 'off'})" if isinstance(value, bool) else f" ({value:g})"
