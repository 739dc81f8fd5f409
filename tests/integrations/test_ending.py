"""The stall timeout ends the read in progress, whichever library reads, and frees the connection."""

from __future__ import annotations

import asyncio
import copy
import pickle
import ssl
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import openai
import pytest
import requests
from benchmarks.wire import WireServer
from openai import AsyncOpenAI, OpenAI

import midstream
from midstream import StreamStalled
from midstream.lab.hardware import HardwareProfile
from midstream.testing import DONE, PING, Collected, collect, finish, http_library, role, text
from support.certificate import CERTIFICATE
from support.emulating import Server, emulating
from support.harness import ASK
from support.waiting import until

STALL_S = 0.4
SENT: list[tuple[float, str]] = [(0.02, role()), (0.04, text("a")), (0.06, text("b"))]
PINGS = [(0.1 + 0.1 * number, PING) for number in range(150)]
STALLED = [*SENT, *PINGS, (15.0, text("too late")), (15.0, finish()), (15.0, DONE)]
"""Output that ends, and keep-alives that do not: a read timeout would not expire."""
BODY = {**ASK, "stream": True}

Watch = Callable[[Any], Any]
Way = Callable[[Watch, str, ssl.SSLContext | None], Coroutine[Any, Any, None]]
WAYS: dict[str, tuple[Way, type[Exception]]] = {}


def way(timeout: type[Exception]) -> Callable[[Way], Way]:
    def keep(read: Way) -> Way:
        WAYS[read.__name__] = read, timeout
        return read

    return keep


def post(where: str) -> dict[str, Any]:
    return {"url": f"{where}/chat/completions", "json": BODY}


def http(tls: ssl.SSLContext | None, kind: str) -> Any:
    return getattr(http_library(), kind)(verify=tls or True)


@way(openai.APITimeoutError)
async def sdk(watch: Watch, where: str, tls: ssl.SSLContext | None) -> None:
    with watch(OpenAI(api_key="none", base_url=where, http_client=http(tls, "Client"))) as client:
        for _ in client.chat.completions.create(**BODY):
            pass


@way(openai.APITimeoutError)
async def sdk_async(watch: Watch, where: str, tls: ssl.SSLContext | None) -> None:
    async with watch(
        AsyncOpenAI(api_key="none", base_url=where, http_client=http(tls, "AsyncClient"))
    ) as client:
        async for _ in await client.chat.completions.create(**BODY):
            pass


@way(httpx.ReadTimeout)
async def httpx_sync(watch: Watch, where: str, tls: ssl.SSLContext | None) -> None:
    with watch(httpx.Client(verify=tls or True)) as client, client.stream("POST", **post(where)) as response:
        for _ in response.iter_lines():
            pass


@way(httpx.ReadTimeout)
async def httpx_async(watch: Watch, where: str, tls: ssl.SSLContext | None) -> None:
    client: httpx.AsyncClient = watch(httpx.AsyncClient(verify=tls or True))
    async with client, client.stream("POST", **post(where)) as response:
        async for _ in response.aiter_lines():
            pass


@way(aiohttp.ServerTimeoutError)
async def aiohttp_lines(watch: Watch, where: str, tls: ssl.SSLContext | None) -> None:
    session = watch(aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls or True)))
    async with session, session.post(**post(where)) as response:
        async for _ in response.content:
            pass


@way(requests.ReadTimeout)
async def requests_lines(watch: Watch, where: str, tls: ssl.SSLContext | None) -> None:
    with watch(requests.Session()) as session:
        if tls is not None:
            session.verify = tls.keylog  # type: ignore[attr-defined]
        with session.post(**post(where), stream=True) as response:
            for _ in response.iter_lines():
                pass


@way(StreamStalled)
async def async_generator(watch: Watch, where: str, tls: ssl.SSLContext | None) -> None:
    """A stream of unknown make over a client that nobody monitors."""

    async def answer() -> AsyncIterator[str]:
        client = httpx.AsyncClient(verify=tls or True)
        async with client, client.stream("POST", **post(where)) as response:
            async for line in response.aiter_lines():
                if "content" in line:
                    yield line

    async for _ in watch(answer()):
        pass


@way(StreamStalled)
async def urllib_lines(watch: Watch, where: str, tls: ssl.SSLContext | None) -> None:
    """The file of a socket, which is read line by line."""
    request = urllib.request.Request(f"{where}/chat/completions", b"{}", {"content-type": "application/json"})  # noqa: S310
    for line in watch(Unpinged(urllib.request.urlopen(request, context=tls))):  # noqa: ASYNC210, S310
        del line


class Unpinged:
    """Lines with output alone: for an iterator of unknown make every item is a chunk."""

    def __init__(self, response: Any) -> None:
        self.response = response

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        while True:
            line: bytes = next(self.response)
            if b"content" in line:
                return line


def stalled_by(
    read: Way, where: str, tls: ssl.SSLContext | None, **settings: Any
) -> tuple[StreamStalled, Collected]:
    seen = collect(**settings)

    async def reading() -> None:
        task = asyncio.current_task()
        try:
            await read(seen.monitor, where, tls)
        finally:
            assert task is not None
            assert not getattr(task, "cancelling", lambda: 0)()

    with pytest.raises(StreamStalled) as caught:
        asyncio.run(asyncio.wait_for(reading(), 10))
    return caught.value, seen


@pytest.mark.parametrize("name", WAYS)
def test_read_in_progress_ends_at_the_stall_timeout(name: str) -> None:
    """The read raises what is the library's own timeout; the server sees the client go and stops sending."""
    read, timeout = WAYS[name]
    with WireServer(STALLED) as server:
        error, seen = stalled_by(read, server.base_url, None, stall_timeout_s=STALL_S, freeze_after_s=60)
        ended = time.monotonic()

        (exchange,) = server.exchanges
        assert exchange.over.wait(5)
        assert len(exchange.sent) < 30  # it would have sent pings for 15 s

    assert isinstance(error, timeout)
    if timeout is openai.APITimeoutError:
        assert isinstance(
            error, http_library().ReadTimeout
        )  # what the SDK passes on in the middle of a stream
    assert isinstance(error, TimeoutError)
    assert STALL_S <= error.gap_s < STALL_S + 2
    assert ended - exchange.began < 5
    assert (error.phase, error.content_chunks) == ("text", seen.record.content_chunks)
    assert (seen.record.outcome, seen.record.error_type) == ("timeout", "stall_timeout")
    assert seen.record.max_gap_open
    assert seen.record.max_gap_s == pytest.approx(error.gap_s, abs=1)
    assert str(error).endswith(
        f"for {error.gap_s:.1f} s, in text, after {error.content_chunks} content chunks (stall timeout)"
    )


@pytest.mark.parametrize(
    "name", ["sdk", "sdk_async", "httpx_sync", "httpx_async", "aiohttp_lines", "urllib_lines"]
)
def test_so_it_does_through_tls(name: str, tmp_path: Path) -> None:
    """The connection ends below the encryption, and the thread or task that waits on it goes on."""
    certificate = tmp_path / "certificate.pem"
    certificate.write_text(CERTIFICATE)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate)
    with WireServer(STALLED, tls=served) as server:
        trusted = ssl.create_default_context(cafile=str(certificate))
        error, seen = stalled_by(WAYS[name][0], server.base_url, trusted, stall_timeout_s=STALL_S)
        assert server.exchanges[0].over.wait(5)

    assert isinstance(error, WAYS[name][1])
    assert (seen.record.outcome, seen.record.error_type) == ("timeout", "stall_timeout")


@pytest.mark.parametrize("name", ["sdk", "sdk_async", "httpx_async", "aiohttp_lines", "requests_lines"])
def test_first_output_has_a_timeout_of_its_own(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """It runs from the call, and neither a role nor pings reset it."""
    with WireServer([(0.02, role()), *PINGS, (15.0, text("a"))]) as server:
        error, seen = stalled_by(WAYS[name][0], server.base_url, None, first_content_timeout_s=STALL_S)

    assert error.content_chunks == 0
    assert STALL_S <= error.gap_s < STALL_S + 2
    assert str(error).endswith(f"for {error.gap_s:.1f} s, and none before (stall timeout)")
    (line,) = [entry for entry in caplog.records if "ended by its stall timeout" in entry.getMessage()]
    assert line.getMessage().endswith(" s, in text, and none before (response c1)")
    assert STALL_S <= vars(line)["gap_s"] < STALL_S + 2
    assert (seen.record.outcome, seen.record.error_type) == ("timeout", "stall_timeout")
    assert seen.record.max_gap_s is None


def test_http2_stream_ends_without_the_connection_that_it_shares() -> None:
    """Without a socket of its own an async stream is ended at the step that is awaited."""

    class Body(httpx.AsyncByteStream):
        closed = False

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for _, piece in SENT:
                yield piece.encode()
            await asyncio.sleep(15)

        async def aclose(self) -> None:
            self.closed = True

    body = Body()
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=body)

    async def shared(watch: Watch, where: str, _tls: ssl.SSLContext | None) -> None:
        transport = httpx.MockTransport(lambda request: answer)
        client: httpx.AsyncClient = watch(httpx.AsyncClient(transport=transport))
        async with client, client.stream("POST", **post(where)) as response:
            async for _ in response.aiter_bytes():
                pass

    error, seen = stalled_by(shared, "http://test/v1", None, stall_timeout_s=STALL_S)

    assert isinstance(error, httpx.ReadTimeout)
    assert body.closed
    assert seen.record.error_type == "stall_timeout"


@pytest.mark.parametrize(
    "made", [OSError, *(timeout for _, timeout in WAYS.values())], ids=lambda kind: kind.__name__
)
def test_exception_can_be_pickled_and_copied(made: type[Exception]) -> None:
    """A worker process may hand it over: class, message and attributes arrive."""
    name = next((name for name, (_, timeout) in WAYS.items() if timeout is made), "sdk")
    with WireServer(STALLED) as server:
        error, _ = stalled_by(WAYS[name][0], server.base_url, None, stall_timeout_s=0.1)

    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - it is our own
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert isinstance(again, StreamStalled)
        assert (again.gap_s, again.phase, again.content_chunks) == (error.gap_s, "text", error.content_chunks)


def test_emulated_engine_stops_generating() -> None:
    """An engine that is told of the disconnect aborts the request: it holds no cache for an answer nobody reads."""
    slow = HardwareProfile("slow", 1.0, 0.0, 0.0, 0.0)
    meanwhile: list[float] = []
    with emulating("vllm", hardware=slow, keep_alive_s=0.1) as server:
        request: dict[str, Any] = {**BODY, "model": "emulated"}
        with OpenAI(api_key="none", base_url=server.base_url, max_retries=0) as client:
            frozen: dict[str, Any] = {
                "freeze_after_s": 0.1,
                "on_freeze": lambda _: meanwhile.append(running(server)),
            }
            seen = collect(client, stall_timeout_s=0.6, **frozen)
            with pytest.raises(openai.APITimeoutError):
                list(
                    client.chat.completions.create(**request, extra_body={"emulate": {"answer_tokens": 1000}})
                )

        until(lambda: running(server) == 0)  # the answer would take 1000 s

    assert meanwhile == [1]
    assert (seen.record.outcome, seen.record.error_type) == ("timeout", "stall_timeout")


def running(server: Server) -> float:
    """How many requests the engine is working on, by its own metrics."""
    (line,) = (line for line in server.page()[2].splitlines() if line.startswith("vllm:num_requests_running"))
    return float(line.rpartition(" ")[2])


def test_connection_of_a_complete_answer_serves_the_next() -> None:
    """The timeout does not touch what has gone back to the pool."""
    script = [*SENT, (0.08, finish()), (0.08, DONE)]
    with WireServer(script) as server, OpenAI(api_key="none", base_url=server.base_url) as client:
        seen = collect(client, stall_timeout_s=0.15)
        for _ in range(2):
            list(client.chat.completions.create(**BODY))
            time.sleep(0.3)  # longer than the timeout
        list(client.chat.completions.create(**BODY))

    assert [record.outcome for record in seen.records] == ["completed"] * 3


def test_stream_that_cannot_be_ended_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """A generator of unknown make goes on; the log has one line about it, however many there are."""

    def answer() -> Iterator[str]:
        yield "a"
        yield "b"
        time.sleep(0.5)
        yield "c"

    for _ in range(2):
        assert list(midstream.monitor(answer(), stall_timeout_s=0.1)) == ["a", "b", "c"]

    lines = [record.getMessage() for record in caplog.records if "cannot be ended" in record.getMessage()]
    assert len(lines) == 1
