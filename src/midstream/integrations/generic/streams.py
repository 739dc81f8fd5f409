"""Streams of unknown origin: a proxy for an iterator, async iterator or generator that times each of its steps.

A stream may pass on another one in other words, such as the stream of an openai client. The inner stream is then the
answer: the one around it is no longer followed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from midstream.integrations.ending import stream_end
from midstream.integrations.generic.lifetime import (
    AsyncScopedSteps,
    ScopedSteps,
    StreamLifetime,
    open_tracker,
)
from midstream.integrations.generic.object_proxy import ObjectProxy, ProxyMethods, proxy_for
from midstream.runtime.monitor import Monitor
from midstream.runtime.scope import Scope, opened_inside


def is_iterable(obj: Any) -> bool:
    """Whether this can be iterated over, in either way. A data model that iterates over its fields does not count."""
    kind = type(obj)
    if hasattr(kind, "__pydantic_validator__"):
        return False
    return any(hasattr(kind, name) for name in ("__iter__", "__next__", "__aiter__", "__anext__"))


def is_stream(obj: Any) -> bool:
    """Whether this is a stream and not a collection that can merely be iterated over, as far as its class shows."""
    kind = type(obj)
    if any(hasattr(kind, name) for name in ("__next__", "__aiter__", "__anext__")):
        return True
    return hasattr(kind, "__iter__") and hasattr(kind, "close")


def follow(stream: Any, monitor: Monitor, started: float | None = None) -> Any:
    """Return a proxy for a stream. `started` is when the caller asked for it, None if that was not seen."""
    if isinstance(stream, ObjectProxy):
        return stream
    if started is None and (inspect.isgenerator(stream) or inspect.isasyncgen(stream)):
        started = monitor.process.clock()  # a generator does nothing before it is asked
    kind = type(stream)
    on_loop = hasattr(kind, "__anext__") or hasattr(kind, "__aiter__")
    end = stream_end(monitor, stream, on_loop=on_loop)
    lifetime = StreamLifetime(open_tracker(monitor, started, end, on_loop=on_loop), Scope(monitor), monitor)
    opened_inside()
    return proxy_for(_StreamState(stream, lifetime), _METHODS)


def on_close(stream: Any, exc: BaseException | None) -> None:
    """The stream was closed by what made it, and not through its proxy."""
    if isinstance(stream, ObjectProxy) and isinstance(stream._midstream, _StreamState):
        stream._midstream.lifetime.on_close(exc)


class _StreamState:
    """A proxy's stream, the lifetime of it, and the iterators if the stream itself is one."""

    __slots__ = ("async_steps", "lifetime", "real", "steps")

    def __init__(self, real: Any, lifetime: StreamLifetime) -> None:
        self.real = real
        self.lifetime = lifetime
        self.steps = ScopedSteps(real, lifetime) if hasattr(type(real), "__next__") else None
        self.async_steps = AsyncScopedSteps(real, lifetime) if hasattr(type(real), "__anext__") else None


class _SendingStep:
    """One step of a generator, to which a value is sent."""

    def __init__(self, send: Callable[[Any], Any], value: Any) -> None:
        self._step: Callable[[], Any] = lambda: send(value)

    def __next__(self) -> Any:
        return self._step()

    def __anext__(self) -> Any:
        return self._step()


def _iter(self: Any) -> Any:
    state = self._midstream
    steps = iter(state.real)
    return self if steps is state.real else ScopedSteps(steps, state.lifetime)


def _next(self: Any) -> Any:
    return self._midstream.steps.__next__()


def _send(self: Any, value: Any) -> Any:
    state = self._midstream
    return ScopedSteps(_SendingStep(state.real.send, value), state.lifetime).__next__()  # type: ignore[arg-type]  # a step is enough


def _throw(self: Any, *exc: Any) -> Any:
    try:
        return self._midstream.real.throw(*exc)
    except BaseException as thrown:
        self._midstream.lifetime.on_close(thrown)
        raise


def _aiter(self: Any) -> Any:
    state = self._midstream
    steps = state.real.__aiter__()
    return self if steps is state.real else AsyncScopedSteps(steps, state.lifetime)


def _anext(self: Any) -> Any:
    return self._midstream.async_steps.__anext__()


def _asend(self: Any, value: Any) -> Any:
    state = self._midstream
    return AsyncScopedSteps(_SendingStep(state.real.asend, value), state.lifetime).__anext__()  # type: ignore[arg-type]


async def _athrow(self: Any, *exc: Any) -> Any:
    try:
        return await self._midstream.real.athrow(*exc)
    except BaseException as thrown:
        self._midstream.lifetime.on_close(thrown)
        raise


def _close(self: Any, *args: Any, **kwargs: Any) -> Any:
    self._midstream.lifetime.on_close(sys.exc_info()[1])
    return self._midstream.real.close(*args, **kwargs)


def _aclose(self: Any, *args: Any, **kwargs: Any) -> Any:
    self._midstream.lifetime.on_close(sys.exc_info()[1])
    return self._midstream.real.aclose(*args, **kwargs)


def _enter(self: Any) -> Any:
    return _entered(self, self._midstream.real.__enter__())


def _exit(self: Any, *exc: Any) -> Any:
    self._midstream.lifetime.on_close(exc[1])
    return self._midstream.real.__exit__(*exc)


async def _aenter(self: Any) -> Any:
    return _entered(self, await self._midstream.real.__aenter__())


async def _aexit(self: Any, *exc: Any) -> Any:
    self._midstream.lifetime.on_close(exc[1])
    return await self._midstream.real.__aexit__(*exc)


def _entered(self: Any, entered: Any) -> Any:
    state = self._midstream
    if entered is state.real:
        return self
    return proxy_for(_StreamState(entered, state.lifetime), _METHODS) if is_stream(entered) else entered


_METHODS = ProxyMethods(
    {
        "__iter__": _iter,
        "__next__": _next,
        "send": _send,
        "throw": _throw,
        "__aiter__": _aiter,
        "__anext__": _anext,
        "asend": _asend,
        "athrow": _athrow,
        "close": _close,
        "aclose": _aclose,
        "__enter__": _enter,
        "__exit__": _exit,
        "__aenter__": _aenter,
        "__aexit__": _aexit,
    }
)
