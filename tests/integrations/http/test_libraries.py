"""Real HTTP libraries over real sockets, read in the ways that people read streams: one record, and the true gap."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from textwrap import dedent
from typing import Any

import aiohttp
import httpx
import pytest
import requests
from benchmarks.wire import CUT, WireServer
from openai import OpenAI

import midstream
from midstream import Outcome, StreamRecord
from midstream.testing import Collected, collect
from support import apart
from support.waiting import until

ASK = {"model": "asked", "messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 4}
PAUSE_S = 0.5


def event(text: str | None = None, finish_reason: str | None = None, **fields: Any) -> str:
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish_reason}
    return f"data: {json.dumps({'model': 'answers', 'choices': [choice], **fields})}\n\n"


SCRIPT = [
    (0.02, event("a")),
    (0.04, event("b")),
    (0.04 + PAUSE_S, event("c")),
    (0.06 + PAUSE_S, event(finish_reason="stop", usage={"prompt_tokens": 2, "completion_tokens": 4})),
    (0.06 + PAUSE_S, "data: [DONE]\n\n"),
]


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer(SCRIPT) as playing:
        yield playing


def url(server: WireServer) -> str:
    return f"{server.base_url}/chat/completions"


# Ways of reading. Each takes what monitors a client or session, and the server's URL.

Watch = Callable[[Any], Any]
Way = Callable[[Watch, str], Coroutine[Any, Any, None]]
WAYS: dict[str, Way] = {}


def way(read: Way) -> Way:
    WAYS[read.__name__] = read
    return read


@way
async def httpx_lines(watch: Watch, where: str) -> None:
    with watch(httpx.Client()) as client, client.stream("POST", where, json=ASK) as response:
        assert [line for line in response.iter_lines() if line][-1] == "data: [DONE]"


@way
async def httpx_whole(watch: Watch, where: str) -> None:
    with watch(httpx.Client()) as client:
        assert client.post(where, json=ASK).text.endswith("data: [DONE]\n\n")


@way
async def httpx_async_lines(watch: Watch, where: str) -> None:
    async with watch(httpx.AsyncClient()) as client, client.stream("POST", where, json=ASK) as response:
        assert [line async for line in response.aiter_lines() if line][-1] == "data: [DONE]"


@way
async def httpx_async_raw(watch: Watch, where: str) -> None:
    async with watch(httpx.AsyncClient()) as client, client.stream("POST", where, json=ASK) as response:
        pieces = [piece async for piece in response.aiter_raw()]
        assert b"".join(pieces).endswith(b"data: [DONE]\n\n")


@way
async def aiohttp_lines(watch: Watch, where: str) -> None:
    async with watch(aiohttp.ClientSession()) as session, session.post(where, json=ASK) as response:
        assert [line async for line in response.content if line.strip()][-1] == b"data: [DONE]\n"


@way
async def aiohttp_any(watch: Watch, where: str) -> None:
    async with watch(aiohttp.ClientSession()) as session, session.post(where, json=ASK) as response:
        assert b"".join([piece async for piece in response.content.iter_any()]).endswith(b"[DONE]\n\n")


@way
async def aiohttp_chunked(watch: Watch, where: str) -> None:
    async with watch(aiohttp.ClientSession()) as session, session.post(where, json=ASK) as response:
        assert b"".join([piece async for piece in response.content.iter_chunked(7)]).endswith(b"[DONE]\n\n")


@way
async def aiohttp_chunks(watch: Watch, where: str) -> None:
    async with watch(aiohttp.ClientSession()) as session, session.post(where, json=ASK) as response:
        assert b"".join([piece async for piece, _ in response.content.iter_chunks()]).endswith(b"[DONE]\n\n")


@way
async def aiohttp_whole(watch: Watch, where: str) -> None:
    async with (
        watch(aiohttp.ClientSession()) as session,
        session.post(where, data=json.dumps(ASK)) as response,
    ):
        assert (await response.text()).endswith("data: [DONE]\n\n")


@way
async def requests_lines(watch: Watch, where: str) -> None:
    with watch(requests.Session()) as session, session.post(where, json=ASK, stream=True) as response:
        assert [line for line in response.iter_lines() if line][-1] == b"data: [DONE]"


@way
async def requests_content(watch: Watch, where: str) -> None:
    with watch(requests.Session()) as session, session.post(where, json=ASK, stream=True) as response:
        assert b"".join(response.iter_content(None)).endswith(b"data: [DONE]\n\n")


@way
async def requests_whole(watch: Watch, where: str) -> None:
    with watch(requests.Session()) as session:
        assert session.post(where, json=ASK).content.endswith(b"data: [DONE]\n\n")


def checked(record: StreamRecord, server: WireServer) -> None:
    assert (record.outcome, record.finish_reasons) == (Outcome.COMPLETED, ("stop",))
    assert (record.operation, record.request_model, record.response_model) == ("chat", "asked", "answers")
    assert (record.server_address, record.server_port) == ("127.0.0.1", server.port)
    assert (record.chunks, record.content_chunks) == (4, 3)
    assert (record.input_tokens, record.output_tokens, record.limit_hit) == (2, 4, True)
    (exchange,) = server.exchanges
    pause = exchange.sent[2] - exchange.sent[1]
    assert record.max_gap_s == pytest.approx(pause, abs=0.25)
    if sys.platform == "linux":
        assert record.wire_gap_s == pytest.approx(pause, abs=0.25)


@pytest.mark.parametrize("name", WAYS)
def test_a_monitored_client_leaves_one_record(name: str, server: WireServer) -> None:
    """`monitor()` around a client or session, whichever way its streams are read."""
    seen = collect()

    asyncio.run(WAYS[name](seen.monitor, url(server)))

    until(lambda: bool(seen.records))
    checked(seen.record, server)


@pytest.fixture
def everywhere() -> Iterator[list[StreamRecord]]:
    records: list[StreamRecord] = []
    midstream.instrument(on_end=records.append)
    yield records
    midstream.uninstrument()


@pytest.mark.parametrize("name", WAYS)
def test_an_instrumented_process_leaves_one_record(
    name: str, server: WireServer, everywhere: list[StreamRecord]
) -> None:
    """`instrument()` covers clients and sessions that nobody gave to `monitor()`."""
    asyncio.run(WAYS[name](lambda client: client, url(server)))

    until(lambda: bool(everywhere))
    (record,) = everywhere
    checked(record, server)


def test_the_sdk_over_a_monitored_http_client_is_recorded_once(
    server: WireServer, everywhere: list[StreamRecord]
) -> None:
    """The outer door follows the stream, the inner one leaves it to that."""
    client = OpenAI(api_key="k", base_url=server.base_url)

    list(client.chat.completions.create(**ASK))  # type: ignore[call-overload]

    until(lambda: bool(everywhere))
    (record,) = everywhere
    checked(record, server)


def test_a_function_around_an_http_stream_is_recorded_once(server: WireServer) -> None:
    """What the function yields is the stream that opened in it, in other words."""
    seen: Collected = collect()

    def ask() -> Iterator[str]:
        with httpx.Client() as client, client.stream("POST", url(server), json=ASK) as response:
            yield from response.iter_lines()

    assert "data: [DONE]" in list(seen.monitor(ask)())

    until(lambda: bool(seen.records))
    checked(seen.record, server)


@pytest.mark.parametrize("library", ["httpx", "aiohttp", "requests"])
def test_a_client_that_is_closed_in_the_middle_has_left_early(library: str, server: WireServer) -> None:
    """One record, at once."""
    seen = collect()

    async def half() -> None:
        where = url(server)
        if library == "httpx":
            with seen.monitor(httpx.Client()) as client, client.stream("POST", where, json=ASK) as response:
                next(response.iter_lines())
        elif library == "aiohttp":
            async with (
                seen.monitor(aiohttp.ClientSession()) as session,
                session.post(where, json=ASK) as answer,
            ):
                await answer.content.readline()
        else:
            with (
                seen.monitor(requests.Session()) as session,
                session.post(where, json=ASK, stream=True) as got,
            ):
                next(got.iter_content(None))

    asyncio.run(half())

    until(lambda: bool(seen.records))
    assert seen.record.outcome is Outcome.LEFT_EARLY


@pytest.mark.parametrize("library", ["httpx", "aiohttp"])
def test_a_task_that_is_cancelled_in_the_middle_has_its_open_gap(library: str, server: WireServer) -> None:
    """The wait in progress counts."""
    seen = collect()

    async def cancelled() -> None:
        async def read() -> None:
            if library == "httpx":
                await httpx_async_lines(seen.monitor, url(server))
            else:
                await aiohttp_lines(seen.monitor, url(server))

        task = asyncio.create_task(read())
        await asyncio.sleep(0.06 + PAUSE_S / 2)  # real time: the server pauses
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())

    until(lambda: bool(seen.records))
    assert seen.record.outcome is Outcome.CANCELLED
    assert seen.record.max_gap_open


@pytest.mark.parametrize("library", ["httpx", "requests"])
def test_a_read_timeout_is_a_timeout(library: str, server: WireServer) -> None:
    """The caller gets his library's own exception."""
    seen = collect()
    where = url(server)

    if library == "httpx":
        with seen.monitor(httpx.Client(timeout=0.2)) as client, pytest.raises(httpx.ReadTimeout):
            client.post(where, json=ASK)
    else:
        with seen.monitor(requests.Session()) as session, pytest.raises(requests.RequestException):
            session.post(where, json=ASK, timeout=0.2)

    until(lambda: bool(seen.records))
    assert (seen.record.outcome, seen.record.error_type) == (Outcome.TIMEOUT, "timeout")
    assert seen.record.max_gap_open


READERS = [httpx_lines, httpx_async_lines, aiohttp_lines, aiohttp_whole, requests_lines, requests_content]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_a_connection_that_is_cut_has_one_name_in_every_library(read: Way) -> None:
    """Each library raises something of its own."""
    seen = collect()

    with WireServer([*SCRIPT[:2], (0.1, CUT)]) as server, suppress(Exception):
        asyncio.run(read(seen.monitor, url(server)))

    until(lambda: bool(seen.records))
    assert (seen.record.outcome, seen.record.error_type) == (Outcome.ERROR, "APIConnectionError")


def test_uninstrument_leaves_the_libraries_as_they_were() -> None:
    """Every method of theirs is their own again, and libraries are not loaded by us but patched when they are."""
    apart.run(
        dedent("""
        import sys
        import midstream
        midstream.instrument()
        assert not {"httpx", "aiohttp", "requests"} & {*sys.modules}, "loaded by us"
        import aiohttp, httpx, requests
        methods = [
            (httpx.Client, "_send_single_request"),
            (httpx.AsyncClient, "_send_single_request"),
            (aiohttp.ClientSession, "_request"),
            (aiohttp.ClientResponse, "close"),
            (requests.Session, "send"),
            (requests.adapters.HTTPAdapter, "send"),
        ]
        patched = [vars(owner)[name] for owner, name in methods]
        assert all(hasattr(method, "__wrapped__") for method in patched), patched
        midstream.uninstrument()
        for (owner, name), method in zip(methods, patched):
            assert vars(owner)[name] is method.__wrapped__, name
        """)
    )
