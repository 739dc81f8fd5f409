"""We are guests: the caller's client, requests, streams, chunks and exceptions are as without us."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import sys
import threading
import weakref
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, AsyncStream, AzureOpenAI, OpenAI, Stream

from midstream.testing import (
    CUT,
    DONE,
    ManualClock,
    Script,
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
from support.harness import ASK, Answer, a_client, settled
from support.needs import needs_responses

ANSWER: Script = [(1, role()), (2, text("a")), (3, text("b")), (4, finish()), (4, DONE)]
KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


def plain(kind: str, script: Script, **options: Any) -> Any:
    """A client that nobody monitors."""
    if kind == "sync":
        return OpenAI(api_key="none", max_retries=0, http_client=scripted(script, ManualClock()), **options)
    return AsyncOpenAI(
        api_key="none", max_retries=0, http_client=scripted_async(script, ManualClock()), **options
    )


async def everything(client: Any) -> tuple[list[Any], str | None]:
    chunks: list[Any] = []
    try:
        async for chunk in Answer(await settled(client.chat.completions.create(**ASK, stream=True))):
            chunks.append(chunk)  # noqa: PERF401 - what came before an exception counts
    except Exception as exc:
        return chunks, f"{type(exc).__module__}.{type(exc).__qualname__}: {exc}"
    return chunks, None


@KINDS
@pytest.mark.parametrize(
    "script",
    [
        ANSWER,
        ANSWER[:3],
        [(1, frame({"error": "boom"}))],
        [(1, "data: x\n\n")],
        [(1, text("a")), (2, CUT)],
        [],
    ],
    ids=["whole", "cut short", "error event", "broken frame", "broken connection", "empty"],
)
def test_chunks_and_exceptions_are_the_same_as_without_us(kind: str, script: Script) -> None:
    """The caller sees the same chunks and the same exception, word for word."""
    expected = asyncio.run(everything(plain(kind, script)))

    assert asyncio.run(everything(a_client(kind, script, ManualClock()).sdk)) == expected


@KINDS
def test_stream_is_the_sdks_own(kind: str) -> None:
    """Its class, its attributes and its methods are those of the SDK; only its iterator is ours."""
    watched = a_client(kind, ANSWER, ManualClock())
    bare = plain(kind, ANSWER)

    async def both() -> tuple[Any, Any]:
        return (await watched.create()).raw, await settled(bare.chat.completions.create(**ASK, stream=True))

    ours, theirs = asyncio.run(both())
    assert type(ours) is type(theirs) is (Stream if kind == "sync" else AsyncStream)
    assert vars(ours).keys() == vars(theirs).keys()
    assert vars(ours.response).keys() == vars(theirs.response).keys()
    assert hasattr(ours, "aclose") == hasattr(theirs, "aclose")
    assert type(ours.response) is type(theirs.response)


@KINDS
def test_client_is_left_as_it_was(kind: str) -> None:
    """Nothing is stored on the client, and it can be copied, and not pickled, exactly as before."""
    bare = plain(kind, ANSWER)
    before = dict(vars(bare))

    collect(bare)

    assert vars(bare) == before
    assert type(bare) is (OpenAI if kind == "sync" else AsyncOpenAI)
    for fails in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            fails(bare)


@KINDS
def test_request_bytes_are_the_same_as_without_us(kind: str) -> None:
    """What goes over the wire is the same, header by header and byte by byte."""

    def sent(monitored: bool) -> tuple[bytes, list[tuple[str, str]]]:
        requests: list[Any] = []
        http = http_library()

        def answer(request: Any) -> Any:
            requests.append(request)
            return http.Response(200, headers={"content-type": "text/event-stream"}, content=DONE)

        transport = http.MockTransport(answer)
        if kind == "sync":
            client: Any = OpenAI(api_key="k", http_client=http.Client(transport=transport))
        else:
            client = AsyncOpenAI(api_key="k", http_client=http.AsyncClient(transport=transport))
        if monitored:
            collect(client)
        asyncio.run(everything(client))
        (request,) = requests
        headers = [item for item in request.headers.multi_items() if item[0] != "x-stainless-async-library"]
        return request.content, headers

    ours, ours_headers = sent(monitored=True)
    theirs, theirs_headers = sent(monitored=False)
    assert ours == theirs
    assert [h for h in ours_headers if "idempotency" not in h[0]] == [
        h for h in theirs_headers if "idempotency" not in h[0]
    ]


@KINDS
@pytest.mark.parametrize(
    "derive",
    [
        lambda client: client.with_options(timeout=7),
        lambda client: client.copy(max_retries=1),
        lambda client: client.with_options(timeout=7).copy().with_options(max_retries=0),
        copy.copy,
        lambda client: copy.copy(client.with_options(timeout=7)),
    ],
    ids=["with_options", "copy", "three times", "copy.copy", "copy.copy of with_options"],
)
def test_derived_clients_stay_monitored(kind: str, derive: Any) -> None:
    """A client made from a monitored one is monitored with the same settings."""
    client = a_client(kind, ANSWER, ManualClock())

    asyncio.run(everything(derive(client.sdk)))

    assert client.seen.record.outcome == "completed"


@KINDS
def test_clients_that_nobody_monitors_are_not_followed(kind: str) -> None:
    """Another client in the same process, even one that shares the HTTP client, leaves no record."""
    watched = a_client(kind, ANSWER, ManualClock())
    other = type(watched.sdk)(api_key="none", http_client=watched.sdk._client)

    asyncio.run(everything(other))

    assert watched.seen.records == []


@KINDS
def test_same_client_twice_is_monitored_once(kind: str) -> None:
    """The second call replaces the first: one record, with the newer settings."""
    client = a_client(kind, ANSWER, ManualClock())
    again = collect(client.sdk, attributes={"team": "search"})

    asyncio.run(everything(client.sdk))

    assert client.seen.records == []
    assert again.record.attributes == {"team": "search"}


def test_azure_client_is_monitored_and_named() -> None:
    """A subclass that overrides `copy` and `_build_request` passes the same points."""
    client = AzureOpenAI(
        api_key="none",
        api_version="2024-06-01",
        azure_endpoint="https://mine.openai.azure.com",
        http_client=scripted(ANSWER, ManualClock()),
    )
    seen = collect(client)

    list(client.with_options(timeout=3).chat.completions.create(**ASK, stream=True))

    record = seen.record
    assert (record.provider, record.server_address, record.server_port) == (
        "azure.ai.openai", "mine.openai.azure.com", 443,
    )  # fmt: skip
    assert (record.operation, record.request_model) == ("chat", "m")


def test_subclass_with_its_own_request_is_monitored_once() -> None:
    """A caller's class may wrap `request()` itself; the call still counts once, and from its beginning."""
    clock = ManualClock()

    class Mine(OpenAI):
        def request(self, *args: Any, **kwargs: Any) -> Any:
            clock.advance(3)
            return super().request(*args, **kwargs)

    client = Mine(api_key="none", http_client=scripted(ANSWER, clock))
    seen = collect(client, clock=clock)

    list(client.chat.completions.create(**ASK, stream=True))

    assert seen.record.time_to_first_chunk_s == 4.0


@KINDS
def test_iterators_of_a_stream_share_its_chunks(kind: str) -> None:
    """A temporary iterator that is dropped ends nothing, and each chunk is seen once."""
    client = a_client(kind, ANSWER, ManualClock())

    async def read() -> list[str]:
        stream = await client.create()
        seen = [await stream.__anext__()]
        async for chunk in stream:
            seen.append(chunk)
            break
        assert client.seen.records == []
        seen += [chunk async for chunk in stream]
        return [chunk.choices[0].delta.content or "" for chunk in seen]

    assert asyncio.run(read()) == ["", "a", "b", ""]
    assert client.seen.record.chunks == 4


@KINDS
def test_chunk_that_the_caller_has_let_go_is_kept_by_nobody(kind: str) -> None:
    """While the stream is open and the next chunk not yet there, no text of the last one is kept."""
    client = a_client(kind, ANSWER, ManualClock())

    async def read() -> list[bool]:
        stream = await client.create()
        gone = []
        for _ in range(4):
            chunk = weakref.ref(await stream.__anext__())
            gc.collect()
            gone.append(chunk() is None)
        await stream.close()
        return gone

    assert asyncio.run(read()) == [True, True, True, True]
    assert client.seen.record.chunks == 4


def test_event_loop_has_no_task_and_no_generator_of_ours() -> None:
    """A stream dropped half read, and one dropped unread: the loop closes what is the SDK's, and nothing else."""

    async def dropped(client: Any) -> tuple[list[str], list[list[str]]]:
        generators: list[str] = []
        tasks: list[list[str]] = []
        loops_own: Any = sys.get_asyncgen_hooks().firstiter

        def first(generator: Any) -> None:
            generators.append(generator.__qualname__)
            loops_own(generator)

        sys.set_asyncgen_hooks(firstiter=first)
        for chunks in (2, 0):
            stream = await client.chat.completions.create(**ASK, stream=True)
            for _ in range(chunks):
                await stream.__anext__()
            del stream
            gc.collect()
            await asyncio.sleep(0)
            tasks.append(sorted(str(task.get_coro()) for task in asyncio.all_tasks()))
        return generators, [[name.partition(" at ")[0] for name in names] for names in tasks]

    theirs = asyncio.run(dropped(plain("async", ANSWER)))
    client = a_client("async", ANSWER, ManualClock())

    assert asyncio.run(dropped(client.sdk)) == theirs
    client.seen.flush()
    assert [record.outcome for record in client.seen.records] == ["left_early", "unread"]


@pytest.mark.parametrize("make", ["sdk", "foreign"])
@pytest.mark.parametrize("chunks", [1, 0], ids=["between two chunks", "in a wait"])
def test_garbage_that_is_collected_while_our_lock_is_held_holds_nobody_up(make: str, chunks: int) -> None:
    """The collector may run in the middle of our own work: what it closes then must not want our lock."""

    async def forever() -> AsyncIterator[str]:
        yield role()
        await asyncio.get_running_loop().create_future()
        yield DONE

    async def begin(seen: list[Any]) -> Any:
        if make == "sdk":
            http = http_library()
            transport = http.MockTransport(lambda _: http.Response(200, content=encoded(forever())))
            sdk = AsyncOpenAI(api_key="none", http_client=http.AsyncClient(transport=transport))
            seen.append(collect(sdk, clock=ManualClock()))
            return await sdk.chat.completions.create(**ASK, stream=True)
        seen.append(collect(None, clock=ManualClock()))
        return seen[0].monitor(forever())

    async def encoded(pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            yield piece.encode()

    async def read() -> None:
        stream = await begin(seen)
        iterator = stream.__aiter__()
        await iterator.__anext__()
        if not chunks:
            waiting = iterator.__anext__()
            waiting.send(None)
        (monitor,) = seen[0].process.monitors
        with monitor.lock:
            if not chunks:
                waiting.close()
                del waiting
            del stream, iterator
            gc.collect()

    seen: list[Any] = []
    thread = threading.Thread(target=lambda: asyncio.run(read()), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert (seen[0].record.outcome, seen[0].record.chunks) == ("left_early" if chunks else "cancelled", 1)


@KINDS
def test_retries_count_in_the_wait_and_are_told(kind: str) -> None:
    """Time to the first content runs from the caller's call, refused attempts included."""
    clock = ManualClock()
    http = http_library()
    inner = scripted(ANSWER, clock) if kind == "sync" else scripted_async(ANSWER, clock)
    refused = [http.Response(429, headers={"retry-after-ms": "1"}, json={"error": {"message": "slow down"}})]
    play = inner._transport.handler

    def answer(request: Any) -> Any:
        if refused:
            clock.advance(2)
            return refused.pop()
        return play(request)

    async def answer_async(request: Any) -> Any:
        found = answer(request)
        return await found if not isinstance(found, http.Response) else found

    if kind == "sync":
        client: Any = OpenAI(api_key="none", http_client=http.Client(transport=http.MockTransport(answer)))
    else:
        transport = http.MockTransport(answer_async)
        client = AsyncOpenAI(api_key="none", http_client=http.AsyncClient(transport=transport))
    seen = collect(client, clock=clock)

    asyncio.run(everything(client))

    assert (seen.record.retries, seen.record.time_to_first_content_s) == (1, 4.0)


@KINDS
def test_call_that_is_refused_is_no_stream(kind: str) -> None:
    """An HTTP error before any stream reaches the caller as it is, and leaves no record."""
    body = {"error": {"message": "no such model"}}
    http = http_library()
    transport = http.MockTransport(lambda _: http.Response(404, json=body))
    if kind == "sync":
        client: Any = OpenAI(api_key="none", http_client=http.Client(transport=transport))
    else:
        client = AsyncOpenAI(api_key="none", http_client=http.AsyncClient(transport=transport))
    seen = collect(client)

    with pytest.raises(openai.NotFoundError, match="no such model"):
        asyncio.run(_raise(client))

    assert (seen.records, seen.streams()) == ([], ())


async def _raise(client: Any) -> None:
    await settled(client.chat.completions.create(**ASK, stream=True))


@KINDS
def test_usage_that_we_asked_for_is_hidden(kind: str) -> None:
    """With `include_usage` the request asks for usage, the record has it, and the caller sees no extra chunk."""
    client = a_client(kind, [*ANSWER[:4], (5, usage(7, 2)), (5, DONE)], ManualClock(), include_usage=True)

    chunks, _ = asyncio.run(everything(client.sdk))

    assert [len(chunk.choices) for chunk in chunks] == [1, 1, 1, 1]
    assert (client.seen.record.input_tokens, client.seen.record.output_tokens) == (7, 2)


@KINDS
@pytest.mark.parametrize(
    "asks",
    [
        {"extra_body": {"usage": {"include": True}}},
        {"extra_body": {"usage": {"include": False}}},
        {"extra_body": {"include_usage": True}},
        {"extra_body": {"provider": {"return_usage": True}}},
        {"extra_body": {"stream_options": {"includeUsage": True}}},
        {"extra_body": {"stream_options": None}},
        {"stream_options": {"include_usage": True}},
        {"extra_query": {"include_usage": "true"}},
        {"extra_headers": {"X-Include-Usage": "1"}},
    ],
    ids=repr,
)
def test_usage_chunk_that_the_caller_asked_for_in_any_way_is_not_hidden(
    kind: str, asks: dict[str, Any]
) -> None:
    """Then nothing is added to the request either."""
    sent, came = [], []
    for include in (False, True):
        script = [*ANSWER[:4], (5.0, usage(7, 2, cost=0.0001)), (5.0, DONE)]
        client = a_client(kind, script, ManualClock(), include_usage=include)

        async def read(client: Any = client) -> None:
            stream = await client.create(**asks)
            sent.append(stream.raw.response.request.content)
            came.append([chunk.usage is not None async for chunk in stream])

        asyncio.run(read())

    assert sent[0] == sent[1]
    assert came == [[False] * 4 + [True]] * 2


@KINDS
def test_server_that_always_sends_usage_is_not_asked_for_it(kind: str) -> None:
    """OpenRouter's callers rely on its last chunk."""
    client = a_client(kind, [*ANSWER[:4], (5, usage(7, 2)), (5, DONE)], ManualClock(), include_usage=True)
    client.sdk.base_url = "https://openrouter.ai/api/v1"

    async def read() -> int:
        stream = await client.create()
        assert b"stream_options" not in stream.raw.response.request.content
        return len([chunk async for chunk in stream])

    assert asyncio.run(read()) == 5


@KINDS
@pytest.mark.parametrize(
    ("asked", "sent", "extra"),
    [
        (None, {"include_usage": True}, 0),
        ({"include_usage": False}, {"include_usage": False}, 1),
        ({"include_usage": True}, {"include_usage": True}, 1),
        ({"continuous_usage_stats": True}, {"continuous_usage_stats": True, "include_usage": True}, 0),
    ],
)
def test_callers_own_stream_options_win(
    kind: str, asked: dict[str, bool] | None, sent: dict[str, bool], extra: int
) -> None:
    """What the caller decided stays, in the request and in the chunks; the caller's own dict is never touched."""
    client = a_client(kind, [*ANSWER[:4], (5, usage(7, 2)), (5, DONE)], ManualClock(), include_usage=True)
    options = {} if asked is None else {"stream_options": dict(asked)}

    async def read() -> tuple[Any, int]:
        stream = await client.create(**options)
        body = stream.raw.response.request.content
        return __import__("json").loads(body)["stream_options"], len([chunk async for chunk in stream])

    assert asyncio.run(read()) == (sent, 4 + extra)
    assert options.get("stream_options") == asked


@KINDS
@pytest.mark.parametrize("stream", [1, True])
def test_what_streams_is_told_by_what_comes_back(kind: str, stream: Any) -> None:
    """Whichever truth asks for a stream, a stream is followed."""
    client = a_client(kind, ANSWER, ManualClock())

    async def read() -> None:
        async for _ in Answer(await settled(client.sdk.chat.completions.create(**ASK, stream=stream))):
            pass

    asyncio.run(read())
    assert client.seen.record.chunks == 4


def test_answers_that_do_not_stream_are_not_followed() -> None:
    """A plain completion passes untouched and leaves no record."""
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
    http = http_library()
    client = OpenAI(
        api_key="none",
        http_client=http.Client(transport=http.MockTransport(lambda _: http.Response(200, json=body))),
    )
    seen = collect(client)

    assert client.chat.completions.create(**ASK).id == "c"
    assert seen.records == []


def test_lines_of_a_streaming_response_are_untouched() -> None:
    """Whoever reads bytes or lines makes no stream of chunks, so there is nothing to follow and nothing left open."""
    client = a_client("sync", ANSWER, ManualClock())

    with client.sdk.chat.completions.with_streaming_response.create(**ASK, stream=True) as response:
        lines = [line for line in response.iter_lines() if line]

    assert len(lines) == 5
    assert (client.seen.records, client.seen.streams()) == ([], ())


def test_parse_to_a_stream_type_is_monitored() -> None:
    """`parse(to=Stream[...])` builds the stream by another way, through the same constructor."""
    client = a_client("sync", ANSWER, ManualClock())

    raw = client.sdk.chat.completions.with_raw_response.create(**ASK, stream=True)
    chunks = list(raw.parse(to=Stream[object]))

    assert len(chunks) == client.seen.record.chunks == 4


RESPONSE_EVENTS: Script = [
    (
        0.1,
        "event: response.created\n"
        + frame({"type": "response.created", "response": {"id": "r", "model": "served"}}),
    ),
    (1, frame({"type": "response.reasoning_text.delta", "delta": "hm"})),
    (2, frame({"type": "keepalive"})),
    (8, frame({"type": "response.output_text.delta", "delta": "a"})),
    (9, frame({"type": "response.output_item.added", "item": {"type": "function_call", "name": "f"}})),
    (11, frame({"type": "response.function_call_arguments.delta", "delta": "{}"})),
    (
        12,
        frame(
            {
                "type": "response.incomplete",
                "response": {
                    "id": "r",
                    "incomplete_details": {"reason": "max_output_tokens"},
                    "usage": {
                        "input_tokens": 11,
                        "output_tokens": 64,
                        "output_tokens_details": {"reasoning_tokens": 60},
                        "input_tokens_details": {"cached_tokens": 3},
                    },
                },
            }
        ),
    ),
]


@needs_responses
@KINDS
def test_responses_api_is_read_by_its_event_types(kind: str) -> None:
    """Created and keep-alive events are no content; the terminal event tells finish, limit and usage."""
    client = a_client(kind, RESPONSE_EVENTS, ManualClock())

    async def read() -> None:
        request = {"model": "asked", "input": "hi", "max_output_tokens": 64}
        async for _ in Answer(await settled(client.sdk.responses.create(**request, stream=True))):
            pass

    asyncio.run(read())
    record = client.seen.record
    assert (record.operation, record.request_model, record.response_model) == ("responses", "asked", "served")
    assert (record.outcome, record.finish_reasons) == ("completed", ("length",))
    assert (record.token_limit, record.limit_hit, record.output_tokens) == (64, True, 64)
    assert (record.input_tokens, record.cached_tokens, record.reasoning_tokens) == (11, 3, 60)
    assert (record.max_gap_s, record.max_gap_at_s, record.max_gap_phase) == (7.0, 1.0, "reasoning")
    assert (record.time_to_first_chunk_s, record.time_to_first_content_s) == (0.1, 1.0)


@needs_responses
@KINDS
@pytest.mark.parametrize(
    ("event", "outcome", "error_type", "reasons"),
    [
        ({"type": "response.completed", "response": {"output": []}}, "completed", None, ("stop",)),
        (
            {"type": "response.completed", "response": {"output": [{"type": "function_call"}]}},
            "completed", None, ("tool_calls",),
        ),
        (
            {"type": "response.completed", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
            "completed", None, ("length",),
        ),
        (
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "content_filter"}}},
            "completed", None, ("content_filter",),
        ),
        ({"type": "response.failed", "response": {"status": "failed"}}, "error", "response.failed", ()),
        ({"type": "error", "code": "server_error", "message": "x"}, "error", "error_event", ()),
        ({"type": "response.output_text.done", "text": "a"}, "no_finish", None, ()),
    ],
)  # fmt: skip
def test_terminal_events_of_the_responses_api(
    kind: str, event: Any, outcome: str, error_type: str | None, reasons: tuple[str, ...]
) -> None:
    """Each terminal event ends the stream with its own outcome, and no terminal event is no finish."""
    script: Script = [(1, frame({"type": "response.output_text.delta", "delta": "a"})), (2, frame(event))]
    client = a_client(kind, script, ManualClock())

    async def read() -> None:
        async for _ in Answer(await settled(client.sdk.responses.create(model="m", input="hi", stream=True))):
            pass

    asyncio.run(read())
    record = client.seen.record
    assert (record.outcome, record.error_type, record.finish_reasons) == (outcome, error_type, reasons)


@KINDS
def test_legacy_completions_are_followed(kind: str) -> None:
    """Their text stands in the choice itself."""

    def piece(content: str, reason: str = "") -> str:
        return frame(
            {"id": "c", "model": "m", "choices": [{"index": 0, "text": content, "finish_reason": reason}]}
        )

    client = a_client(kind, [(1, piece("a")), (4, piece("b", "length")), (4, DONE)], ManualClock())

    async def read() -> None:
        async for _ in Answer(
            await settled(client.sdk.completions.create(model="m", prompt="hi", max_tokens=2, stream=True))
        ):
            pass

    asyncio.run(read())
    record = client.seen.record
    assert (record.operation, record.max_gap_s, record.finish_reasons, record.token_limit) == (
        "text_completion", 3.0, ("length",), 2,
    )  # fmt: skip
