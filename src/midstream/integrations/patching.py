"""Replaces methods of classes by ours, and restores them without damage to the patches of other tools.

Ours are plain functions, not wrapt's wrappers: tools that undo wrapt's wrappers take off whichever is on top, so that
another instrumentation would remove ours and leave its own behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from types import FunctionType
from typing import Any, TypeAlias

Original: TypeAlias = Callable[..., Any]
Wrapper: TypeAlias = Callable[[Original], Original]


@dataclass(frozen=True, slots=True)
class _Patch:
    owner: type
    name: str
    ours: Original
    original: Any


class Patches:
    """What was patched, in order. A patch is undone only where it is still in place."""

    def __init__(self) -> None:
        self._made: list[_Patch] = []

    def wrap(self, owner: type, name: str, wrapper: Wrapper) -> None:
        """Replace a method that `owner` itself defines by `wrapper(method)`, unless ours is there already."""
        present = vars(owner)[name]
        if any(layer is patch.ours for layer in _layers(present) for patch in self._of(owner, name)):
            return
        self._put(owner, name, wraps(present)(wrapper(present)), present)

    def undo(self) -> None:
        """Restore the original methods. Where another tool has patched over ours since, both patches stay."""
        left = []
        for patch in reversed(self._made):
            if vars(patch.owner).get(patch.name) is not patch.ours:
                left.append(patch)
            else:
                setattr(patch.owner, patch.name, patch.original)
        self._made = left[::-1]

    def _put(self, owner: type, name: str, ours: Original, original: Any) -> None:
        self._made = [patch for patch in self._made if not (patch.owner is owner and patch.name == name)]
        self._made.append(_Patch(owner, name, ours, original))
        setattr(owner, name, ours)

    def _of(self, owner: type, name: str) -> Iterator[_Patch]:
        return (patch for patch in self._made if patch.owner is owner and patch.name == name)


def bind(method: Original, obj: Any) -> Original:
    """Return what `obj.method` would be. What is found in a class need not be a function: a mock is none."""
    get = getattr(type(method), "__get__", None)
    return method if get is None else get(method, obj, type(obj))


def bound(method: Original) -> Original:
    """Return a function that takes the object first and calls `bind(method, obj)`; a plain function is that already."""
    if isinstance(method, FunctionType):
        return method

    def call(obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        return bind(method, obj)(*args, **kwargs)

    return call


def _layers(function: Any) -> Iterator[Any]:
    """A function and what it wraps, as far as `__wrapped__` leads."""
    seen: set[int] = set()
    while function is not None and id(function) not in seen:
        seen.add(id(function))
        yield function
        function = getattr(function, "__wrapped__", None)
