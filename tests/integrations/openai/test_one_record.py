"""A stream is known by its HTTP response, which cannot be replaced: one record, whoever else stands around it."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from midstream.testing import DONE, ManualClock, collect, finish, scripted, scripted_async, text
from support.harness import ASK, settled

KINDS = ["sync", "async"]
FRAMES = [(0.1, text("a")), (0.9, text("b")), (1.0, finish()), (1.0, DONE)]


def client_of(kind: str, clock: ManualClock) -> Any:
    if kind == "sync":
        return OpenAI(api_key="none", max_retries=0, http_client=scripted(FRAMES, clock))
    return AsyncOpenAI(api_key="none", max_retries=0, http_client=scripted_async(FRAMES, clock))


def generator_inside(stream: Any) -> Any:
    """What Sentry and Langfuse do: a generator of theirs in front of the iterator."""
    inner = stream._iterator

    def passed_on() -> Any:
        yield from inner

    async def passed_on_async() -> Any:
        async for one in inner:
            yield one

    stream._iterator = passed_on_async() if hasattr(stream, "__aiter__") else passed_on()
    return stream


class Passing:
    """The same as a class, which is an iterator and no generator."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return next(self.inner)

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return await self.inner.__anext__()


def iterator_inside(stream: Any) -> Any:
    stream._iterator = Passing(stream._iterator)
    return stream


async def read(stream: Any) -> int:
    if hasattr(stream, "__aiter__"):
        return len([one async for one in stream])
    return len(list(stream))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "wrap", [generator_inside, iterator_inside, lambda stream: generator_inside(generator_inside(stream))]
)
@pytest.mark.parametrize(
    "who",
    [
        "a function around an unmonitored client",
        "a function around a monitored client",
        "the client, and then its stream",
        "the stream, twice",
    ],
)
def test_stream_with_an_iterator_of_somebody_else_is_recorded_once(who: str, wrap: Any, kind: str) -> None:
    """Whichever of them came first."""
    clock = ManualClock()
    client = client_of(kind, clock)
    seen = collect(clock=clock)
    if ("monitored client" in who and "un" not in who) or who.startswith("the client"):
        seen.monitor(client)

    async def opened() -> Any:
        return wrap(await settled(client.chat.completions.create(**ASK, stream=True)))

    def opened_sync() -> Any:
        return wrap(client.chat.completions.create(**ASK, stream=True))

    async def use() -> int:
        if who.startswith("a function"):
            return await read(await settled(seen.monitor(opened if kind == "async" else opened_sync)()))
        stream = await settled(client.chat.completions.create(**ASK, stream=True))
        if who.startswith("the stream"):
            seen.monitor(stream)
        return await read(seen.monitor(wrap(stream)))

    assert asyncio.run(use()) == 3
    record = seen.record
    assert (record.outcome.value, record.chunks) == ("completed", 3)
    assert record.max_gap_s == pytest.approx(0.8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["with", "close", "response", "helper"])
def test_stream_whose_body_was_read_by_a_hook_ends_when_it_is_closed(way: str, kind: str) -> None:
    """The bytes are closed already then, and are not closed again."""
    clock = ManualClock()
    http = scripted(FRAMES, clock) if kind == "sync" else scripted_async(FRAMES, clock)

    async def aread(response: Any) -> None:
        await response.aread()

    http.event_hooks = {"response": [aread if kind == "async" else (lambda response: response.read())]}
    client: Any = (OpenAI if kind == "sync" else AsyncOpenAI)(api_key="none", max_retries=0, http_client=http)
    seen = collect(client, clock=clock)

    async def use() -> Any:
        if way == "helper":
            chat = (
                client.chat.completions
                if hasattr(client.chat.completions, "stream")
                else client.beta.chat.completions
            )
            manager = chat.stream(**ASK)
            if kind == "async":
                async with manager as events:
                    await events.__anext__()
            else:
                with manager as events:
                    next(events)
            return manager
        stream = await settled(client.chat.completions.create(**ASK, stream=True))
        await (stream.__anext__() if kind == "async" else settled(next(stream)))
        if way == "with":
            if kind == "async":
                async with stream:
                    pass
            else:
                with stream:
                    pass
        elif way == "close":
            await settled(stream.close())
        else:
            await settled(stream.response.aclose() if kind == "async" else stream.response.close())
        return stream

    kept = asyncio.run(use())
    assert kept is not None
    assert (len(seen.records), len(seen.streams())) == (1, 0)
    assert seen.record.outcome == "left_early"


@pytest.mark.parametrize("kind", KINDS)
def test_response_that_was_read_can_be_pickled_and_copied_as_without_us(kind: str) -> None:
    """What notices the close stays behind."""
    clock = ManualClock()
    http = scripted(FRAMES, clock) if kind == "sync" else scripted_async(FRAMES, clock)

    async def aread(response: Any) -> None:
        await response.aread()

    http.event_hooks = {"response": [aread if kind == "async" else (lambda response: response.read())]}
    client: Any = (OpenAI if kind == "sync" else AsyncOpenAI)(api_key="none", max_retries=0, http_client=http)
    collect(client, clock=clock)

    async def use() -> Any:
        return (await settled(client.chat.completions.create(**ASK, stream=True))).response

    response = asyncio.run(use())
    pickled = pickle.loads(pickle.dumps(response))  # noqa: S301 - our own
    assert pickled.text == copy.copy(response).text == response.text
    gc.collect()
