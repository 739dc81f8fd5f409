"""Option groups: options that belong together are the fields of a dataclass, which a command takes as one parameter.

    @dataclass(frozen=True, slots=True)
    class Window:
        since: Annotated[str | None, typer.Option(metavar="WHEN", help="Streams from then on.")] = None
        until: Annotated[str | None, typer.Option(metavar="WHEN", help="Streams before then.")] = None

    @with_option_groups
    def report(*, window: Window, as_json: JsonOption = False) -> int: ...

Typer sees `--since`, `--until` and `--json`; the command gets a `Window`. A group may inherit from another.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

_Result = TypeVar("_Result")


def with_option_groups(command: Callable[..., _Result]) -> Callable[..., _Result]:
    """Return the command with the fields of each dataclass among its parameters as options, in the same place.

    Raises TypeError if two options have the same name, or a field has a default factory, which Typer cannot show.
    """
    signature = inspect.signature(command, eval_str=True)
    groups = {name: each.annotation for name, each in signature.parameters.items() if _is_group(each)}
    parameters = [
        option
        for name, each in signature.parameters.items()
        for option in (_options_of(groups[name]) if name in groups else [each])
    ]
    names = [each.name for each in parameters]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise TypeError(f"{command.__name__} has two options named {', '.join(twice)}")

    @wraps(command)
    def expanded(*arguments: Any, **given: Any) -> _Result:
        taken = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group) if each.name in given})
            for name, group in groups.items()
        }
        return command(*arguments, **given, **taken)

    # Typer reads a command's options from its signature and its annotations; functions do not declare the former.
    expanded.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {each.name: each.annotation for each in parameters}
    del expanded.__wrapped__  # or its signature would be read instead
    return expanded


def _is_group(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)


def _options_of(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=_default_of(each), annotation=hints[each.name]
        )
        for each in fields(group)
    ]


def _default_of(option: Field[Any]) -> Any:
    if option.default_factory is not MISSING:
        raise TypeError(f"the option {option.name} has a default factory; give it a plain default")
    return inspect.Parameter.empty if option.default is MISSING else option.default
