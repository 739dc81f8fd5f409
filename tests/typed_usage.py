"""How all that is public looks to type checkers. Never run: `make lint` has mypy and pyright check it strictly."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from openai import AsyncOpenAI, OpenAI, Stream
from openai.types.chat import ChatCompletionChunk
from opentelemetry.sdk.metrics import MeterProvider
from typing_extensions import assert_type

from midstream import (
    Freeze,
    FreezeSpan,
    OpenStream,
    Outcome,
    StreamRecord,
    instrument,
    monitor,
    setup,
    streams,
    uninstrument,
)
from midstream.journal import Journal, JournalContents, JournalError, flush, read, read_records
from midstream.testing import Collected, ManualClock, Script, collect, finish, scripted, scripted_async, text


def on_freeze(freeze: Freeze) -> None:
    """A hook."""
    assert_type(freeze.gap_s, float)
    assert_type(freeze.at_s, float | None)


def on_end(record: StreamRecord) -> None:
    """A hook."""
    assert_type(record.outcome, Outcome)
    assert_type(record.outcome is Outcome.COMPLETED, bool)
    assert_type(record.max_gap_s, float | None)
    assert_type(record.finish_reasons, tuple[str | None, ...])
    assert_type(record.spans, tuple[FreezeSpan, ...])


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


# Settings are the same wherever they are given.
monitor(
    OpenAI(),
    freeze_after_s=10,
    on_freeze=on_freeze,
    on_thaw=on_freeze,
    on_end=on_end,
    attributes={"team": "search"},
    journal="streams.db",
    include_usage=True,
    meter_provider=MeterProvider(),
)
instrument(freeze_after_s=3, on_freeze=on_freeze, on_thaw=on_freeze, on_end=on_end, attributes={})
uninstrument()

# What is open now, where metrics go, and what was.
assert_type(streams(), tuple[OpenStream, ...])
with setup(prometheus=0, otlp=False, host="127.0.0.1", service_name="shop", export_interval_s=5) as metrics:
    assert_type(metrics.prometheus_url, str | None)
    assert_type(metrics.flush(1.0), bool)
try:
    assert_type(read("streams.db", since=0.0), JournalContents)
    assert_type(read_records("streams.db"), list[StreamRecord])
except JournalError:
    assert_type(flush(), bool)
keep = Journal("streams.db")

# Tests of one's own.
clock = ManualClock()
script: Script = [(0.1, text("a")), (9, finish())]
seen = assert_type(collect(OpenAI(http_client=scripted(script, clock)), clock=clock), Collected)
collect(AsyncOpenAI(http_client=scripted_async(script, clock)), clock=clock, freeze_after_s=1.0)
assert_type(seen.record, StreamRecord)
assert_type(seen.freezes, list[Freeze])
