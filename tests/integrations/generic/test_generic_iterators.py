"""Iterators and generators of any make behind `monitor()`: stepped, sent, thrown at and left as they would be without.

Like tests/integrations/openai/test_iterators.py, with streams that no SDK made: among them iterators that go on after
an exception, and even after their end, which generators never do.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import Any, TypeAlias

import pytest

from midstream.testing import Collected, ManualClock, collect
from support.harness import settled
from support.hostile_world import came_of, garbage_by_hand, loop_in_order, raised_by, told


@pytest.fixture(scope="module", autouse=True)
def _garbage_by_hand() -> Iterator[None]:
    with garbage_by_hand():
        yield


class End:
    """Where a stream says that it is over, whatever comes after that."""


LINES: list[Any] = ["a", TimeoutError("nothing yet"), "b", End(), "c", KeyError("k"), End()]


def generator(lines: list[Any], inside: list[Callable[[], Any]]) -> Generator[Any, Any, int | None]:
    for line in lines:
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, End):
            return 7
        if inside:
            inside.pop()()
        line_back = yield line
        if line_back is not None:
            yield f"sent {line_back}"
    return None


async def async_generator(lines: list[Any], inside: list[Callable[[], Any]]) -> AsyncGenerator[Any, Any]:
    for line in lines:
        await asyncio.sleep(0)
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, End):
            return
        if inside:
            await settled(inside.pop()())
        line_back = yield line
        if line_back is not None:
            yield f"sent {line_back}"


class Resuming:
    """An iterator that goes on after its exceptions, as one does that polls."""

    def __init__(self, lines: list[Any], inside: list[Callable[[], Any]]) -> None:
        self.lines = list(lines)
        self.inside = inside

    def __iter__(self) -> Resuming:
        return self

    def __next__(self) -> Any:
        line = self.lines.pop(0) if self.lines else End()
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, End):
            raise StopIteration(7)
        if self.inside:
            self.inside.pop()()
        return line


class AsyncResuming:
    def __init__(self, lines: list[Any], inside: list[Callable[[], Any]]) -> None:
        self.lines = list(lines)
        self.inside = inside

    def __aiter__(self) -> AsyncResuming:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(0)
        line = self.lines.pop(0) if self.lines else End()
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, End):
            raise StopAsyncIteration
        if self.inside:
            await settled(self.inside.pop()())
        return line


MAKES: dict[str, Any] = {
    "generator": generator,
    "resuming": Resuming,
    "async generator": async_generator,
    "async resuming": AsyncResuming,
}
Scene: TypeAlias = "Callable[[Stage], None]"


class Stage:
    """One stream, bare or monitored, the loop that it is read on, and what was seen."""

    def __init__(self, make: str, *, monitored: bool, lines: list[Any]) -> None:
        self.loop = loop_in_order()
        self.noise: list[str] = []
        self.loop.set_exception_handler(lambda _, context: self.noise.append(repr(context.get("exception"))))
        self.seen: list[Any] = []
        self.inside: list[Callable[[], Any]] = []
        self.collected: Collected = collect(clock=ManualClock())
        self.stream = MAKES[make](lines, self.inside)
        if monitored:
            self.stream = self.collected.monitor(self.stream)

    def do(self, act: Callable[[], Any]) -> None:
        """Have something happen, and note what came of it."""

        async def happen() -> Any:
            try:
                return came_of(await settled(act()))
            except StopIteration as over:  # no coroutine lets it pass
                return ("over", over.value)

        try:
            self.seen.append(self.loop.run_until_complete(happen()))
        except BaseException as exc:
            self.seen.append(raised_by(exc))

    def next(self, times: int = 1) -> None:
        """Ask for so many chunks."""
        for _ in range(times):
            self.do(lambda: step(self.stream))

    def call(self, name: str, *args: Any) -> None:
        """Call one of its methods, under the name that it has in this kind of stream."""
        self.do(lambda: method(self.stream, name)(*args))

    def turns(self) -> None:
        """Let the loop do what is left to do."""
        gc.collect()
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))


def step(of: Any) -> Any:
    return of.__anext__() if hasattr(of, "__anext__") else next(of)


def method(of: Any, name: str) -> Any:
    found = getattr(of, f"a{name}", None)
    return found if found is not None else getattr(of, name)


def both(make: str, scene: Scene, outcome: str, chunks: int) -> None:
    """Play a scene without us and with us; it must have been the same, and leave one record."""
    found = []
    for monitored in (False, True):
        with told() as warned:
            stage = Stage(make, monitored=monitored, lines=LINES)
            scene(stage)
            stage.stream = None
            if not stage.loop.is_closed():
                stage.turns()
                stage.loop.run_until_complete(stage.loop.shutdown_asyncgens())
                stage.loop.close()
            gc.collect()
            seen, noise, collected = stage.seen, stage.noise, stage.collected
            del stage
        found.append({"seen": seen, "noise": noise, "warnings": warned})
    bare, ours = found
    assert ours == bare
    collected.flush()
    assert [record.chunks for record in collected.records] == [chunks]
    assert collected.records[0].outcome in outcome.split("|")
    assert collected.streams() == ()


def read_past_its_ends(stage: Stage) -> None:
    stage.next(9)


def closed(stage: Stage) -> None:
    stage.next()
    stage.call("close")
    stage.next(2)
    stage.call("close")


def closed_unread(stage: Stage) -> None:
    stage.call("close")
    stage.next()


def thrown_at(exc: BaseException) -> Scene:
    def scene(stage: Stage) -> None:
        stage.next()
        stage.call("throw", exc)
        stage.next(2)

    scene.__name__ = f"thrown_at_with_{type(exc).__name__}"
    return scene


def thrown_at_unread(stage: Stage) -> None:
    stage.call("throw", LookupError("thrown"))
    stage.next()


def sent(stage: Stage) -> None:
    stage.call("send", None)
    stage.call("send", "x")
    stage.next(2)


def sent_too_early(stage: Stage) -> None:
    stage.call("send", "x")
    stage.next()
    stage.call("close")


def dropped(stage: Stage) -> None:
    stage.next()
    stage.stream = None
    stage.turns()


def dropped_unread(stage: Stage) -> None:
    stage.stream = None
    stage.turns()


def dropped_in_a_circle(stage: Stage) -> None:
    stage.next()
    circle = [stage.stream]
    circle.append(circle)
    stage.stream = None
    del circle
    stage.turns()


def asked_while_it_is_asked(stage: Stage) -> None:
    stage.inside.append(lambda: step(stage.stream))
    stage.next(3)


def closed_while_it_is_asked(stage: Stage) -> None:
    stage.inside.append(method(stage.stream, "close"))
    stage.next(3)


def delegated_to(stage: Stage) -> None:
    if hasattr(stage.stream, "__anext__"):

        async def outer() -> AsyncIterator[Any]:
            async for chunk in stage.stream:
                yield chunk

        over: Any = outer()
        stage.do(lambda: step(over))
        stage.do(over.aclose)
    else:

        def outer_sync() -> Any:
            return (yield from stage.stream)

        over = outer_sync()
        stage.do(lambda: next(over))
        stage.do(over.close)
    stage.next(2)


def entered_by_closing(stage: Stage) -> None:
    stage.next()
    if hasattr(stage.stream, "aclose"):

        async def use() -> None:
            async with contextlib.aclosing(stage.stream):
                raise LookupError("the caller's own")

        stage.do(use)
    else:

        def use_sync() -> None:
            with contextlib.closing(stage.stream):
                raise LookupError("the caller's own")

        stage.do(use_sync)
    stage.next()


def loop_closed(stage: Stage) -> None:
    stage.next()
    stage.loop.close()
    stage.stream = None
    gc.collect()


def generators_shut_down(stage: Stage) -> None:
    stage.next()
    stage.loop.run_until_complete(stage.loop.shutdown_asyncgens())
    stage.next(2)


async def ask(stage: Stage) -> Any:
    return await step(stage.stream)


def cancelled_after(turns: int) -> Scene:
    def scene(stage: Stage) -> None:
        stage.next()

        async def lose_patience() -> Any:
            task = asyncio.ensure_future(ask(stage))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            return await task

        stage.do(lose_patience)
        stage.next(2)

    scene.__name__ = f"cancelled_after_{turns}"
    return scene


def step_closed_in_mid_air(stage: Stage) -> None:
    stage.next()

    async def close() -> None:
        step_ = stage.stream.__anext__()
        step_.send(None)
        step_.close()

    stage.do(close)
    stage.next(2)


def two_tasks_ask(stage: Stage) -> None:
    async def ask_at_once() -> Any:
        tasks = [asyncio.ensure_future(ask(stage)) for _ in range(3)]
        return [repr(came) for came in await asyncio.gather(*tasks, return_exceptions=True)]

    stage.do(ask_at_once)
    stage.next()


SHUT = "left_early|cancelled|error|no_finish"
GENERATORS = ["generator", "async generator"]
ASYNC = ["async generator", "async resuming"]
EVERY = list(MAKES)
SCENES: list[tuple[list[str], Scene, str, int]] = [
    (EVERY, read_past_its_ends, "timeout", 1),
    (GENERATORS, closed, "left_early", 1),
    (GENERATORS, closed_unread, "unread", 0),
    (GENERATORS, thrown_at(LookupError("thrown")), SHUT, 1),
    (GENERATORS, thrown_at(GeneratorExit()), SHUT, 1),
    (GENERATORS, thrown_at(KeyboardInterrupt()), SHUT, 1),
    (GENERATORS, thrown_at(StopIteration("thrown")), SHUT, 1),
    (GENERATORS, thrown_at(StopAsyncIteration("thrown")), SHUT, 1),
    (GENERATORS, thrown_at_unread, f"{SHUT}|unread", 0),
    (GENERATORS, sent, "timeout", 2),
    (GENERATORS, sent_too_early, f"{SHUT}|completed", 0),
    (EVERY, dropped, "left_early", 1),
    (EVERY, dropped_unread, "unread", 0),
    (EVERY, dropped_in_a_circle, "left_early", 1),
    (GENERATORS, asked_while_it_is_asked, "error", 0),
    (GENERATORS, closed_while_it_is_asked, "error", 0),
    (["generator"], delegated_to, SHUT, 1),
    (["resuming", *ASYNC], delegated_to, "timeout", 1),
    (GENERATORS, entered_by_closing, SHUT, 1),
    (ASYNC, loop_closed, "left_early", 1),
    (["async generator"], generators_shut_down, SHUT, 1),
    (["async resuming"], generators_shut_down, "timeout", 1),
    (ASYNC, cancelled_after(0), "timeout", 1),
    (ASYNC, cancelled_after(1), "cancelled", 1),
    (ASYNC, step_closed_in_mid_air, "cancelled", 1),
    (["async generator"], two_tasks_ask, "timeout", 1),
]


@pytest.mark.parametrize(
    ("make", "scene", "outcome", "chunks"),
    [
        pytest.param(make, scene, outcome, chunks, id=f"{scene.__name__}-{make}")
        for makes, scene, outcome, chunks in SCENES
        for make in makes
    ],
)
def test_streams_of_any_make_are_as_without_us(make: str, scene: Scene, outcome: str, chunks: int) -> None:
    """Same chunks, values, exceptions, warnings, and one record."""
    both(make, scene, outcome, chunks)


def forgotten(stage: Stage) -> None:
    async def forget() -> None:
        stage.stream.__anext__()

    stage.do(forget)
    stage.next()


@pytest.mark.xfail(
    strict=False,
    reason="the step of a stand-in is a coroutine of ours, and Python names that if it is forgotten",
)
@pytest.mark.parametrize("make", ASYNC)
def test_step_that_is_never_awaited_is_told_as_without_us(make: str) -> None:
    """Python warns of a coroutine, by its name, and of a generator's step not at all."""
    both(make, forgotten, "left_early", 1)
