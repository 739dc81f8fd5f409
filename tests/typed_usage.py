"""How the public functions look to a type checker. Never run: mypy checks it with all the rest, pyright passes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from openai import AsyncOpenAI, OpenAI, Stream
from openai.types.chat import ChatCompletionChunk
from typing_extensions import assert_type

from midstream import Freeze, StreamRecord, instrument, monitor, uninstrument


def on_freeze(freeze: Freeze) -> None:
    """A hook."""


def on_end(record: StreamRecord) -> None:
    """A hook."""


# Clients and streams keep their types.
client = assert_type(monitor(OpenAI()), OpenAI)
async_client = assert_type(monitor(AsyncOpenAI(), freeze_after_s=None, on_freeze=on_freeze), AsyncOpenAI)
stream = client.chat.completions.create(model="m", messages=[], stream=True)
assert_type(monitor(stream), Stream[ChatCompletionChunk])


# Functions keep their parameters and results, with and without settings.
@monitor
def ask(question: str, *, limit: int = 10) -> Iterator[str]:
    """A generator."""
    yield question * limit


assert_type(ask("why", limit=3), Iterator[str])


@monitor(freeze_after_s=10, attributes={"team": "search"}, on_end=on_end)
async def ask_async(question: str) -> AsyncIterator[str]:
    """An async generator."""
    yield question


assert_type(ask_async("why"), AsyncIterator[str])


@monitor
async def answer(question: str) -> str:
    """A coroutine function."""
    return question


@monitor()
def make() -> OpenAI:
    """A factory."""
    return OpenAI()


assert_type(make(), OpenAI)


class Service:
    """Methods too."""

    @monitor
    def method(self, question: str) -> Iterator[str]:
        """A method."""
        yield question

    @monitor(include_usage=True)
    @classmethod
    def of_class(cls, question: str) -> str:
        """A class method."""
        return question

    @staticmethod
    @monitor
    def static(question: str) -> str:
        """A static method."""
        return question


assert_type(Service().method("why"), Iterator[str])
assert_type(Service.of_class("why"), str)
assert_type(Service.static("why"), str)


async def use() -> None:
    """What comes back can be used as before."""
    assert_type(await answer("why"), str)
    async for chunk in monitor(ask_async("why")):
        assert_type(chunk, str)
    for number in monitor([1, 2]):
        assert_type(number, int)


instrument(freeze_after_s=3, on_freeze=on_freeze, on_thaw=on_freeze, on_end=on_end, attributes={})
uninstrument()
