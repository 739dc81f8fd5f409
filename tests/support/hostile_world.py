"""One client and its callers, in a world of its own: bare or monitored, sync or async, driven step by step.

Two worlds that are told the same must answer the same. What the caller of each stream lived through is noted beside it,
so that the record can be held against it.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import warnings
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI, OpenAI

from midstream.testing import Collected, ManualClock, collect, http_library
from support.harness import settled
from support.hostile_wire import Act, Answer, Network, now

OVER = (StopIteration, StopAsyncIteration)


@dataclass
class Lived:
    """What the caller of one stream lived through, on the clock of its world."""

    started: float
    waited: float = 0.0
    chunks: int = 0
    first_chunk: float | None = None
    last_event: float = 0.0
    ended_by: BaseException | type[BaseException] | str | None = None
    asked: bool = False
    disturbed: bool = False
    """Somebody else was at the stream as well: whose wait was whose cannot be told from here."""


class Handle:
    """What a caller holds of one call."""

    def __init__(self, model: str, how: str, lived: Lived) -> None:
        self.model = model
        self.how = how
        self.lived = lived
        self.made = False
        self.skips_usage = False
        self.manager: Any = None
        self.raw: Any = None
        self.lines: Any = None
        self.stream: Any = None


class World:
    """A client, its network, and the streams that its callers hold."""

    def __init__(
        self,
        kind: str,
        *,
        monitored: bool,
        socket: str,
        provider: Any = None,
        asks_for_usage: bool = False,
        **settings: Any,
    ) -> None:
        self.kind = kind
        self.asks_for_usage = asks_for_usage
        """Whether the callers ask for usage themselves and pass over the chunks that bring it and nothing else."""
        self.clock = ManualClock()
        self.network = Network(kind, self.clock, socket)
        self.loop = loop_in_order() if kind == "async" else None
        self.noise: list[str] = []
        self.held: dict[int, Handle] = {}
        self.past: list[Handle] = []
        self.streams = 0
        http = http_library()
        options: dict[str, Any] = {
            "api_key": "k",
            "base_url": "http://server.test/v1",
            "max_retries": 1,
            "timeout": http.Timeout(60.0),
        }
        if kind == "sync":
            self.client: Any = OpenAI(http_client=http.Client(transport=self.network.transport), **options)
        else:
            self.client = AsyncOpenAI(
                http_client=http.AsyncClient(transport=self.network.transport), **options
            )
        self.seen: Collected | None = None
        if monitored:
            self.seen = collect(self.client, clock=self.clock, meter_provider=provider, **settings)
        if self.loop is not None:
            self.loop.set_exception_handler(
                lambda _, context: self.noise.append(_noise(context.get("exception")))
            )

    # What callers do

    def do(self, act: Callable[[World], Awaitable[Any]]) -> Any:
        """Let a caller do something; tell what came of it, in a form that two worlds can be compared by."""
        with self._listening():
            try:
                came = self._run(act(self))
            except BaseException as exc:
                return raised_by(exc)
            return came_of(came)

    def settle(self) -> None:
        """Let everything that was left behind come to its end."""
        for _ in range(2):
            gc.collect()
            if self.loop is not None:
                with self._listening():
                    self._run(_turns())

    def close(self) -> None:
        """Close the client and the loop."""
        with self._listening():
            self._run(settled(self.client.close()))
            if self.loop is not None:
                self.loop.run_until_complete(self.loop.shutdown_asyncgens())
                self.loop.close()

    def _run(self, coroutine: Any) -> Any:
        return now(coroutine) if self.loop is None else self.loop.run_until_complete(coroutine)

    @contextmanager
    def _listening(self) -> Any:
        before = sys.unraisablehook
        sys.unraisablehook = lambda unraisable: self.noise.append(_noise(unraisable.exc_value))
        try:
            yield
        finally:
            sys.unraisablehook = before

    async def open(self, number: int, how: str, api: str, answers: tuple[Answer, ...]) -> None:
        """Ask for a stream in one of the ways there are."""
        model = f"m{len(self.past)}"
        handle = Handle(model, how, Lived(self.clock.now))
        self.past.append(handle)
        self.network.answers = list(answers)
        resource, request = _ask(self.client, api, model)
        handle.skips_usage = self.asks_for_usage and api != "responses"
        if handle.skips_usage:
            request["stream_options"] = {"include_usage": True}
        if how == "create":
            handle.stream = await settled(resource.create(**request, stream=True))
        elif how == "raw":
            handle.raw = await settled(resource.with_raw_response.create(**request, stream=True))
        elif how == "streaming":
            handle.manager = resource.with_streaming_response.create(**request, stream=True)
            handle.raw = await _enter(handle.manager)
        else:
            if api == "chat" and not hasattr(resource, "stream"):
                resource = self.client.beta.chat.completions
            handle.manager = resource.stream(**request)
            handle.stream = await _enter(handle.manager)
        self.held[number] = handle
        self._made(handle)

    async def parse(self, number: int) -> str:
        """Make a stream of a raw response, or get the one made before."""
        handle = self.held[number]
        again = handle.stream is not None
        stream = await settled(handle.raw.parse())
        if again:
            return f"the same: {stream is handle.stream}"
        handle.stream = stream
        self._made(handle)
        return type(stream).__name__

    async def line(self, number: int) -> Any:
        """Read a line of a raw response, past every stream."""
        handle = self.held[number]
        if handle.lines is None:
            handle.lines = handle.raw.iter_lines()
        handle.lived.disturbed = True
        return await _next(handle.lines)

    async def step(self, number: int) -> Any:
        """Ask for the next chunk."""
        handle = self.held[number]
        return await self._wait(handle, lambda: _next(handle.stream))

    async def through(self, number: int, count: int) -> list[Any]:
        """Read so many chunks in a loop of its own and leave it; 0 reads to the end."""
        handle = self.held[number]
        found: list[Any] = []
        loop = aiter(handle.stream) if hasattr(handle.stream, "__aiter__") else iter(handle.stream)
        while count == 0 or len(found) < count:
            try:
                found.append(await self._wait(handle, lambda: _next(loop)))
            except OVER:  # noqa: PERF203 - the end of the stream is the end of the loop
                break
        return found

    async def step_for(self, number: int, turns: int) -> Any:
        """Ask for the next chunk as `asyncio.wait_for` does, and give up after so many turns of the loop."""
        handle = self.held[number]
        if self.loop is None:
            return await self.step(number)
        stopped: list[BaseException] = []

        async def ask() -> Any:
            try:
                return await self._wait(handle, lambda: _next(handle.stream))
            except (KeyboardInterrupt, SystemExit) as exc:  # they would stop the loop from a task of its own
                stopped.append(exc)

        task = asyncio.ensure_future(ask())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        came = await task
        if stopped:
            raise stopped[0]
        return came

    async def loop_closed(self, number: int, count: int) -> list[Any]:
        """Read so many chunks in a loop over an iterator, and close the iterator itself."""
        handle = self.held[number]
        found: list[Any] = []
        loop = aiter(handle.stream) if hasattr(handle.stream, "__aiter__") else iter(handle.stream)
        try:
            while len(found) < count:
                found.append(await self._wait(handle, lambda: _next(loop)))
        except OVER:
            pass
        finally:
            close = getattr(loop, "aclose", getattr(loop, "close", None))
            if close is not None and loop is not handle.stream:
                await settled(close())
        return found

    async def reach_inside(self, number: int, how: str) -> None:
        """Close the generator inside the SDK's stream, or raise something in it, as some libraries do."""
        handle = self.held[number]
        iterator = getattr(handle.stream, "_iterator", None)
        handle.lived.disturbed = True
        if how == "close":
            close = getattr(iterator, "aclose", getattr(iterator, "close", None))
            if close is not None:
                await settled(close())
            return
        throw = getattr(iterator, "athrow", getattr(iterator, "throw", None))
        if throw is not None:
            await settled(throw(KeyboardInterrupt() if how == "interrupt" else LookupError("thrown")))

    async def look(self, number: int) -> list[str]:
        """Ask everything about a call that can be asked without reading it."""
        handle = self.held[number]
        found = []
        for holder in (handle.raw, handle.stream):
            for name in ("status_code", "request_id", "headers", "is_closed", "retries_taken", "response"):
                value = getattr(holder, name, None)
                found.append(
                    f"{name}: {value if isinstance(value, str | int | bool) else type(value).__name__}"
                )
        return found

    async def end_generators(self, *, newest_first: bool = False) -> None:
        """Have the loop close every asynchronous generator, as it does before it ends."""
        for handle in self.held.values():
            handle.lived.disturbed = True
        if self.loop is not None:
            vars(self.loop)["_asyncgens"].newest_first = newest_first
            await self.loop.shutdown_asyncgens()
            vars(self.loop)["_asyncgens_shutdown_called"] = False  # the world goes on

    async def close_stream(self, number: int, name: str) -> None:
        """Close the stream, under any name that it has for that."""
        handle = self.held[number]
        close = getattr(handle.stream, name)
        self._left(handle)
        await settled(close())

    async def close_response(self, number: int) -> None:
        """Close the HTTP response below the stream, or before there is one."""
        handle = self.held[number]
        self._left(handle)
        response = handle.raw.http_response if handle.raw is not None else _response_of(handle.stream)
        await settled(response.aclose() if self.loop is not None else response.close())

    async def leave(self, number: int, exc: BaseException | None) -> Any:
        """Leave the `with` block around the stream, by an exception or not."""
        handle = self.held[number]
        manager = handle.stream if handle.manager is None else handle.manager
        self._left(handle, exc)
        if exc is None:
            return await _exit(manager, None)
        try:
            raise type(exc)(*exc.args)  # noqa: TRY301 - it is being handled while the block is left, as a real one is
        except BaseException as raised:
            return await _exit(manager, raised)

    async def drop(self, number: int) -> None:
        """Let go of everything."""
        handle = self.held.pop(number)
        handle.manager = handle.raw = handle.lines = handle.stream = None

    def disturb(self, number: int) -> None:
        """Have somebody else at the stream when the answer says so."""

        async def close() -> None:
            handle = self.held.get(number)
            if handle is not None and handle.stream is not None:
                handle.lived.disturbed = True
                await self._quietly(settled(handle.stream.close()))

        async def read() -> None:
            handle = self.held.get(number)
            if handle is not None and handle.stream is not None:
                handle.lived.disturbed = True
                await self._quietly(self._shown(handle))

        async def look() -> None:
            if self.seen is not None:
                self.seen.streams()

        self.network.meanwhile = {Act.CLOSE: close, Act.READ: read, Act.LOOK: look}

    async def _quietly(self, act: Awaitable[Any]) -> None:
        try:
            await act
        except Exception as exc:
            self.noise.append(_noise(exc))

    async def _shown(self, handle: Handle) -> Any:
        chunk = await _next(handle.stream)
        while handle.skips_usage and is_usage(chunk):
            chunk = await _next(handle.stream)
        return chunk

    # What they lived through

    def _made(self, handle: Handle) -> None:
        if handle.stream is not None:
            self.streams += 1
            handle.made = True
            handle.lived.last_event = self.clock.now
            handle.lived.waited = self.clock.now - handle.lived.started

    async def _wait(self, handle: Handle, ask: Callable[[], Awaitable[Any]]) -> Any:
        lived, began = handle.lived, self.clock.now
        if lived.ended_by is not None:
            chunk = await ask()
            while handle.skips_usage and is_usage(chunk):
                chunk = await ask()
            return chunk
        lived.asked = True
        try:
            chunk = await ask()
            while handle.skips_usage and is_usage(chunk):
                chunk = await ask()
        except BaseException as exc:
            lived.ended_by = type(exc)
            raise
        else:
            lived.chunks += 1
            if lived.first_chunk is None:
                lived.first_chunk = self.clock.now
        finally:
            if lived.ended_by is None or isinstance(lived.ended_by, type):
                lived.waited += self.clock.now - began
                lived.last_event = self.clock.now
        return chunk

    def _left(self, handle: Handle, exc: BaseException | None = None) -> None:
        lived = handle.lived
        lived.disturbed |= handle.stream is None  # left before there was anything to read
        if handle.stream is not None and lived.ended_by is None:
            lived.ended_by = (
                "left" if exc is None or isinstance(exc, (Exception, GeneratorExit)) else "cancelled"
            )
            lived.last_event = self.clock.now


@contextmanager
def told() -> Iterator[list[str]]:
    """Every warning, and every exception that nobody could be told of, as text without addresses."""
    found: list[str] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: found.append(f"unraisable: {unraisable.exc_value!r}")
    gc.collect()
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield found
            gc.collect()
        found += [
            f"{warning.category.__name__}: {warning.message}"
            for warning in warned
            if not issubclass(warning.category, DeprecationWarning)
        ]
        found[:] = [re.sub(r"0x[0-9a-f]+", "0x", line) for line in found]
    finally:
        sys.unraisablehook = before


@contextmanager
def garbage_by_hand() -> Iterator[None]:
    """Nothing is collected but when told to, and then without going through all that was there before."""
    gc.disable()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


class InOrder:
    """The generators that a loop knows, in the order in which they began. The loop's own set has them in any order."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}
        self.newest_first = False

    def add(self, generator: Any) -> None:
        self.discard(generator)
        self._known[id(generator)] = weakref.ref(generator)

    def discard(self, generator: Any) -> None:
        self._known.pop(id(generator), None)

    def clear(self) -> None:
        self._known.clear()

    def __iter__(self) -> Iterator[Any]:
        found = [generator for known in self._known.values() if (generator := known()) is not None]
        return reversed(found) if self.newest_first else iter(found)

    def __len__(self) -> int:
        return len(list(iter(self)))


def loop_in_order() -> asyncio.AbstractEventLoop:
    """A loop that does the same each time, and to the generators of either world."""
    loop = asyncio.new_event_loop()
    vars(loop)["_asyncgens"] = InOrder()
    return loop


def _ask(client: Any, api: str, model: str) -> tuple[Any, dict[str, Any]]:
    if api == "chat":
        return client.chat.completions, {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    if api == "completions":
        return client.completions, {"model": model, "prompt": "hi"}
    return client.responses, {"model": model, "input": "hi"}


def is_usage(chunk: Any) -> bool:
    """Whether this chunk has usage and nothing else."""
    return getattr(chunk, "usage", None) is not None and not getattr(chunk, "choices", None)


async def _next(stream: Any) -> Any:
    if hasattr(stream, "__anext__"):
        return await stream.__anext__()
    try:
        return next(stream)
    except StopIteration:
        raise StopAsyncIteration from None  # no coroutine lets a StopIteration pass


async def _enter(manager: Any) -> Any:
    if hasattr(manager, "__aenter__"):
        return await manager.__aenter__()
    return manager.__enter__()


async def _exit(manager: Any, exc: BaseException | None) -> Any:
    told = (None, None, None) if exc is None else (type(exc), exc, exc.__traceback__)
    if hasattr(manager, "__aexit__"):
        return await manager.__aexit__(*told)
    return manager.__exit__(*told)


def _response_of(stream: Any) -> Any:
    return stream.response if hasattr(stream, "response") else stream._response


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def came_of(value: Any) -> Any:
    if isinstance(value, list):
        return [came_of(item) for item in value]
    return (type(value).__module__, type(value).__qualname__, repr(value))


def raised_by(exc: BaseException | None) -> Any:
    """An exception as the caller can see it, with those that it came from."""
    if exc is None:
        return None
    told = [f"{type(exc).__module__}.{type(exc).__qualname__}", repr(exc.args), str(exc)]
    told += [repr(getattr(exc, name, None)) for name in ("code", "param", "type", "body", "status_code")]
    return ("raised", *told, raised_by(exc.__cause__), raised_by(exc.__context__), exc.__suppress_context__)


def _noise(exc: BaseException | None) -> str:
    return f"{type(exc).__name__}: {exc}"
