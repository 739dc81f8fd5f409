"""`@monitor` on functions: what they return or yield is followed once, and they stay what they are to whoever looks."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import pickle
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI, AsyncStream, OpenAI, Stream
from pydantic import BaseModel

import midstream
from midstream._support import internal_errors
from midstream.testing import (
    DONE,
    ManualClock,
    Script,
    collect,
    finish,
    scripted,
    scripted_async,
    text,
)
from support.harness import ASK, Answer, both, settled

ANSWER: Script = [(1, text("a")), (2, text("b")), (10, text("c")), (10, finish()), (10, DONE)]
KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


def unmonitored(kind: str, clock: ManualClock) -> Any:
    """A client that was never given to `monitor()`."""
    if kind == "sync":
        return OpenAI(api_key="none", http_client=scripted(ANSWER, clock))
    return AsyncOpenAI(api_key="none", http_client=scripted_async(ANSWER, clock))


def ask(client: Any) -> Any:
    return client.chat.completions.create(**ASK, stream=True)


async def words(stream: Any) -> list[str]:
    return [
        chunk if isinstance(chunk, str) else chunk.choices[0].delta.content or ""
        async for chunk in Answer(stream)
    ]


def sync_forms(client: Any) -> dict[str, Callable[[], Any]]:
    """Every way to write a function around a stream of a sync client."""

    def returns_the_stream() -> Any:
        return ask(client)

    def yields_text() -> Iterator[str]:
        for chunk in ask(client):
            yield chunk.choices[0].delta.content or ""

    def returns_a_generator() -> Iterator[str]:
        stream = ask(client)
        return (chunk.choices[0].delta.content or "" for chunk in stream)

    def returns_the_text() -> list[str]:
        return [chunk.choices[0].delta.content or "" for chunk in ask(client)]

    def returns_a_raw_response() -> Any:
        return client.chat.completions.with_raw_response.create(**ASK, stream=True)

    @contextmanager
    def hands_it_over() -> Iterator[Any]:
        with ask(client) as stream:
            yield stream

    return dict(locals())


def async_forms(client: Any) -> dict[str, Callable[[], Any]]:
    """The same around an async client."""

    async def returns_the_stream() -> Any:
        return await ask(client)

    def returns_an_awaitable() -> Any:
        return ask(client)

    async def yields_text() -> AsyncIterator[str]:
        async for chunk in await ask(client):
            yield chunk.choices[0].delta.content or ""

    async def returns_a_generator() -> AsyncIterator[str]:
        stream = await ask(client)
        return (chunk.choices[0].delta.content or "" async for chunk in stream)

    async def returns_the_text() -> list[str]:
        return [chunk.choices[0].delta.content or "" async for chunk in await ask(client)]

    async def returns_a_raw_response() -> Any:
        return await client.chat.completions.with_raw_response.create(**ASK, stream=True)

    @asynccontextmanager
    async def hands_it_over() -> AsyncIterator[Any]:
        async with await ask(client) as stream:
            yield stream

    return dict(locals())


async def read(result: Any) -> list[str]:
    """The words of whatever a function came up with."""
    result = await settled(result)
    if isinstance(result, list):
        return result
    if hasattr(result, "parse"):
        return await words(await settled(result.parse()))
    if not hasattr(result, "__iter__") and not hasattr(result, "__aiter__"):
        async with both(result) as stream:
            return await words(stream)
    return await words(result)


FORMS = [("sync", name) for name in sync_forms(None) if name != "client"] + [
    ("async", name) for name in async_forms(None) if name != "client"
]


def form(kind: str, name: str, client: Any) -> Callable[[], Any]:
    return (sync_forms if kind == "sync" else async_forms)(client)[name]


@pytest.mark.parametrize(("kind", "name"), FORMS)
def test_stream_inside_a_function_leaves_one_record(kind: str, name: str) -> None:
    """Whatever becomes of the stream on its way out, it is followed where it is born: once, with all that is known."""
    clock = ManualClock()
    seen = collect(clock=clock)
    function = seen.monitor(form(kind, name, unmonitored(kind, clock)))

    assert asyncio.run(read(function())) == ["a", "b", "c", ""]

    record = seen.record
    assert (record.operation, record.request_model, record.server_address) == ("chat", "m", "api.openai.com")
    assert (record.max_gap_s, record.freezes, record.outcome) == (8.0, 1, "completed")
    assert record.time_to_first_content_s == 1.0
    assert len(seen.freezes) == 1
    assert seen.streams() == ()


@pytest.mark.parametrize(("kind", "name"), FORMS)
def test_clients_own_monitor_wins_over_the_functions(kind: str, name: str) -> None:
    """A monitored client in a monitored function gives one record, and it goes where the client's records go."""
    clock = ManualClock()
    client = unmonitored(kind, clock)
    of_client = collect(client, clock=clock)
    of_function = collect(clock=clock)
    function = of_function.monitor(form(kind, name, client))

    assert asyncio.run(read(function())) == ["a", "b", "c", ""]

    assert of_client.record.max_gap_s == 8.0
    assert (of_function.records, of_function.freezes, of_function.streams()) == ([], [], ())


@pytest.mark.parametrize(("kind", "name"), FORMS)
def test_function_stays_what_it_is(kind: str, name: str) -> None:
    """Its name, its signature and its kind are what they were, for `inspect` and for whoever calls it."""
    bare = form(kind, name, unmonitored(kind, ManualClock()))
    function = collect(clock=ManualClock()).monitor(bare)

    for kind_of in (
        inspect.isfunction,
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
    ):
        assert kind_of(function) == kind_of(bare)
    assert inspect.signature(function) == inspect.signature(bare)
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__"):
        assert getattr(function, attribute) == getattr(bare, attribute)


@pytest.mark.parametrize("kind", ["sync", "async", "async factory"])
def test_factory_of_clients(kind: str) -> None:
    """What a factory returns is the client itself, monitored, however often it is made."""
    clock = ManualClock()
    seen = collect(clock=clock)
    made = [unmonitored(kind.split(maxsplit=1)[0], clock) for _ in range(2)]

    async def slowly() -> Any:
        return made.pop(0)

    factory = seen.monitor(slowly if kind == "async factory" else lambda: made.pop(0))
    expected = list(made)

    async def use() -> list[Any]:
        clients = [await settled(factory()) for _ in range(2)]
        for client in clients:
            await words(await settled(ask(client)))
        return clients

    assert all(client is own for client, own in zip(asyncio.run(use()), expected, strict=True))
    assert [record.max_gap_s for record in seen.records] == [8.0, 8.0]


@KINDS
def test_stream_that_existed_before_is_followed_from_now_on(kind: str) -> None:
    """The stream of a client that nobody monitors stays the SDK's own object, and its request says what it is."""
    clock = ManualClock()
    seen = collect(clock=clock)

    async def use() -> list[str]:
        stream = await settled(
            unmonitored(kind, clock).chat.completions.create(**ASK, stream=True, max_tokens=9)
        )
        clock.advance(0.5)
        assert seen.monitor(stream) is stream
        assert seen.monitor(stream) is stream
        assert type(stream) is (Stream if kind == "sync" else AsyncStream)
        return await words(stream)

    assert asyncio.run(use()) == ["a", "b", "c", ""]
    record = seen.record
    assert (record.operation, record.request_model, record.token_limit) == ("chat", "m", 9)
    assert (record.server_address, record.server_port, record.provider) == ("api.openai.com", 443, "openai")
    assert (record.max_gap_s, record.outcome, record.time_to_first_content_s) == (8.0, "completed", None)


@KINDS
def test_stream_made_in_a_function_can_be_left_early(kind: str) -> None:
    """The stream that a function returned ends like any other."""
    clock = ManualClock()
    seen = collect(clock=clock)

    async def use() -> None:
        async with Answer(await settled(seen.monitor(ask)(unmonitored(kind, clock)))) as stream:
            await stream.__anext__()

    asyncio.run(use())
    assert (seen.record.outcome, seen.record.chunks) == ("left_early", 1)


@KINDS
def test_functions_inside_one_another_count_once(kind: str) -> None:
    """Each layer of an application may be monitored: there is one record, by the innermost function's settings."""
    clock = ManualClock()
    outer, inner = collect(clock=clock), collect(clock=clock)
    tell = inner.monitor(form(kind, "yields_text", unmonitored(kind, clock)))

    @outer.monitor
    def around() -> Iterator[str]:
        yield "so: "
        yield from tell()

    @outer.monitor
    async def around_async() -> AsyncIterator[str]:
        yield "so: "
        async for word in tell():
            yield word

    assert asyncio.run(words((around if kind == "sync" else around_async)())) == ["so: ", "a", "b", "c", ""]
    assert inner.record.max_gap_s == 8.0
    assert (outer.records, outer.freezes) == ([], [])


@KINDS
def test_answers_without_a_model_inside_are_timed_as_they_are(kind: str) -> None:
    """A function that yields text of its own is a stream of which nothing but the timing is known."""
    clock = ManualClock()
    seen = collect(clock=clock, attributes={"team": "search"})

    @seen.monitor
    def count() -> Iterator[str]:
        for pause_s in (1, 0, 6, 2):
            clock.advance(pause_s)
            yield "" if pause_s == 0 else "x"

    @seen.monitor
    async def count_async() -> AsyncIterator[str]:
        for chunk in count.__wrapped__():
            yield chunk

    asyncio.run(words((count if kind == "sync" else count_async)()))
    record = seen.record
    assert (record.operation, record.provider, record.request_model, record.server_address) == (
        "other",
        "",
        "",
        "",
    )
    assert (record.outcome, record.finish_reasons) == ("no_finish", ())
    assert (record.chunks, record.content_chunks, record.max_gap_s, record.freezes) == (4, 3, 6.0, 1)
    assert (record.time_to_first_content_s, record.duration_s) == (1.0, 9.0)
    assert record.attributes == {"team": "search"}


@pytest.mark.parametrize(
    "result",
    [None, 7, "text", b"bytes", ["a", "b"], {"a": 1}, ("a",), range(3), pytest.param(object(), id="object")],
    ids=repr,
)
def test_results_that_are_no_streams_are_handed_on(result: Any) -> None:
    """What a function returns is touched only if it streams."""
    seen = collect(clock=ManualClock())

    @seen.monitor
    def give() -> Any:
        return result

    @seen.monitor
    async def give_async() -> Any:
        return result

    assert give() is result
    assert asyncio.run(give_async()) is result
    assert seen.records == []


def test_methods_of_every_kind() -> None:
    """Methods, class methods and static methods are monitored, whichever of the decorators comes first."""
    seen = collect(clock=ManualClock())

    class Service:
        def __init__(self) -> None:
            self.word = "own"

        @seen.monitor
        def method(self, more: str = "") -> Iterator[str]:
            yield self.word + more

        @classmethod
        @seen.monitor
        def of_class(cls) -> Iterator[str]:
            yield cls.__name__

        @seen.monitor
        @classmethod
        def of_class_too(cls) -> Iterator[str]:
            yield cls.__name__

        @staticmethod
        @seen.monitor
        def static() -> Iterator[str]:
            yield "static"

        @seen.monitor
        @staticmethod
        def static_too() -> Iterator[str]:
            yield "static"

        @seen.monitor
        def __call__(self) -> Iterator[str]:
            yield "called"

    service = Service()
    assert list(service.method("!")) == ["own!"]
    assert list(Service.method(service)) == ["own"]
    assert [list(service.of_class()), list(Service.of_class_too())] == [["Service"], ["Service"]]
    assert [list(Service.static()), list(service.static_too())] == [["static"], ["static"]]
    assert list(service()) == ["called"]
    assert str(inspect.signature(service.method)) == "(more: 'str' = '') -> 'Iterator[str]'"
    assert inspect.ismethod(service.method)
    assert len(seen.records) == 7


@midstream.monitor
def at_module_level(text: str) -> Iterator[str]:
    """Says it twice."""
    yield text
    yield text


class Speaker:
    """Something to pickle."""

    @midstream.monitor(freeze_after_s=9)
    def speak(self) -> Iterator[str]:
        """Says hello."""
        yield "hello"


def test_functions_are_pickled_by_name_and_copied_by_reference() -> None:
    """A process pool, or a framework that copies its tools, takes a monitored function like any other."""
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level  # noqa: S301 - our own
    assert copy.copy(at_module_level) is copy.deepcopy(at_module_level) is at_module_level
    assert list(pickle.loads(pickle.dumps(Speaker().speak))()) == ["hello"]  # noqa: S301


def test_call_that_does_not_fit_fails_at_once() -> None:
    """A generator function with the wrong arguments raises where it is called, and not at the first step."""
    with pytest.raises(TypeError, match="text"):
        at_module_level()  # type: ignore[call-arg]


@KINDS
def test_exceptions_of_the_function_are_its_own(kind: str) -> None:
    """What the function raises reaches the caller as it is; nothing was streamed, so there is no record."""
    seen = collect(clock=ManualClock())
    boom = RuntimeError("boom")

    @seen.monitor
    def fail() -> None:
        raise boom

    @seen.monitor
    async def fail_async() -> None:
        raise boom

    async def use() -> None:
        await settled((fail if kind == "sync" else fail_async)())

    with pytest.raises(RuntimeError) as caught:
        asyncio.run(use())
    assert caught.value is boom
    assert seen.records == []


def test_coroutine_that_nobody_awaits_warns_once() -> None:
    """Python's own warning names the function, and comes once."""

    async def forgotten() -> None: ...

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        collect(clock=ManualClock()).monitor(forgotten)()
        gc.collect()

    assert [str(w.message).split(" was ")[0] for w in said] == [f"coroutine '{forgotten.__qualname__}'"]


@KINDS
def test_time_of_a_coroutine_begins_when_it_is_awaited(kind: str) -> None:
    """A coroutine may lie about for a while; a plain call begins at once."""
    clock = ManualClock()
    seen = collect(clock=clock)
    function = seen.monitor(ask)

    async def use() -> None:
        pending = function(unmonitored(kind, clock))
        clock.advance(3)
        await words(await settled(pending))

    asyncio.run(use())
    assert seen.record.time_to_first_content_s == {"sync": 3.0, "async": 1.0}[kind]


def test_failure_of_ours_leaves_the_result_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """In production a fault of the monitor is one warning; the function's stream is handed on."""
    seen = collect(clock=ManualClock())
    monkeypatch.setattr(internal_errors, "RAISE", False)
    monkeypatch.setattr(seen.process, "wall", None)  # whatever is broken inside us

    assert list(seen.monitor(lambda: iter("ab"))()) == ["a", "b"]
    assert seen.records == []


INSTEAD = "pass the stream that it opens, or put @monitor above the function that reads it"


class Session:
    """An HTTP client of an SDK, as it could be: it can be entered, and is no stream."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def get(self, url: str) -> str:
        return url


class Settings(BaseModel):
    """A data model: iterating over it gives its fields."""

    name: str = "x"


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (7, "int"),
        (None, "NoneType"),
        ("text", "str"),
        (b"bytes", "bytes"),
        ({"a": 1}, "dict"),
        (object(), "object"),
        (OpenAI, "the class openai.OpenAI: pass an instance"),
        (midstream, "module"),
        (Settings(), f"{__name__}.Settings"),
        (Session(), f"{__name__}.Session: {INSTEAD}"),
        (threading.Lock(), f"_thread.lock: {INSTEAD}"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else type(value).__name__,
)
def test_what_cannot_be_monitored_is_refused_by_name(thing: Any, name: str) -> None:
    """The mistake is named at once, with what would have been right; a client that is not supported is no exception."""
    with pytest.raises(TypeError) as caught:
        midstream.monitor(thing)
    assert str(caught.value) == (
        "monitor() takes an OpenAI or AsyncOpenAI client (or one of a subclass), a client or session of httpx, "
        "aiohttp or requests, a function, a stream (anything that can be iterated over), or a context manager that "
        f"opens one, got {name}"
    )


@pytest.mark.parametrize("provider", [3, "http://collector:4318", object(), type])
@pytest.mark.parametrize("disabled", ["0", "1"])
def test_meter_provider_that_is_none_is_refused(
    provider: Any, disabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics that go nowhere would be noticed weeks later."""
    monkeypatch.setenv("MIDSTREAM_DISABLED", disabled)

    with pytest.raises(TypeError, match="meter_provider must be an OpenTelemetry MeterProvider or None"):
        midstream.monitor(lambda: None, meter_provider=provider)
    with pytest.raises(TypeError, match="meter_provider must be an OpenTelemetry MeterProvider or None"):
        midstream.instrument(meter_provider=provider)


def test_settings_are_checked_where_the_decorator_stands() -> None:
    """A bad setting raises when the module is imported, not when the function is called."""
    with pytest.raises(ValueError, match=r"freeze_after_s must be a positive number of seconds, got -1"):
        midstream.monitor(freeze_after_s=-1)


def test_disabled_leaves_everything_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `MIDSTREAM_DISABLED=1` functions, streams and clients come back untouched, and mistakes are still told."""
    monkeypatch.setenv("MIDSTREAM_DISABLED", "1")
    client = unmonitored("sync", ManualClock())
    stream = iter("ab")

    for thing in (client, stream, ask):
        assert midstream.monitor(thing) is thing
        assert midstream.monitor(freeze_after_s=9)(thing) is thing
    with pytest.raises(TypeError):
        midstream.monitor(7)
