"""A proxy for any object: of its class to `isinstance`, with its attributes, and able to do just what it can do.

General-purpose proxies have every special method there is, so that a generator behind one looks sized, callable or like
a context manager. This one has the special methods of its object and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

_NOT_PASSED_ON = {
    "__class__", "__del__", "__delattr__", "__dict__", "__getattr__", "__getattribute__", "__init__",
    "__init_subclass__", "__new__", "__setattr__", "__slots__", "__subclasshook__", "__weakref__",
}  # fmt: skip


class ProxyState(Protocol):
    """What a proxy knows of its object. `real` is the object."""

    real: Any


class ObjectProxy:
    """What all proxies have in common. `_midstream` is their state."""

    __slots__ = ("__weakref__", "_midstream")

    _midstream: Any

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._midstream.real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._midstream.real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._midstream.real, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._midstream.real, name)


class ProxyMethods:
    """Methods by name, to stand in for those of an object. They find its state in `self._midstream`."""

    def __init__(self, methods: Mapping[str, Callable[..., Any]]) -> None:
        self.by_name = dict(methods)


def proxy_for(state: ProxyState, methods: ProxyMethods) -> Any:
    """Return a proxy for `state.real`, with `methods` in place of those of the same name, as far as it has them."""
    proxy = _class_for(type(state.real), methods)()  # type: ignore[arg-type]  # a class is hashable
    object.__setattr__(proxy, "_midstream", state)
    return proxy


@lru_cache(maxsize=256)
def _class_for(kind: type, methods: ProxyMethods) -> type[ObjectProxy]:
    special = [name for name in dir(kind) if name.startswith("__") and callable(getattr(kind, name))]
    passed_on = {name: _passing_on(name) for name in special if name not in _NOT_PASSED_ON}
    ours = {name: method for name, method in methods.by_name.items() if hasattr(kind, name)}
    names = {"__slots__": (), "__doc__": kind.__doc__, "__module__": kind.__module__}
    return type(kind.__name__, (ObjectProxy,), {**passed_on, **ours, **names})


def _passing_on(name: str) -> Callable[..., Any]:
    def method(self: ObjectProxy, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._midstream.real, name)(*args, **kwargs)

    return method
