"""`monitor()` around functions: what they return or yield is followed, and so is every stream that opens in them.

A monitored function stays what it is to whoever looks: its name, its signature, and whether it is a coroutine function
or a generator function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import wrapt

from midstream._support.internal_errors import report_internal_error
from midstream.integrations.generic import streams as generic_streams
from midstream.integrations.generic.managers import is_manager, manage
from midstream.integrations.openai import clients
from midstream.integrations.openai.streams import adopt
from midstream.runtime.monitor import Monitor
from midstream.runtime.scope import Scope, leave


def decorate(function: Any, monitor: Monitor) -> Any:
    """The function, or the method, class method or static method, with everything that streams in it monitored."""
    clients.watch_functions()

    def call(wrapped: Callable[..., Any], _instance: Any, args: Any, kwargs: Any) -> Any:
        scope = Scope(monitor)
        started = monitor.process.clock()
        token = scope.enter()
        try:
            result = wrapped(*args, **kwargs)
        finally:
            leave(token)
        return attach(result, scope, started)

    return _Function(function, call)


def attach(result: Any, scope: Scope, started: float) -> Any:
    """Follow what a function came up with, if it streams, unless a stream opened in `scope` and is followed already."""
    monitor = scope.monitor
    try:
        if inspect.iscoroutine(result):
            return _await(result, monitor)
        if clients.is_client(result):
            clients.watch(result, monitor)
        elif not adopt(result, monitor, started) and not scope.streams:
            if generic_streams.is_live(result):
                return generic_streams.follow(result, monitor, started)
            if is_manager(result):
                return manage(result, monitor, attach)
    except Exception as exc:  # noqa: BLE001 - the caller gets what the function returned
        report_internal_error("function", exc)
    return result


def _await(coroutine: Coroutine[Any, Any, Any], monitor: Monitor) -> Coroutine[Any, Any, Any]:
    """A coroutine that awaits this one and follows what it returns. Its time begins when it is awaited."""
    ours = _settle(_Unawaited(coroutine), monitor)
    for name in ("__name__", "__qualname__"):
        setattr(ours, name, getattr(coroutine, name))
    return ours


async def _settle(pending: _Unawaited, monitor: Monitor) -> Any:
    scope = Scope(monitor)
    started = monitor.process.clock()
    token = scope.enter()
    try:
        result = await pending.coroutine
    finally:
        leave(token)
    return attach(result, scope, started)


class _Unawaited:
    """A coroutine inside ours. If nobody awaits ours, Python says so of ours, and need not say it twice."""

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine

    def __del__(self) -> None:
        self.coroutine.close()


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
