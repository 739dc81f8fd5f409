"""`monitor()` around functions and context managers: the streams that come out of them, or open in them, are followed.

A monitored function stays what it is for everything that inspects it: its name, its signature, and whether it is a
coroutine function or a generator function. A context manager is replaced by a proxy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import wrapt

from midstream._support.internal_errors import report_internal_error
from midstream.integrations.generic import streams
from midstream.integrations.generic.object_proxy import ProxyMethods, proxy_for
from midstream.integrations.http import clients as http_clients
from midstream.integrations.openai import clients
from midstream.integrations.openai.streams import adopt
from midstream.runtime.monitor import Monitor
from midstream.runtime.scope import Scope, leave


def decorate(function: Any, monitor: Monitor) -> Any:
    """Return the function, or the (class, static) method, with everything that streams in it monitored."""
    clients.watch_functions()
    http_clients.watch_functions()

    def call(wrapped: Callable[..., Any], _instance: Any, args: Any, kwargs: Any) -> Any:
        scope = Scope(monitor)
        started = monitor.process.clock()
        token = scope.enter()
        try:
            result = wrapped(*args, **kwargs)
        finally:
            leave(token)
            scope.ended = True
        return follow_result(result, scope, started)

    return _Function(function, call)


def is_manager(obj: Any) -> bool:
    """Whether this is a context manager that a stream may come out of: by its name, or one of `contextlib`'s.

    Clients, sessions, locks and files can be entered, too, and are not meant.
    """
    kind = type(obj)
    if not (hasattr(kind, "__enter__") or hasattr(kind, "__aenter__")):
        return False
    bases = kind.__mro__
    return (
        "Manager" in kind.__name__ or AbstractContextManager in bases or AbstractAsyncContextManager in bases
    )


def manage(manager: Any, monitor: Monitor) -> Any:
    """Return a proxy for a context manager: what it is entered as is followed, if it streams."""
    return proxy_for(_ManagerState(manager, monitor), _METHODS)


def follow_result(result: Any, scope: Scope, started: float) -> Any:
    """Follow what a function returned or a manager was entered as, if it streams.

    If a stream has opened in `scope`, that one is followed already, and is the answer.
    """
    monitor = scope.monitor
    try:
        if inspect.iscoroutine(result):
            return _awaiting(result, monitor)
        if clients.is_client(result):
            clients.watch(result, monitor)
        elif not adopt(result, monitor, started) and not scope.streams:
            if streams.is_stream(result):
                return streams.follow(result, monitor, started)
            if "Manager" in type(result).__name__ and is_manager(result):
                return manage(result, monitor)
    except Exception as exc:  # noqa: BLE001 - the caller gets what the function returned
        report_internal_error("function", exc)
    return result


# Coroutines


def _awaiting(coroutine: Coroutine[Any, Any, Any], monitor: Monitor) -> Coroutine[Any, Any, Any]:
    """A coroutine that awaits this one and follows what it returns. Its time begins when it is awaited."""
    ours = _await(_Unawaited(coroutine), monitor)
    for name in ("__name__", "__qualname__"):
        setattr(ours, name, getattr(coroutine, name))
    return ours


async def _await(pending: _Unawaited, monitor: Monitor) -> Any:
    scope = Scope(monitor)
    started = monitor.process.clock()
    token = scope.enter()
    try:
        result = await pending.coroutine
    finally:
        leave(token)
        scope.ended = True
    return follow_result(result, scope, started)


class _Unawaited:
    """A coroutine inside ours. If ours is never awaited, Python warns about ours, and need not warn twice."""

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine

    def __del__(self) -> None:
        self.coroutine.close()


# Functions


class _Method(wrapt.BoundFunctionWrapper):  # type: ignore[misc,type-arg,unused-ignore]  # typed from wrapt 2 on
    """A monitored function bound to its object, pickled as any method is."""

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return getattr, (self.__self__, self.__name__)


class _Function(wrapt.FunctionWrapper):  # type: ignore[misc,type-arg,unused-ignore]
    """A monitored function, pickled by its name and copied by reference, as any function is."""

    __bound_function_wrapper__ = _Method

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return self.__qualname__

    def __copy__(self) -> _Function:
        return self

    def __deepcopy__(self, _memo: Any) -> _Function:
        return self


# Context managers


class _ManagerState:
    """A proxy's context manager, and the stream that came out of it."""

    __slots__ = ("monitor", "real", "stream")

    def __init__(self, real: Any, monitor: Monitor) -> None:
        self.real = real
        self.monitor = monitor
        self.stream: Any = None


def _enter(self: Any) -> Any:
    state = self._midstream
    scope = Scope(state.monitor)
    started = state.monitor.process.clock()
    token = scope.enter()
    try:
        entered = state.real.__enter__()
    finally:
        leave(token)
        scope.ended = True
    state.stream = follow_result(entered, scope, started)
    return state.stream


def _exit(self: Any, *exc: Any) -> Any:
    streams.on_close(self._midstream.stream, exc[1])
    return self._midstream.real.__exit__(*exc)


async def _aenter(self: Any) -> Any:
    state = self._midstream
    scope = Scope(state.monitor)
    started = state.monitor.process.clock()
    token = scope.enter()
    try:
        entered = await state.real.__aenter__()
    finally:
        leave(token)
        scope.ended = True
    state.stream = follow_result(entered, scope, started)
    return state.stream


async def _aexit(self: Any, *exc: Any) -> Any:
    streams.on_close(self._midstream.stream, exc[1])
    return await self._midstream.real.__aexit__(*exc)


_METHODS = ProxyMethods({"__enter__": _enter, "__exit__": _exit, "__aenter__": _aenter, "__aexit__": _aexit})
