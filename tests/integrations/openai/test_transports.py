"""The outcome is what the caller gets, on every transport: also where an exception is thrown through waiting frames."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

import midstream
from midstream.testing import http_library
from support.waiting import until


def event(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


handlers: list[asyncio.Task[Any]] = []


async def two_chunks_and_silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    handlers.extend(task for task in (asyncio.current_task(),) if task is not None)
    await reader.readuntil(b"\r\n\r\n")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    writer.write(head + event("a") + event("b"))
    with suppress(ConnectionError):
        await reader.read()  # until the client hangs up
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def cancelling_transport(error: str) -> Any:
    """A transport with a time limit of its own: it cancels the read, and raises in place of the cancellation."""
    http = http_library()

    class Bytes(http.AsyncByteStream):  # type: ignore[misc,name-defined]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield event("a")
            yield event("b")
            try:
                await asyncio.wait_for(asyncio.get_running_loop().create_future(), 0.02)
            except asyncio.TimeoutError as exc:
                raise getattr(http, error)("the transport gave up") from exc

        async def aclose(self) -> None:
            await asyncio.sleep(0)

    class Transport(http.AsyncBaseTransport):  # type: ignore[misc,name-defined]
        async def handle_async_request(self, _request: Any) -> Any:
            return http.Response(200, headers={"content-type": "text/event-stream"}, stream=Bytes())

    return http.AsyncClient(transport=Transport())


async def read_all(client: AsyncOpenAI) -> None:
    async for _ in await client.chat.completions.create(model="m", messages=[], stream=True):
        pass


@pytest.mark.parametrize(
    ("error", "outcome", "error_type"),
    [("ReadTimeout", "timeout", "timeout"), ("ReadError", "error", "APIConnectionError")],
)
def test_error_of_a_transport_that_cancels_its_read(error: str, outcome: str, error_type: str) -> None:
    """Every time: whether the stream was dropped is not a race between threads."""
    records: list[Any] = []

    async def main() -> None:
        for _ in range(8):
            async with AsyncOpenAI(
                api_key="x", max_retries=0, http_client=cancelling_transport(error)
            ) as client:
                midstream.monitor(client, on_end=records.append)
                with pytest.raises(Exception, match=r".*"):
                    await read_all(client)

    asyncio.run(main())
    until(lambda: len(records) == 8)

    assert {(record.outcome.value, record.error_type, record.max_gap_open) for record in records} == {
        (outcome, error_type, True)
    }


@pytest.mark.parametrize("transport", ["default", "aiohttp"])
@pytest.mark.parametrize(
    ("ends", "outcome", "error_type"),
    [
        ("timeout", "timeout", "timeout"),
        ("cancelled", "cancelled", "CancelledError"),
        ("wait_for", "cancelled", "CancelledError"),
        ("closed by another task", None, None),
    ],
)
def test_waiting_stream_that_ends_from_outside(
    transport: str, ends: str, outcome: str, error_type: str
) -> None:
    """Over a socket, with the SDK's own transports."""
    # Before 1.41 the SDK lets the timeout of its HTTP library through.
    raised = httpx.ReadTimeout if openai.__version__.startswith("1.40.") else openai.APITimeoutError
    if transport == "aiohttp":
        pytest.importorskip("aiohttp")
        if not hasattr(openai, "DefaultAioHttpClient"):
            pytest.skip("this version of the SDK has no such client")
    records: list[Any] = []

    async def main() -> None:
        server = await asyncio.start_server(two_chunks_and_silence, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        http = openai.DefaultAioHttpClient() if transport == "aiohttp" else None
        limit = 0.3 if ends == "timeout" else 30.0
        async with AsyncOpenAI(
            base_url=url, api_key="x", max_retries=0, timeout=limit, http_client=http
        ) as client:
            midstream.monitor(client, on_end=records.append)
            stream = await client.chat.completions.create(model="m", messages=[], stream=True)

            async def read() -> None:
                async for _ in stream:
                    pass

            if ends == "wait_for":
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(read(), 0.3)
            elif ends == "timeout":
                with pytest.raises(raised):
                    await read()
            else:
                task = asyncio.create_task(read())
                await asyncio.sleep(0.3)
                if ends == "cancelled":
                    task.cancel()
                else:
                    await stream.close()
                    await asyncio.sleep(0.1)
                    task.cancel()
                await asyncio.wait([task])
        server.close()
        await asyncio.wait(handlers, timeout=10)
        handlers.clear()

    asyncio.run(main())
    until(lambda: len(records) == 1)

    record = records[0]
    assert record.max_gap_open
    if outcome is not None:
        assert (record.outcome.value, record.error_type) == (outcome, error_type)
    assert record.outcome.value not in {"completed", "unread", "empty"}
