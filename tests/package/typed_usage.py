"""How all that is public looks to type checkers. Never run: `make lint` has mypy and pyright check it strictly."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from typing import Any, Literal

from openai import AsyncAzureOpenAI, AsyncOpenAI, AsyncStream, AzureOpenAI, OpenAI, Stream
from openai.types.chat import ChatCompletionChunk
from opentelemetry.sdk.metrics import MeterProvider
from typing_extensions import assert_type

from midstream import (
    Freeze,
    FreezeSpan,
    OpenStream,
    Outcome,
    StreamRecord,
    StreamStalled,
    instrument,
    monitor,
    setup,
    streams,
    uninstrument,
)
from midstream.instrumentor import MidstreamInstrumentor
from midstream.journal import Journal, JournalContents, JournalError, flush, read, read_records
from midstream.testing import (
    CUT,
    DONE,
    PING,
    SILENCE,
    Collected,
    ManualClock,
    Script,
    chunk,
    collect,
    finish,
    frame,
    http_library,
    role,
    scripted,
    scripted_async,
    text,
    usage,
)


def on_freeze(freeze: Freeze) -> None:
    """A hook."""
    assert_type(freeze.gap_s, float)
    assert_type(freeze.at_s, float | None)
    assert_type(freeze.started_at + freeze.freeze_after_s, float)
    assert_type(freeze.phase, Literal["text", "reasoning", "tool_call"])
    assert_type(freeze.request_model, str)
    assert_type(freeze.response_model, str | None)
    assert_type(freeze.server_port, int | None)
    assert_type(freeze.attributes, Mapping[str, str])
    assert_type((freeze.hidden, freeze.shared), tuple[bool, bool])
    assert_type(freeze.suspected, Literal["unknown", "stall", "withheld"])
    assert_type((freeze.trace_id, freeze.span_id), tuple[str | None, str | None])


def on_end(record: StreamRecord) -> None:
    """A hook."""
    assert_type(record.outcome, Outcome)
    assert_type(record.outcome is Outcome.COMPLETED, bool)
    assert_type(record.max_gap_s, float | None)
    assert_type(record.finish_reasons, tuple[str | None, ...])
    assert_type(record.freeze_spans, tuple[FreezeSpan, ...])
    assert_type([span.at_s + span.length_s for span in record.freeze_spans if span.open], list[float])
    assert_type(
        (record.duration_s, record.waited_s, record.held_s, record.frozen_s),
        tuple[float, float, float, float],
    )
    assert_type(record.time_to_first_content_s, float | None)
    assert_type((record.wire_gap_s, record.tail_s), tuple[float | None, float | None])
    assert_type((record.chunks, record.content_chunks, record.freezes), tuple[int, int, int])
    assert_type((record.input_tokens, record.output_tokens), tuple[int | None, int | None])
    assert_type((record.token_limit, record.retries), tuple[int | None, int | None])
    assert_type((record.limit_hit, record.buffered, record.max_gap_open), tuple[bool, bool, bool])
    assert_type(record.max_gap_phase, Literal["text", "reasoning", "tool_call"] | None)


# Clients and streams keep their types.
client = assert_type(monitor(OpenAI()), OpenAI)
async_client = assert_type(monitor(AsyncOpenAI(), freeze_after_s=None, on_freeze=on_freeze), AsyncOpenAI)
stream = client.chat.completions.create(model="m", messages=[], stream=True)
assert_type(monitor(stream), Stream[ChatCompletionChunk])
assert_type(monitor(AzureOpenAI()), AzureOpenAI)
assert_type(monitor(AsyncAzureOpenAI(), attributes={"team": "search"}), AsyncAzureOpenAI)
assert_type(client.with_options(timeout=3), OpenAI)


def of_any_make(
    iterator: Iterator[bytes],
    async_iterator: AsyncIterator[bytes],
    generator: Generator[str, int, bool],
    async_generator: AsyncGenerator[str, int],
) -> None:
    """Iterators and generators keep what they yield, are sent and return."""
    assert_type(monitor(iterator), Iterator[bytes])
    assert_type(monitor(async_iterator, freeze_after_s=3), AsyncIterator[bytes])
    assert_type(monitor(generator), Generator[str, int, bool])
    assert_type(monitor(async_generator), AsyncGenerator[str, int])


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


@monitor(freeze_after_s=None)
async def open_stream(model: str, /, *, asks: int = 1) -> AsyncStream[ChatCompletionChunk]:
    """A coroutine function that opens a stream."""
    return await async_client.chat.completions.create(model=model, messages=[], n=asks, stream=True)


@monitor
async def generate(question: str) -> AsyncGenerator[str, int]:
    """An async generator function that is sent things."""
    sent = yield question
    yield question * sent


assert_type(generate("why"), AsyncGenerator[str, int])


@monitor()
def make() -> OpenAI:
    """A factory."""
    return OpenAI()


assert_type(make(), OpenAI)

# What they take and give as a whole, as whoever passes them on needs it.
asks: Callable[[str], Iterator[str]] = ask
asks_async: Callable[[str], AsyncIterator[str]] = ask_async
opens: Callable[[str], Coroutine[Any, Any, AsyncStream[ChatCompletionChunk]]] = open_stream
makes: Callable[[], OpenAI] = monitor(make)
decorate = monitor(freeze_after_s=10)
assert_type(decorate(make)(), OpenAI)
assert_type(decorate(OpenAI()), OpenAI)


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
    opened = assert_type(await open_stream("m", asks=2), AsyncStream[ChatCompletionChunk])
    async with opened as entered:
        async for piece in entered:
            assert_type(piece, ChatCompletionChunk)
    async for word in monitor(ask_async("why")):
        assert_type(word, str)
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
    stall_timeout_s=60,
    first_content_timeout_s=30,
    meter_provider=MeterProvider(),
)
instrument(stall_timeout_s={"text": 30, "reasoning": 300}, first_content_timeout_s=60)
try:
    pass
except StreamStalled as stalled:
    assert_type((stalled.gap_s, stalled.content_chunks), tuple[float, int])
instrument(freeze_after_s=3, on_freeze=on_freeze, on_thaw=on_freeze, on_end=on_end, attributes={})
uninstrument()
MidstreamInstrumentor().instrument(freeze_after_s=3)
MidstreamInstrumentor().uninstrument()

# What is open now, where metrics go, and what was.
assert_type(streams(), tuple[OpenStream, ...])
for one in streams():
    assert_type(
        (one.open_gap_s, one.frozen, one.state), tuple[float, bool, Literal["waiting", "holding", "frozen"]]
    )
    assert_type(
        (one.age_s, one.since_chunk_s, one.since_content_s), tuple[float | None, float | None, float | None]
    )
with setup(
    prometheus=0,
    otlp=False,
    host="127.0.0.1",
    service_name="shop",
    export_interval_s=5,
    shutdown_timeout_s=1,
    allow_hosts=["app.internal"],
) as metrics:
    assert_type(metrics.prometheus_url, str | None)
    assert_type(metrics.flush(1.0), bool)
try:
    assert_type(read("streams.db", since=0.0), JournalContents)
    assert_type(read_records("streams.db"), list[StreamRecord])
except JournalError:
    assert_type(flush(), bool)
contents = read("streams.db", until=1.0)
assert_type((contents.records, contents.skipped, contents.dropped), tuple[list[StreamRecord], int, int])
keep = Journal("streams.db", max_mb=None, max_days=7)
assert_type((keep.flush(), keep.close(), keep.dropped), tuple[bool, bool, int])

# Tests of one's own.
clock = ManualClock()
script: Script = [
    (0.05, role()),
    (0.1, text("a")),
    (0.2, PING),
    (0.3, chunk({"reasoning": "b"}, index=1)),
    (0.4, frame({"type": "ping"})),
    (9, finish("length")),
    (9, usage(3, 4)),
    (9, DONE),
]
cut: Script = [(1, CUT), (2, SILENCE), (3, RuntimeError())]
clock.advance(1.0)
assert_type(clock(), float)
http_library().Client(timeout=3)
seen = assert_type(collect(OpenAI(http_client=scripted(script, clock)), clock=clock), Collected)
collect(AsyncOpenAI(http_client=scripted_async(script, clock)), clock=clock, freeze_after_s=1.0)
assert_type(seen.record, StreamRecord)
assert_type(seen.freezes, list[Freeze])
assert_type(seen.streams(), tuple[OpenStream, ...])
seen.flush()
