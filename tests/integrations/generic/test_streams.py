"""`monitor()` around a stream of any make: it is timed, read as far as it can be, and remains what it is."""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import copy
import gc
import inspect
import pickle
import types
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from midstream.testing import Collected, ManualClock, collect
from support.harness import Answer, settled

if TYPE_CHECKING:
    from typing_extensions import Self

KINDS = pytest.mark.parametrize("kind", ["sync", "async"])
Chunks = Sequence["tuple[float, Any]"]
ANSWER: Chunks = [(1, "a"), (2, "b"), (10, "c")]


def paced(chunks: Chunks, clock: ManualClock) -> Iterator[Any]:
    """Each chunk at its moment. An exception in the place of a chunk is raised."""
    for at_s, chunk in chunks:
        clock.advance_to(at_s)
        if isinstance(chunk, BaseException):
            raise chunk
        yield chunk


async def paced_async(chunks: Chunks, clock: ManualClock) -> AsyncIterator[Any]:
    for chunk in paced(chunks, clock):
        yield chunk


class Iterating:
    """An iterator without any other method."""

    def __init__(self, chunks: Chunks, clock: ManualClock) -> None:
        self.source = paced(chunks, clock)

    def __iter__(self) -> Iterating:
        return self

    def __next__(self) -> Any:
        return next(self.source)


class IteratingAsync:
    def __init__(self, chunks: Chunks, clock: ManualClock) -> None:
        self.source = paced(chunks, clock)

    def __aiter__(self) -> IteratingAsync:
        return self

    async def __anext__(self) -> Any:
        for chunk in self.source:
            return chunk
        raise StopAsyncIteration


class Streaming:
    """A stream as an SDK makes it: its iterators share the chunks, it can be closed, and is a context manager."""

    def __init__(self, chunks: Chunks, clock: ManualClock) -> None:
        self.source = paced(chunks, clock)
        self.request_id = "r1"
        self.closed = False

    def __iter__(self) -> Iterator[Any]:
        for chunk in self.source:  # noqa: UP028 - `yield from` would close the source with the iterator
            yield chunk

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class StreamingAsync:
    def __init__(self, chunks: Chunks, clock: ManualClock) -> None:
        self.source = paced(chunks, clock)
        self.request_id = "r1"
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        for chunk in self.source:
            yield chunk

    async def aclose(self) -> None:
        self.closed = True

    close = aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


MAKES: dict[str, dict[str, Callable[[Chunks, ManualClock], Any]]] = {
    "sync": {"generator": paced, "iterator": Iterating, "stream": Streaming},
    "async": {"generator": paced_async, "iterator": IteratingAsync, "stream": StreamingAsync},
}
EVERY = pytest.mark.parametrize(("kind", "make"), [(kind, make) for kind in MAKES for make in MAKES[kind]])


def foreign(kind: str, make: str, chunks: Chunks = ANSWER, **settings: Any) -> tuple[Any, Any, Collected]:
    """A stream that is monitored, the same stream bare, and what is seen of the first."""
    clock = ManualClock()
    seen = collect(clock=clock, **settings)
    bare = MAKES[kind][make](chunks, clock)
    return seen.monitor(bare), bare, seen


async def rest(stream: Any) -> list[Any]:
    return [chunk async for chunk in Answer(stream)]


@EVERY
def test_stream_of_any_make_is_timed(kind: str, make: str) -> None:
    """The chunks come as they are, and their timing is recorded under no model and no server."""
    stream, _, seen = foreign(kind, make)

    assert asyncio.run(rest(stream)) == ["a", "b", "c"]

    record = seen.record
    assert (record.max_gap_s, record.max_gap_at_s, record.freezes) == (8.0, 2.0, 1)
    assert (record.chunks, record.content_chunks, record.outcome) == (3, 3, "no_finish")
    assert (record.operation, record.provider, record.server_address, record.request_model) == (
        "other",
        "",
        "",
        "",
    )
    assert [freeze.gap_s for freeze in seen.freezes] == [5.0]


@EVERY
def test_it_is_and_can_what_the_stream_is_and_can(kind: str, make: str) -> None:
    """Class, attributes and abilities are those of the stream: no method more, and none less."""
    stream, bare, _ = foreign(kind, make)

    assert isinstance(stream, type(bare))
    assert stream.__class__ is type(bare)
    assert repr(stream) == repr(bare)
    assert dir(stream) == dir(bare)
    for name in ("Iterable", "Iterator", "Generator", "AsyncIterable", "AsyncIterator", "AsyncGenerator", "Sized",
                 "Container", "Callable", "Awaitable", "Mapping", "Sequence"):  # fmt: skip
        abc = getattr(collections.abc, name)
        assert (isinstance(stream, abc), name) == (isinstance(bare, abc), name)
    for name in (
        "__enter__",
        "__aenter__",
        "close",
        "aclose",
        "send",
        "asend",
        "__len__",
        "__await__",
        "__call__",
    ):
        assert (hasattr(stream, name), name) == (hasattr(bare, name), name)
    assert inspect.isgenerator(stream) == inspect.isgenerator(bare)
    assert inspect.isasyncgen(stream) == inspect.isasyncgen(bare)
    assert stream == stream  # noqa: PLR0124 - its equality is the stream's
    assert hash(stream) == hash(bare)
    assert bool(stream)
    for fails in (pickle.dumps, copy.copy) if make == "generator" else ():
        with pytest.raises(TypeError):
            fails(stream)


@KINDS
def test_attributes_are_the_streams_own(kind: str) -> None:
    """Reading, writing and deleting reach the stream itself."""
    stream, bare, _ = foreign(kind, "stream")

    assert stream.request_id == "r1"
    stream.request_id = "r2"
    stream.note = 1
    assert (bare.request_id, bare.note) == ("r2", 1)
    del stream.note
    assert not hasattr(bare, "note")
    assert vars(stream) is vars(bare)


async def close(stream: Any) -> None:
    await settled((getattr(stream.raw, "aclose", None) or stream.raw.close)())


async def closed(stream: Any) -> None:
    await stream.__anext__()
    await close(stream)


async def left_with(stream: Any) -> None:
    async with stream:
        await stream.__anext__()


async def raised_with(stream: Any) -> None:
    with contextlib.suppress(LookupError):
        async with stream:
            await stream.__anext__()
            raise LookupError


async def cancelled_with(stream: Any) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        async with stream:
            await stream.__anext__()
            raise asyncio.CancelledError


async def dropped(stream: Any) -> None:
    async for _ in stream:
        break
    del stream.raw
    gc.collect()


async def unread(stream: Any) -> None:
    del stream.raw
    gc.collect()


class Steps(Answer):
    """Steps through streams that hand out iterators and are none themselves."""

    def __init__(self, raw: Any) -> None:
        super().__init__(raw)
        self._steps = iter(raw) if hasattr(raw, "__iter__") else raw.__aiter__()

    async def __anext__(self) -> Any:
        if hasattr(self._steps, "__anext__"):
            return await self._steps.__anext__()
        return next(self._steps)


LEAVINGS = [
    (closed, "left_early", 1),
    (left_with, "left_early", 1),
    (raised_with, "left_early", 1),
    (cancelled_with, "cancelled", 1),
    (dropped, "left_early", 1),
    (unread, "unread", 0),
    (close, "unread", 0),
]


@KINDS
@pytest.mark.parametrize(
    ("make", "leave", "outcome", "chunks"),
    [
        (make, *leaving)
        for make in ("generator", "stream")
        for leaving in LEAVINGS
        if make == "stream" or not leaving[0].__name__.endswith("_with")  # a generator is no context manager
    ],
)
def test_every_exit_leaves_one_record(
    leave: Callable[[Any], Any], outcome: str, chunks: int, kind: str, make: str
) -> None:
    """Closed, left, dropped or never read: one record, and nothing stays open."""
    stream, bare, seen = foreign(kind, make)
    answer = Steps(stream) if leave not in {unread, dropped} else Answer(stream)
    del stream, bare

    asyncio.run(leave(answer))
    del answer
    gc.collect()
    seen.flush()

    assert (seen.record.outcome, seen.record.chunks) == (outcome, chunks)
    assert seen.streams() == ()


@pytest.mark.parametrize(
    ("raised", "outcome", "error_type"),
    [
        (TimeoutError(), "timeout", "timeout"),
        (ConnectionResetError(), "error", "APIConnectionError"),
        (LookupError("x"), "error", "LookupError"),
        (KeyboardInterrupt(), "cancelled", "KeyboardInterrupt"),
        (asyncio.CancelledError(), "cancelled", "CancelledError"),
    ],
)
@EVERY
def test_exceptions_end_the_stream_in_the_usual_words(
    raised: BaseException, outcome: str, error_type: str, kind: str, make: str
) -> None:
    """The exception reaches the caller as it is, and the wait for it is the open gap."""
    stream, _, seen = foreign(kind, make, [(1, "a"), (2, "b"), (9, raised)])

    async def catch() -> BaseException | None:
        try:
            await rest(stream)
        except BaseException as exc:
            return exc
        return None

    assert asyncio.run(catch()) is raised
    assert (seen.record.outcome, seen.record.error_type) == (outcome, error_type)
    assert (seen.record.max_gap_s, seen.record.max_gap_open) == (7.0, True)


@KINDS
def test_iterators_over_a_stream_share_its_chunks(kind: str) -> None:
    """A temporary iterator that is dropped ends nothing, and each chunk is seen once."""
    stream, _, seen = foreign(kind, "stream")

    async def use() -> list[Any]:
        first = await Steps(stream).__anext__()
        assert len(seen.streams()) == 1
        return [first, *await rest(stream)]

    assert asyncio.run(use()) == ["a", "b", "c"]
    assert (seen.record.chunks, seen.record.max_gap_s) == (3, 8.0)


def test_generator_is_sent_values_and_exceptions_as_before() -> None:
    """`send`, `throw` and `close` reach the generator, `yield from` takes it, and its return value comes through."""
    seen = collect(clock=ManualClock())

    def echo() -> Generator[Any, Any, str]:
        got: Any = "start"
        while got != "stop":
            try:
                got = yield got
            except LookupError:  # noqa: PERF203 - it stands where the generator waits
                got = "caught"
        return "returned"

    def around() -> Generator[Any, Any, None]:
        result = yield from seen.monitor(echo())
        yield result

    outer = around()
    assert [next(outer), outer.send("one"), outer.throw(LookupError()), outer.send("stop")] == [
        "start", "one", "caught", "returned",
    ]  # fmt: skip
    assert seen.record.outcome == "no_finish"


def test_async_generator_is_sent_values_and_exceptions_as_before() -> None:
    """`asend`, `athrow` and `aclose` reach the async generator."""
    seen = collect(clock=ManualClock())

    async def echo() -> AsyncGenerator[Any, Any]:
        got: Any = "start"
        while True:
            try:
                got = yield got
            except LookupError:  # noqa: PERF203 - it stands where the generator waits
                got = "caught"

    async def use() -> list[Any]:
        stream = seen.monitor(echo())
        got = [await stream.__anext__(), await stream.asend("one"), await stream.athrow(LookupError())]
        await stream.aclose()
        return got

    assert asyncio.run(use()) == ["start", "one", "caught"]
    assert seen.record.outcome == "left_early"


def test_lists_and_ranges_can_be_told_to_be_streams() -> None:
    """Whatever can be iterated over is taken, if it is asked for by name."""
    seen = collect(clock=ManualClock())

    assert list(seen.monitor(["a", "b"])) == ["a", "b"]
    assert len(seen.monitor(range(3))) == 3
    assert seen.records[0].chunks == 2


def test_monitored_twice_is_monitored_once() -> None:
    """A stand-in is not put behind another one."""
    stream, _, seen = foreign("sync", "stream")

    assert seen.monitor(stream) is stream


@KINDS
def test_context_manager_that_a_stream_comes_out_of(kind: str) -> None:
    """Some SDKs and all of `contextlib` hand the stream over in a `with`; it is followed from there to its end."""
    clock = ManualClock()
    seen = collect(clock=clock)

    class MessageStreamManager:
        def __enter__(self) -> Any:
            clock.advance(3)
            self.stream = Streaming([(4, "a"), (5, "b"), (6, "c")], clock)
            return self.stream

        def __exit__(self, *exc: object) -> None:
            self.stream.close()

    class AsyncMessageStreamManager:
        async def __aenter__(self) -> Any:
            clock.advance(3)
            self.stream = StreamingAsync([(4, "a"), (5, "b"), (6, "c")], clock)
            return self.stream

        async def __aexit__(self, *exc: object) -> None:
            await self.stream.close()

    async def use() -> None:
        if kind == "sync":
            with seen.monitor(MessageStreamManager()) as stream:
                next(iter(stream))
        else:
            async with seen.monitor(AsyncMessageStreamManager()) as stream:
                await stream.__aiter__().__anext__()
        assert stream.closed

    asyncio.run(use())
    assert (seen.record.outcome, seen.record.time_to_first_content_s) == ("left_early", 4.0)


# What chunks say


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


ANTHROPIC: Chunks = [
    (0.5, event("message_start", message={"model": "claude", "usage": {"input_tokens": 3, "cache_read_input_tokens": 4,
                                                                      "output_tokens": 1}})),
    (1, event("content_block_start", content_block={"type": "text", "text": ""})),
    (1, event("ping")),
    (2, event("content_block_delta", delta={"type": "thinking_delta", "thinking": "hm"})),
    (3, event("content_block_delta", delta={"type": "signature_delta", "signature": "x"})),
    (6, event("content_block_delta", delta={"type": "text_delta", "text": "Hi"})),
    (7, event("ping")),
    (13, event("content_block_start", content_block={"type": "tool_use", "name": "f", "input": {}})),
    (14, event("content_block_delta", delta={"type": "input_json_delta", "partial_json": "{}"})),
    (14, event("content_block_stop")),
    (15, event("message_delta", delta={"stop_reason": "max_tokens"}, usage={"output_tokens": 9})),
    (16, event("message_stop")),
]  # fmt: skip


def objects(value: Any) -> Any:
    """The same as objects with attributes, as an SDK makes them."""
    if isinstance(value, dict):
        return SimpleNamespace(**{name: objects(inner) for name, inner in value.items()})
    return [objects(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("form", [lambda chunk: chunk, objects], ids=["dicts", "objects"])
def test_anthropics_events_are_read(form: Callable[[Any], Any]) -> None:
    """Pings and block marks are silence, deltas are output, and the stop reason and both counts are found."""
    stream, _, seen = foreign("sync", "generator", [(at_s, form(chunk)) for at_s, chunk in ANTHROPIC])

    list(stream)

    record = seen.record
    assert (record.outcome, record.finish_reasons) == ("completed", ("max_tokens",))
    assert (record.chunks, record.content_chunks) == (12, 4)
    assert (record.max_gap_s, record.max_gap_at_s, record.max_gap_phase) == (7.0, 6.0, "text")
    assert (record.input_tokens, record.cached_tokens, record.output_tokens) == (7, 4, 9)
    assert record.tail_s == 1.0


def test_anthropics_error_event_is_an_error() -> None:
    """It ends the answer, whatever the SDK makes of it."""
    stream, _, seen = foreign(
        "sync", "generator", [(1, "a"), (2, event("error", error={"type": "overloaded_error"}))]
    )

    list(stream)

    assert (seen.record.outcome, seen.record.error_type) == ("error", "error_event")


OPENAI_LIKE: Chunks = [
    (1, {"model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
    (2, {"model": "m", "choices": [{"index": 0, "delta": {"content": "a"}}]}),
    (5, {"model": "m", "choices": [{"index": 0, "delta": {"reasoning": "b"}}]}),
    (6, {"model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}),
    (7, {"model": "m", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}),
]


@pytest.mark.parametrize("form", [lambda chunk: chunk, objects], ids=["dicts", "objects"])
def test_chunks_like_openais_are_read(form: Callable[[Any], Any]) -> None:
    """A stream that speaks OpenAI's language is read like one, whatever its classes."""
    stream, _, seen = foreign("sync", "generator", [(at_s, form(chunk)) for at_s, chunk in OPENAI_LIKE])

    list(stream)

    record = seen.record
    assert (record.outcome, record.finish_reasons, record.response_model) == ("completed", ("length",), "m")
    assert (record.content_chunks, record.max_gap_s, record.tail_s) == (2, 3.0, 1.0)
    assert (record.input_tokens, record.output_tokens) == (5, 2)


@pytest.mark.parametrize(
    ("chunk", "content"),
    [
        ("a", True), ("", False), (b"a", True), (b"", False), (None, False), (["a"], True), ([], False), ((), False),
        ({}, False), ({"anything": 1}, True), (0, True), pytest.param(object(), True, id="object-True"),
        (SimpleNamespace(type="AIMessageChunk"), True), (SimpleNamespace(type="ping"), False),
        ({"type": "keepalive"}, False), ({"type": "response.created"}, False),
        ({"type": "response.output_text.delta", "delta": "a"}, True), ({"choices": []}, False),
    ],
    ids=repr,
)  # fmt: skip
def test_what_counts_as_output(chunk: Any, content: bool) -> None:
    """Of a chunk that is nobody's, only this is known: something in it is output, nothing in it is not."""
    stream, _, seen = foreign("sync", "generator", [(1, chunk)])

    assert list(stream) == [chunk]
    assert seen.record.content_chunks == int(content)


class Awkward:
    """A chunk that cannot be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_chunk_that_cannot_be_read_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in reading is ours; the chunk and all that follow are the caller's."""
    from midstream._support import internal_errors

    monkeypatch.setattr(internal_errors, "RAISE", False)
    chunk = Awkward()
    stream, _, seen = foreign("sync", "generator", [(1, chunk), (2, "a")])

    assert list(stream) == [chunk, "a"]
    assert (seen.record.chunks, seen.record.content_chunks) == (2, 1)


def test_exact_generators_are_not_required() -> None:
    """The stand-in of a generator passes for one where the language itself looks."""
    stream, bare, _ = foreign("sync", "generator")

    assert isinstance(stream, types.GeneratorType)
    assert stream.gi_frame is bare.gi_frame
