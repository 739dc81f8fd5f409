"""Streams of other makes: a stand-in for an iterator, async iterator or generator that times each of its steps.

What opens inside while such a stream works, like the stream of an openai client that it only passes on in other words,
is the answer itself. The stream around it is then no longer followed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from midstream.integrations.generic.iterators import AsyncLifeSteps, Life, LifeSteps, opened
from midstream.integrations.generic.object_proxy import Methods, StandIn, stand_in
from midstream.runtime.monitor import Monitor
from midstream.runtime.scope import Scope, opened_inside


def is_iterable(obj: Any) -> bool:
    """Tell whether this can be iterated over, in either way."""
    return any(hasattr(type(obj), name) for name in ("__iter__", "__next__", "__aiter__", "__anext__"))


def is_live(obj: Any) -> bool:
    """Tell a stream from a collection that merely can be iterated over, as far as one can tell."""
    kind = type(obj)
    if any(hasattr(kind, name) for name in ("__next__", "__aiter__", "__anext__")):
        return True
    return hasattr(kind, "__iter__") and hasattr(kind, "close")


def follow(stream: Any, monitor: Monitor, started: float | None = None) -> Any:
    """Give a stand-in for a stream. `started` is when the caller asked for it, None if nobody saw that."""
    if isinstance(stream, StandIn):
        return stream
    if started is None and (inspect.isgenerator(stream) or inspect.isasyncgen(stream)):
        started = monitor.process.clock()  # a generator does nothing before it is asked
    kind = type(stream)
    on_loop = hasattr(kind, "__anext__") or hasattr(kind, "__aiter__")
    life = Life(opened(monitor, started, on_loop=on_loop), Scope(monitor), monitor)
    opened_inside()
    return stand_in(_Known(stream, life), _METHODS)


def left(stream: Any, exc: BaseException | None) -> None:
    """Whoever made the stream has closed it, and not through its stand-in."""
    if isinstance(stream, StandIn) and isinstance(stream._midstream, _Known):
        stream._midstream.life.left(exc)


class _Known:
    """What a stand-in knows: its stream, the life of it, and the iterators if the stream itself is one."""

    __slots__ = ("async_steps", "life", "real", "steps")

    def __init__(self, real: Any, life: Life) -> None:
        self.real = real
        self.life = life
        self.steps = LifeSteps(real, life) if hasattr(type(real), "__next__") else None
        self.async_steps = AsyncLifeSteps(real, life) if hasattr(type(real), "__anext__") else None


class _Sending:
    """A generator that is sent a value with its next step."""

    def __init__(self, send: Callable[[Any], Any], value: Any) -> None:
        self._step: Callable[[], Any] = lambda: send(value)

    def __next__(self) -> Any:
        return self._step()

    def __anext__(self) -> Any:
        return self._step()


def _iter(self: Any) -> Any:
    known = self._midstream
    steps = iter(known.real)
    return self if steps is known.real else LifeSteps(steps, known.life)


def _next(self: Any) -> Any:
    return self._midstream.steps.__next__()


def _send(self: Any, value: Any) -> Any:
    known = self._midstream
    return LifeSteps(_Sending(known.real.send, value), known.life).__next__()  # type: ignore[arg-type]  # a step is enough


def _throw(self: Any, *exc: Any) -> Any:
    try:
        return self._midstream.real.throw(*exc)
    except BaseException as thrown:
        self._midstream.life.left(thrown)
        raise


def _aiter(self: Any) -> Any:
    known = self._midstream
    steps = known.real.__aiter__()
    return self if steps is known.real else AsyncLifeSteps(steps, known.life)


def _anext(self: Any) -> Any:
    return self._midstream.async_steps.__anext__()


def _asend(self: Any, value: Any) -> Any:
    known = self._midstream
    return AsyncLifeSteps(_Sending(known.real.asend, value), known.life).__anext__()  # type: ignore[arg-type]


async def _athrow(self: Any, *exc: Any) -> Any:
    try:
        return await self._midstream.real.athrow(*exc)
    except BaseException as thrown:
        self._midstream.life.left(thrown)
        raise


def _close(self: Any, *args: Any, **kwargs: Any) -> Any:
    self._midstream.life.left(sys.exc_info()[1])
    return self._midstream.real.close(*args, **kwargs)


def _aclose(self: Any, *args: Any, **kwargs: Any) -> Any:
    self._midstream.life.left(sys.exc_info()[1])
    return self._midstream.real.aclose(*args, **kwargs)


def _enter(self: Any) -> Any:
    return _entered(self, self._midstream.real.__enter__())


def _exit(self: Any, *exc: Any) -> Any:
    self._midstream.life.left(exc[1])
    return self._midstream.real.__exit__(*exc)


async def _aenter(self: Any) -> Any:
    return _entered(self, await self._midstream.real.__aenter__())


async def _aexit(self: Any, *exc: Any) -> Any:
    self._midstream.life.left(exc[1])
    return await self._midstream.real.__aexit__(*exc)


def _entered(self: Any, entered: Any) -> Any:
    known = self._midstream
    if entered is known.real:
        return self
    return stand_in(_Known(entered, known.life), _METHODS) if is_live(entered) else entered


_METHODS = Methods(
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
