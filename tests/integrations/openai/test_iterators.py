"""A stream taken by its iterators in every way the language has: with us and without us it is the same.

Each scene is played twice, on a bare client and on a monitored one. The same chunks must come, the same exceptions with
the same texts and causes, the same warnings and unraisable errors; the sockets and the pool must be left in the same
state; and there must be exactly one record. How the answer is brought to the caller is nobody's business here.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import itertools
import pickle
import threading
from collections import abc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import pytest
from openai import OpenAI

from midstream import StreamRecord
from midstream.testing import DONE, ManualClock, collect, finish, scripted, text, usage
from support.harness import ASK, a_client, settled
from support.hostile_wire import Act, Answer, Piece, now
from support.hostile_world import World, came_of, garbage_by_hand, loop_in_order, raised_by, told

KINDS = ["sync", "async"]


def said(*frames: str | Act) -> tuple[Piece, ...]:
    """An answer of these frames, a second apart."""
    return tuple((1.0, frame.encode() if isinstance(frame, str) else frame) for frame in frames)


ABSTRACT: tuple[Any, ...] = (
    abc.Iterable,
    abc.Iterator,
    abc.AsyncIterable,
    abc.AsyncIterator,
    abc.Sized,
    abc.Callable,
)
MOMENT = Act.LOOK
"""The place in an answer where a scene has something happen in the middle of a read."""
ANSWER = said(text("a"), MOMENT, text("b"), text("c"), finish(), DONE)


@pytest.fixture(scope="module", autouse=True)
def _garbage_by_hand() -> Iterator[None]:
    with garbage_by_hand():
        yield


class Stage:
    """One world with one stream in it, and what was seen there."""

    def __init__(self, kind: str, *, monitored: bool) -> None:
        self.kind = kind
        self.world = World(kind, monitored=monitored, socket="none")
        self.seen: list[Any] = []

    @property
    def stream(self) -> Any:
        """The stream that the scene is about."""
        return self.world.held[0].stream

    def open(self, pieces: tuple[Piece, ...] = ANSWER, how: str = "create") -> None:
        """Ask for the stream."""
        self.do(lambda world: world.open(0, how, "chat", (Answer(pieces),)))

    def do(self, act: Callable[[World], Any]) -> Any:
        """Have something happen, and note what came of it."""
        came = self.world.do(act)
        self.seen.append(came)
        return came

    def next(self, times: int = 1) -> None:
        """Ask for so many chunks."""
        for _ in range(times):
            self.do(lambda world: world.step(0))

    def now(self, act: Callable[[], Any]) -> None:
        """Have something happen at once, from whichever thread, and note what came of it."""
        try:
            came = came_of(act())
        except BaseException as exc:  # whatever it is, it is what there is to see
            came = raised_by(exc)
        self.seen.append(came)

    def in_a_thread(self, act: Callable[[], Any]) -> None:
        """The same in another thread, of which the end is waited for."""
        thread = threading.Thread(target=self.now, args=(act,))
        thread.start()
        thread.join(10)

    def meanwhile(self, act: Callable[[], Any]) -> None:
        """Have something happen in the middle of the read that comes to MOMENT."""

        async def happen() -> None:
            try:
                came = came_of(await settled(act()))
            except BaseException as exc:
                came = raised_by(exc)
            self.seen.append(came)

        self.world.network.meanwhile = {MOMENT: happen}

    def drop(self) -> None:
        """Let go of the stream."""
        self.do(lambda world: world.drop(0))

    def end(self) -> tuple[Any, ...]:
        """Everything that was seen, once all is over."""
        world = self.world
        world.network.meanwhile = {}
        state = world.network.state()
        for number in list(world.held):
            now(world.drop(number))
        if world.loop is None or not world.loop.is_closed():
            world.settle()
            state = (state, world.network.state())
            world.close()
        gc.collect()
        return self.seen, world.noise, state


Scene: TypeAlias = "Callable[[Stage], None]"


def both(kind: str, scene: Scene, outcome: str, chunks: int | None) -> StreamRecord:
    """Play a scene without us and with us; it must have been the same. Gives the record.

    `outcome`: the outcomes that the record may have, with a bar between them.
    """
    found = []
    for monitored in (False, True):
        with told() as warned:
            stage = Stage(kind, monitored=monitored)
            scene(stage)
            end = stage.end()
            seen = stage.world.seen
            del stage
        found.append((*end, warned))
    bare, ours = found
    for what, without_us, with_us in zip(("seen", "noise", "state", "warnings"), bare, ours, strict=True):
        assert with_us == without_us, what
    assert seen is not None
    seen.flush()
    assert len(seen.records) == 1
    assert chunks in {None, seen.records[0].chunks}
    assert seen.records[0].outcome in outcome.split("|")
    assert seen.streams() == ()
    assert len(seen.process.roster) == 0
    return seen.records[0]


# Sync and async


def asked_again_after_the_end(stage: Stage) -> None:
    stage.open()
    stage.next(7)


def asked_again_after_it_broke(stage: Stage) -> None:
    stage.open(said(text("a"), Act.CUT))
    stage.next(4)


def asked_again_after_the_server_complained(stage: Stage) -> None:
    stage.open(said(text("a"), 'data: {"error": {"message": "no"}}\n\n', text("b"), DONE))
    stage.next(4)


def asked_again_after_it_could_not_be_read(stage: Stage) -> None:
    stage.open(said(text("a"), "data: {\n\n", text("b"), DONE))
    stage.next(4)


def hit(act: Act) -> Scene:
    def scene(stage: Stage) -> None:
        stage.open(said(text("a"), act, text("b")))
        stage.next(4)
        stage.do(lambda world: world.close_stream(0, "close"))
        stage.next()

    scene.__name__ = f"hit_by_{act.name.lower()}"
    return scene


def asked_while_it_is_asked(stage: Stage) -> None:
    stage.open()
    stage.next()
    stage.meanwhile(lambda: step(stage.stream))
    stage.next(5)


def closed_while_it_is_asked(stage: Stage) -> None:
    stage.open()
    stage.next()
    stage.meanwhile(stage.stream.close)
    stage.next(3)


def response_closed_while_it_is_asked(stage: Stage) -> None:
    stage.open()
    stage.next()
    response = stage.stream.response
    stage.meanwhile(lambda: response.aclose() if stage.kind == "async" else response.close())
    stage.next(3)


def generator_closed_while_it_is_asked(stage: Stage) -> None:
    stage.open()
    stage.next()
    stage.meanwhile(method(stage.stream._iterator, "close"))
    stage.next(5)


def thrown_at_while_it_is_asked(stage: Stage) -> None:
    stage.open()
    stage.next()
    stage.meanwhile(lambda: method(stage.stream._iterator, "throw")(LookupError("thrown")))
    stage.next(5)


def generator_closed(stage: Stage) -> None:
    stage.open()
    stage.next()
    stage.do(lambda _: settled(method(stage.stream._iterator, "close")()))
    stage.next(2)


def generator_closed_before_it_began(stage: Stage) -> None:
    stage.open()
    stage.do(lambda _: settled(method(stage.stream._iterator, "close")()))
    stage.next(2)
    stage.do(lambda world: world.close_stream(0, "close"))


def generator_closed_after_the_end(stage: Stage) -> None:
    stage.open()
    stage.next(5)
    stage.do(lambda _: settled(method(stage.stream._iterator, "close")()))
    stage.do(lambda _: settled(method(stage.stream._iterator, "throw")(LookupError("thrown"))))
    stage.next()


def thrown_at(exc: BaseException) -> Scene:
    def scene(stage: Stage) -> None:
        stage.open()
        stage.next()
        stage.do(lambda _: settled(method(stage.stream._iterator, "throw")(exc)))
        stage.next(2)

    scene.__name__ = f"thrown_at_with_{type(exc).__name__}"
    return scene


def iterator_closed(stage: Stage) -> None:
    stage.open()
    stage.do(lambda world: world.loop_closed(0, 2))
    stage.next(4)


def iterator_closed_unread(stage: Stage) -> None:
    stage.open()
    stage.do(lambda world: world.loop_closed(0, 0))
    stage.next(5)


def iterators_by_turns(stage: Stage) -> None:
    stage.open()
    iterators = [iterator(stage.stream), iterator(stage.stream)]
    for which in (0, 1, 1, 0):
        stage.do(partial(step_of, iterators, which))
    iterators.pop(0)
    stage.world.settle()
    stage.do(lambda _: step(iterators[0]))
    stage.next()


def iterator_outlives_its_stream(stage: Stage) -> None:
    stage.open()
    over = iterator(stage.stream)
    stage.do(lambda _: step(over))
    stage.drop()
    stage.world.settle()
    for _ in range(4):
        stage.do(lambda _: step(over))


def dropped_half_read(stage: Stage) -> None:
    stage.open()
    stage.next(2)
    stage.drop()
    stage.seen.append(stage.world.network.state())
    stage.world.settle()


def dropped_unread(stage: Stage) -> None:
    stage.open()
    stage.drop()
    stage.seen.append(stage.world.network.state())
    stage.world.settle()


def dropped_in_a_circle(stage: Stage) -> None:
    stage.open()
    stage.next(2)
    circle: list[Any] = [stage.stream]
    circle.append(circle)
    del circle
    stage.drop()
    stage.world.settle()


def dropped_with_its_iterator(stage: Stage) -> None:
    stage.open()
    over = [iterator(stage.stream)]
    stage.do(lambda _: step(over[0]))
    over.clear()
    stage.drop()
    stage.world.settle()


def dropped_after_an_exception_that_is_kept(stage: Stage) -> None:
    stage.open(said(text("a"), Act.FAULT))
    kept: list[BaseException] = []

    async def fail(world: World) -> None:
        try:
            for _ in range(2):
                await step(stage.stream)
        except LookupError as exc:
            kept.append(exc)

    stage.do(fail)
    stage.drop()
    stage.world.settle()
    stage.seen.append(repr(kept))


def asked_while_another_exception_is_handled(stage: Stage) -> None:
    stage.open(said(text("a"), Act.FAULT))

    async def ask(world: World) -> Any:
        try:
            raise KeyError("the caller's own")  # noqa: TRY301 - it is handled while the stream is asked
        except KeyError:
            await step(stage.stream)
            return await step(stage.stream)

    stage.do(ask)


def left_by_an_exception_of_the_loops_body(stage: Stage) -> None:
    stage.open()

    async def body(world: World) -> None:
        if stage.kind == "sync":
            for _ in stage.stream:
                raise LookupError("the caller's own")
        async for _ in stage.stream:
            raise LookupError("the caller's own")

    stage.do(body)
    stage.next(2)
    stage.do(lambda world: world.leave(0, LookupError("the caller's own")))
    stage.next()


def copied(stage: Stage) -> None:
    stage.open()
    stage.next()
    twin = [copy.copy(stage.stream)]
    stage.do(lambda _: step(twin[0]))
    stage.next()
    twin.clear()
    stage.world.settle()
    stage.next(2)


def pickled(stage: Stage) -> None:
    stage.open()
    stage.next()
    for act in (pickle.dumps, copy.deepcopy):
        stage.now(partial(act, stage.stream))
    stage.next(4)


def replaced_inside(stage: Stage) -> None:
    """Other libraries put an iterator of their own in the place of the SDK's."""
    stage.open()
    stage.next()
    inner = stage.stream._iterator
    stage.stream._iterator = passing_async(inner) if stage.kind == "async" else passing(inner)
    del inner
    stage.next(5)


def closed_in_many_ways(stage: Stage) -> None:
    stage.open()
    stage.next()
    for _ in range(2):
        stage.do(lambda world: world.close_stream(0, "close"))
        stage.do(lambda world: world.close_stream(0, "aclose"))
        stage.do(lambda _: settled(method(stage.stream._iterator, "close")()))
        stage.do(lambda world: world.close_response(0))
    stage.next()


def looked_at(stage: Stage) -> None:
    stage.open()
    stage.seen.append(sorted(vars(stage.stream)))
    stage.seen.append(sorted(dir(stage.stream)))
    for looked_at in (stage.stream, stage.stream._iterator):
        stage.seen.append([isinstance(looked_at, kind) for kind in ABSTRACT])
    stage.next(5)


def read_by_a_helper(stage: Stage) -> None:
    stage.open(how="helper")
    stage.next(3)
    stage.do(lambda world: world.loop_closed(0, 1))
    stage.next(20)
    stage.drop()
    stage.world.settle()


def step(of: Any) -> Any:
    """The next chunk of anything, or the coroutine that gives it."""
    if hasattr(of, "__anext__"):
        return of.__anext__()
    return next_or_over(of)


async def next_or_over(of: Any) -> Any:
    try:
        return next(of)
    except StopIteration as over:
        raise StopAsyncIteration(over.value) from None  # no coroutine lets a StopIteration pass


def step_of(iterators: list[Any], which: int, _world: World) -> Any:
    return step(iterators[which])


def iterator(of: Any) -> Any:
    return aiter(of) if hasattr(of, "__aiter__") else iter(of)


def method(of: Any, name: str) -> Any:
    """`close`, `throw` or `send` of a generator, or what an async one has for it."""
    return getattr(of, f"a{name}", None) or getattr(of, name)


def passing(inner: Any) -> Iterator[Any]:
    yield from inner


async def passing_async(inner: Any) -> Any:
    async for chunk in inner:
        yield chunk


SHUT = "left_early|no_finish|error|cancelled"
"""Whoever shuts the SDK's generator behind its back may be told by it that the answer is over."""
SCENES: list[tuple[Scene, str, int]] = [
    (asked_again_after_the_end, "completed", 4),
    (asked_again_after_it_broke, "error", 1),
    (asked_again_after_the_server_complained, "error", 1),
    (asked_again_after_it_could_not_be_read, "error", 1),
    (hit(Act.INTERRUPT), "cancelled", 1),
    (hit(Act.EXIT), "cancelled", 1),
    (hit(Act.ABANDON), "cancelled", 1),
    (hit(Act.FAULT), "error", 1),
    (hit(Act.SILENCE), "timeout", 1),
    (hit(Act.CANCEL), "cancelled", 1),
    (asked_while_it_is_asked, "completed", 4),
    (closed_while_it_is_asked, "error", 1),
    (response_closed_while_it_is_asked, "error", 1),
    (generator_closed_while_it_is_asked, "completed", 4),
    (thrown_at_while_it_is_asked, "completed", 4),
    (generator_closed, SHUT, 1),
    (generator_closed_before_it_began, "unread|empty", 0),
    (generator_closed_after_the_end, "completed", 4),
    (thrown_at(LookupError("thrown")), SHUT, 1),
    (thrown_at(GeneratorExit()), SHUT, 1),
    (thrown_at(KeyboardInterrupt()), SHUT, 1),
    (thrown_at(asyncio.CancelledError()), SHUT, 1),
    (thrown_at(StopIteration("thrown")), SHUT, 1),
    (thrown_at(StopAsyncIteration("thrown")), SHUT, 1),
    (iterator_closed, "completed", 4),
    (iterator_closed_unread, "completed", 4),
    (iterators_by_turns, "completed", 4),
    (iterator_outlives_its_stream, "completed", 4),
    (dropped_half_read, "left_early", 2),
    (dropped_unread, "unread", 0),
    (dropped_in_a_circle, "left_early", 2),
    (dropped_with_its_iterator, "left_early", 1),
    (dropped_after_an_exception_that_is_kept, "error", 1),
    (asked_while_another_exception_is_handled, "error", 1),
    (left_by_an_exception_of_the_loops_body, "left_early", 3),
    (copied, "completed", 4),
    (pickled, "completed", 4),
    (replaced_inside, "completed", 4),
    (closed_in_many_ways, "left_early", 1),
    (looked_at, "completed", 4),
    (read_by_a_helper, "completed", 4),
]


# Async only


def finished(coroutine: Any, begin: Callable[[], Any]) -> Any:
    """Begin so, and run it by hand to its end."""
    try:
        begin()
        while True:
            coroutine.send(None)
    except StopIteration as done:
        return done.value


def never_awaited(stage: Stage) -> None:
    stage.open()

    async def forget(world: World) -> None:
        stage.stream.__anext__()

    stage.do(forget)
    stage.next(2)
    stage.do(forget)
    stage.do(lambda world: world.close_stream(0, "close"))


def cancelled_after(turns: int) -> Scene:
    """Turns of the loop: none is before the read begins, and there are two to a read."""

    def scene(stage: Stage) -> None:
        stage.open()
        stage.next()
        stage.do(lambda world: world.step_for(0, turns))
        stage.next(2)
        stage.do(lambda world: world.close_stream(0, "close"))

    scene.__name__ = f"cancelled_after_{turns}"
    return scene


def thrown_into(exc: BaseException, turns: int) -> Scene:
    """An exception comes out of the `await` at which the task waits, as no loop but any other scheduler might do it."""

    def scene(stage: Stage) -> None:
        stage.open()
        stage.next()

        async def throw(world: World) -> Any:
            step_ = stage.stream.__anext__()
            for _ in range(turns):
                step_.send(None)
            return finished(step_, lambda: step_.throw(exc))

        stage.do(throw)
        stage.next(2)
        stage.do(lambda world: world.close_stream(0, "close"))

    scene.__name__ = f"thrown_into_with_{type(exc).__name__}_after_{turns}"
    return scene


def step_closed_after(turns: int) -> Scene:
    def scene(stage: Stage) -> None:
        stage.open()
        stage.next()

        async def close(world: World) -> None:
            step_ = stage.stream.__anext__()
            for _ in range(turns):
                step_.send(None)
            step_.close()

        stage.do(close)
        stage.next(2)
        stage.do(lambda world: world.close_stream(0, "close"))

    scene.__name__ = f"step_closed_after_{turns}"
    return scene


def step_dropped_in_mid_air(stage: Stage) -> None:
    stage.open()
    stage.next()

    async def drop(world: World) -> None:
        stage.stream.__anext__().send(None)

    stage.do(drop)
    stage.world.settle()
    stage.next(2)
    stage.drop()
    stage.world.settle()


def two_tasks_ask(stage: Stage) -> None:
    stage.open()

    async def ask(world: World) -> Any:
        tasks = [asyncio.ensure_future(step(stage.stream)) for _ in range(3)]
        return [repr(came) for came in await asyncio.gather(*tasks, return_exceptions=True)]

    stage.do(ask)
    stage.do(ask)
    stage.next(3)


def second_asker_is_cancelled(stage: Stage) -> None:
    stage.open()

    async def ask(world: World) -> Any:
        first, second = (asyncio.ensure_future(step(stage.stream)) for _ in range(2))
        await asyncio.sleep(0)
        second.cancel()
        return [repr(came) for came in await asyncio.gather(first, second, return_exceptions=True)]

    stage.do(ask)
    stage.next(4)


def first_asker_is_cancelled(stage: Stage) -> None:
    stage.open()

    async def ask(world: World) -> Any:
        first, second = (asyncio.ensure_future(step(stage.stream)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        return [repr(came) for came in await asyncio.gather(first, second, return_exceptions=True)]

    stage.do(ask)
    stage.next(2)


def closed_by_another_task(stage: Stage) -> None:
    stage.open()
    stage.next()
    stage.meanwhile(lambda: asyncio.ensure_future(stage.stream.close()))
    stage.next(3)


def read_by_another_task_that_is_cancelled(stage: Stage) -> None:
    stage.open()
    stage.next()

    async def cancelled() -> Any:
        other = asyncio.ensure_future(step(stage.stream))
        other.cancel()
        return await other

    stage.meanwhile(cancelled)
    stage.next(4)


def generators_shut_down(stage: Stage) -> None:
    stage.open()
    stage.next(2)
    stage.do(lambda world: world.end_generators())
    stage.next(2)


def generators_shut_down_from_within(stage: Stage) -> None:
    stage.open()
    stage.next(2)
    stage.do(lambda world: world.end_generators(newest_first=True))
    stage.next(2)


def generators_shut_down_unread(stage: Stage) -> None:
    stage.open()
    stage.do(lambda world: world.end_generators())
    stage.next(5)


def generators_shut_down_in_mid_read(stage: Stage) -> None:
    stage.open()
    stage.next()
    stage.meanwhile(stage.world.end_generators)
    stage.next(4)


def loop_closed_half_read(stage: Stage) -> None:
    stage.open()
    stage.next(2)
    assert stage.world.loop is not None
    stage.world.loop.close()
    gc.collect()


def loop_closed_unread(stage: Stage) -> None:
    stage.open()
    assert stage.world.loop is not None
    stage.world.loop.close()
    gc.collect()


def loop_closed_in_mid_read(stage: Stage) -> None:
    stage.open()
    stage.next()
    loop = stage.world.loop
    assert loop is not None
    stage.meanwhile(loop.create_future)  # it never comes

    async def leave() -> asyncio.Future[Any]:
        asker: asyncio.Future[Any] = asyncio.ensure_future(step(stage.stream))
        for _ in range(3):
            await asyncio.sleep(0)
        return asker

    asker = loop.run_until_complete(leave())
    loop.close()
    del asker
    gc.collect()


def read_on_in_another_loop(stage: Stage) -> None:
    stage.open()
    stage.next()
    world = stage.world
    assert world.loop is not None
    first, world.loop = world.loop, loop_in_order()
    stage.next(2)
    stage.do(lambda world: world.close_stream(0, "close"))
    world.settle()
    world.loop.close()
    world.loop = first


def begun_without_a_loop(stage: Stage) -> None:
    """As a scheduler does that is no asyncio: nobody is told of the generators."""
    stage.open()
    steps = [stage.stream.__anext__()]
    stage.now(lambda: finished(steps.pop(), lambda: None))
    stage.drop()
    gc.collect()


def read_by_anothers_loop_meanwhile(stage: Stage) -> None:
    stage.open()
    stage.next()

    async def once() -> Any:
        return await step(stage.stream)

    stage.meanwhile(lambda: stage.in_a_thread(lambda: asyncio.run(once())))
    stage.next(4)


ASYNC_SCENES: list[tuple[Scene, str, int]] = [
    (never_awaited, "left_early", 2),
    (cancelled_after(0), "left_early", 3),
    (cancelled_after(1), "cancelled", 1),
    (cancelled_after(2), "completed", 4),
    *[
        (thrown_into(exc, turns), "left_early" if turns == 0 else outcome, 3 if turns == 0 else 1)
        for exc, outcome in [
            (LookupError("thrown"), "error"),
            (asyncio.CancelledError(), "cancelled"),
            (KeyboardInterrupt(), "cancelled"),
            (GeneratorExit(), "cancelled"),
            (StopIteration("thrown"), "error"),
            (StopAsyncIteration("thrown"), "error"),
        ]
        for turns in (0, 1)
    ],
    (step_closed_after(0), "left_early", 3),
    (step_closed_after(1), "cancelled", 1),
    (step_dropped_in_mid_air, "cancelled", 1),
    (two_tasks_ask, "completed", 4),
    (second_asker_is_cancelled, "completed", 4),
    (first_asker_is_cancelled, "cancelled", 0),
    (closed_by_another_task, "error", 1),
    (read_by_another_task_that_is_cancelled, "completed", 4),
    (generators_shut_down, SHUT, 2),
    (generators_shut_down_from_within, SHUT, 2),
    (generators_shut_down_unread, "completed", 4),
    (generators_shut_down_in_mid_read, "completed", 4),
    (loop_closed_half_read, "left_early", 2),
    (loop_closed_unread, "unread", 0),
    (loop_closed_in_mid_read, "cancelled|error", 1),
    (read_on_in_another_loop, "left_early", 3),
    (begun_without_a_loop, "left_early", 1),
    (read_by_anothers_loop_meanwhile, "completed", 4),
]


# Sync only


def asked_by_another_thread_meanwhile(stage: Stage) -> None:
    stage.open()
    stage.next()
    stage.meanwhile(lambda: stage.in_a_thread(lambda: next(stage.stream)))
    stage.next(4)


def closed_by_another_thread_meanwhile(stage: Stage) -> None:
    stage.open()
    stage.next()
    stage.meanwhile(lambda: stage.in_a_thread(stage.stream.close))
    stage.next(3)


def generator_closed_by_another_thread_meanwhile(stage: Stage) -> None:
    stage.open()
    stage.next()
    stage.meanwhile(lambda: stage.in_a_thread(stage.stream._iterator.close))
    stage.next(4)


def threads_by_turns(stage: Stage) -> None:
    stage.open()
    for _ in range(3):
        stage.in_a_thread(lambda: next(stage.stream))
        stage.next()


def dropped_in_a_thread(stage: Stage) -> None:
    stage.open()
    stage.next()
    kept = [stage.stream]
    stage.drop()

    def last() -> Any:
        chunk = next(kept[0])
        kept.clear()
        return chunk

    stage.in_a_thread(last)
    stage.world.settle()


def read_by_the_librarys_own_tools(stage: Stage) -> None:
    stage.open()
    stage.now(lambda: next(stage.stream, "over"))
    stage.now(lambda: list(itertools.islice(stage.stream, 1)))
    one, other = itertools.tee(stage.stream)
    stage.now(lambda: [next(one), next(other), next(other)])
    stage.now(lambda: list(zip(one, range(9), strict=False)))
    stage.now(lambda: next(stage.stream, "over"))
    stage.now(lambda: list(stage.stream))
    with contextlib.closing(stage.stream):
        pass


def asked_while_it_is_delegated_to(stage: Stage) -> None:
    stage.open()
    outer = passing(stage.stream)
    stage.now(lambda: next(outer))
    stage.now(lambda: outer.throw(LookupError("thrown")))  # type: ignore[attr-defined]
    stage.next(3)


SYNC_SCENES: list[tuple[Scene, str, int]] = [
    (asked_by_another_thread_meanwhile, "completed", 4),
    (closed_by_another_thread_meanwhile, "error", 1),
    (generator_closed_by_another_thread_meanwhile, "completed", 4),
    (threads_by_turns, "completed", 4),
    (dropped_in_a_thread, "left_early", 2),
    (read_by_the_librarys_own_tools, "completed", 4),
    (asked_while_it_is_delegated_to, "completed", 4),
]


@pytest.mark.parametrize(
    ("kind", "scene", "outcome", "chunks"),
    [
        pytest.param(kind, *played, id=f"{played[0].__name__}-{kind}")
        for kinds, scenes in ((["sync", "async"], SCENES), (["async"], ASYNC_SCENES), (["sync"], SYNC_SCENES))
        for played in scenes
        for kind in kinds
    ],
)
def test_iterators_are_as_without_us(kind: str, scene: Scene, outcome: str, chunks: int) -> None:
    """However a stream is read, left, closed, thrown at or shared: nobody can tell us from the SDK."""
    both(kind, scene, outcome, chunks)


WHOLE = said(text("a"), text("b"), finish(), usage(3, 4), DONE)
THROWN = [
    LookupError("thrown"),
    asyncio.CancelledError(),
    KeyboardInterrupt(),
    GeneratorExit(),
    SystemExit(3),
]


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("exc", THROWN, ids=lambda exc: type(exc).__name__)
@pytest.mark.parametrize("how", ["loop", "with"])
def test_exception_may_come_out_of_any_await(how: str, exc: BaseException, turns: int) -> None:
    """From the first wait for bytes to the last of closing, whichever it is at which the task was suspended."""
    counts = []

    def scene(stage: Stage) -> None:
        stage.open(WHOLE)
        got: list[Any] = []

        async def read() -> None:
            if how == "with":
                async with stage.stream as entered:
                    async for chunk in entered:
                        got.append(chunk)  # noqa: PERF401 - what came before the exception counts
            else:
                async for chunk in stage.stream:
                    got.append(chunk)  # noqa: PERF401

        async def throw(world: World) -> Any:
            reading = read()
            suspended = 0
            try:
                while suspended < turns:
                    reading.send(None)
                    suspended += 1
            except StopIteration:
                return f"over after {suspended}"
            return finished(reading, lambda: reading.throw(exc))

        stage.do(throw)
        stage.seen.append([came_of(chunk) for chunk in got])
        counts.append(len(got))
        # Before 3.13 an async generator that waits does not hear of a GeneratorExit, only of its own collection.
        exc.__traceback__ = None
        stage.drop()
        stage.world.settle()

    ends = "completed|error|cancelled|left_early|no_finish|unread"
    record = both("async", scene, ends, None)
    assert counts == [record.chunks, record.chunks]


class Polling:
    """What another library may put between the SDK's stream and its chunks: it goes on after an exception."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.asked = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        self.asked += 1
        if self.asked % 2 == 0:
            raise TimeoutError(f"nothing at attempt {self.asked}")
        return next(self.inner)


def test_iterator_of_another_library_may_go_on_after_an_exception() -> None:
    """The record ends where the exception came; the caller goes on as without us."""
    found = []
    for monitored in (False, True):
        clock = ManualClock()
        client = OpenAI(api_key="none", http_client=scripted(FRAMES, clock))
        stream: Any = client.chat.completions.create(**ASK, stream=True)
        stream._iterator = Polling(stream._iterator)
        seen = collect(clock=clock)
        if monitored:
            assert seen.monitor(stream) is stream
        found.append([came_of_next(stream) for _ in range(9)])
        client.close()

    assert found[0] == found[1]
    assert [str(came) for came in found[1][:4]] == ["a", "nothing at attempt 2", "b", "nothing at attempt 4"]
    assert (seen.record.outcome, seen.record.chunks) == ("timeout", 1)


def came_of_next(stream: Any) -> Any:
    try:
        return next(stream).choices[0].delta.content
    except BaseException as exc:  # to be compared
        return str(exc)


FRAMES = [(1.0, text("a")), (2.0, text("b")), (3.0, finish()), (3.0, DONE)]


@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_chunks_may_be_hidden_in_a_row(kind: str) -> None:
    """A server that answers `include_usage` with usage alone, again and again, costs its caller nothing but time."""
    clock = ManualClock()
    script = [(1.0, text("a")), *[(1.5, usage(3, number)) for number in range(3000)], *FRAMES[1:]]
    client = a_client(kind, script, clock, include_usage=True)

    async def read() -> list[Any]:
        return [chunk.choices[0].delta.content async for chunk in await client.create()]

    assert asyncio.run(read()) == ["a", "b", None]
    assert (client.seen.record.outcome, client.seen.record.output_tokens) == ("completed", 2999)
