"""Context managers that a stream comes out of, as SDKs have them and as `contextlib` makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from midstream.integrations.generic import streams as generic_streams
from midstream.integrations.generic.object_proxy import Methods, stand_in
from midstream.runtime.monitor import Monitor
from midstream.runtime.scope import Scope, leave

Attach: TypeAlias = "Callable[[Any, Scope, float], Any]"


def is_manager(obj: Any) -> bool:
    """Tell whether this is a context manager that was named as one; locks and files are not meant."""
    kind = type(obj)
    return "Manager" in kind.__name__ and (hasattr(kind, "__enter__") or hasattr(kind, "__aenter__"))


def manage(manager: Any, monitor: Monitor, attach: Attach) -> Any:
    """Give a stand-in for a context manager: what comes out of it goes through `attach`."""
    return stand_in(_Known(manager, monitor, attach), _METHODS)


class _Known:
    __slots__ = ("attach", "monitor", "real", "stream")

    def __init__(self, real: Any, monitor: Monitor, attach: Attach) -> None:
        self.real = real
        self.monitor = monitor
        self.attach = attach
        self.stream: Any = None


def _enter(self: Any) -> Any:
    known = self._midstream
    scope = Scope(known.monitor)
    started = known.monitor.process.clock()
    token = scope.enter()
    try:
        entered = known.real.__enter__()
    finally:
        leave(token)
    known.stream = known.attach(entered, scope, started)
    return known.stream


def _exit(self: Any, *exc: Any) -> Any:
    generic_streams.left(self._midstream.stream, exc[1])
    return self._midstream.real.__exit__(*exc)


async def _aenter(self: Any) -> Any:
    known = self._midstream
    scope = Scope(known.monitor)
    started = known.monitor.process.clock()
    token = scope.enter()
    try:
        entered = await known.real.__aenter__()
    finally:
        leave(token)
    known.stream = known.attach(entered, scope, started)
    return known.stream


async def _aexit(self: Any, *exc: Any) -> Any:
    generic_streams.left(self._midstream.stream, exc[1])
    return await self._midstream.real.__aexit__(*exc)


_METHODS = Methods({"__enter__": _enter, "__exit__": _exit, "__aenter__": _aenter, "__aexit__": _aexit})
