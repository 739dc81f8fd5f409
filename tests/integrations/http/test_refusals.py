"""Calls that fail before their stream: the transport door counts them as the door of the SDK does, label for label."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import httpx
import pytest
import requests
from openai import AsyncOpenAI, OpenAI
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from midstream import monitor

ASK: dict[str, Any] = {"model": "asked", "messages": [{"role": "user", "content": "hi"}], "stream": True}
CHAT = "/v1/chat/completions"
PATIENCE_S = 0.3
"""How long a client waits for a server that never answers."""


class _Refusing(BaseHTTPRequestHandler):
    """Answers with the status that its path begins with; never if it is `/0`."""

    protocol_version = "HTTP/1.1"
    released = threading.Event()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status = int(self.path.split("/")[1])
        if status == 0:
            self.released.wait(20)
            return
        body = json.dumps({"error": {"message": "no"}}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as listening:
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        _Refusing.released.set()
        listening.shutdown()


@pytest.fixture(scope="module")
def nowhere() -> Iterator[str]:
    """An address that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


Watch = Callable[[Any], Any]
DOORS: dict[str, Callable[[Watch, str, Any], Coroutine[Any, Any, None]]] = {}


def door(call: Callable[[Watch, str, Any], Coroutine[Any, Any, None]]) -> Any:
    DOORS[call.__name__] = call
    return call


@door
async def sdk(watch: Watch, base: str, ask: Any) -> None:
    client = watch(OpenAI(api_key="k", base_url=f"{base}/v1", max_retries=0, timeout=PATIENCE_S))
    client.chat.completions.create(**ask)


@door
async def sdk_async(watch: Watch, base: str, ask: Any) -> None:
    async with watch(
        AsyncOpenAI(api_key="k", base_url=f"{base}/v1", max_retries=0, timeout=PATIENCE_S)
    ) as client:
        await client.chat.completions.create(**ask)


@door
async def httpx_sync(watch: Watch, base: str, ask: Any) -> None:
    with watch(httpx.Client(timeout=PATIENCE_S)) as client:
        client.post(base + CHAT, json=ask).raise_for_status()


@door
async def httpx_async(watch: Watch, base: str, ask: Any) -> None:
    async with (
        watch(httpx.AsyncClient(timeout=PATIENCE_S)) as client,
        client.stream("POST", base + CHAT, json=ask) as response,
    ):
        response.raise_for_status()


@door
async def aiohttp_session(watch: Watch, base: str, ask: Any) -> None:
    patience = aiohttp.ClientTimeout(PATIENCE_S)
    async with (
        watch(aiohttp.ClientSession(timeout=patience)) as session,
        session.post(base + CHAT, json=ask) as response,
    ):
        response.raise_for_status()


@door
async def aiohttp_raising(watch: Watch, base: str, ask: Any) -> None:
    """A session that raises for a status by itself, with a base URL, and a body that is text."""
    patience = aiohttp.ClientTimeout(PATIENCE_S)
    async with watch(aiohttp.ClientSession(base + "/", timeout=patience, raise_for_status=True)) as session:
        await session.request("post", CHAT.removeprefix("/"), data=json.dumps(ask))


@door
async def requests_session(watch: Watch, base: str, ask: Any) -> None:
    with watch(requests.Session()) as session:
        session.post(base + CHAT, json=ask, timeout=PATIENCE_S).raise_for_status()


def operations(name: str, base: str, ask: Any = ASK) -> list[tuple[dict[str, Any], bool]]:
    """The labels of the operations that this door has counted, and if each took the time that it may."""
    reader = InMemoryMetricReader()
    records: list[Any] = []
    provider = MeterProvider(metric_readers=[reader])

    def watch(client: Any) -> Any:
        return monitor(client, meter_provider=provider, on_end=records.append)

    async def call() -> None:
        with suppress(Exception):
            await DOORS[name](watch, base, ask)

    asyncio.run(call())
    data = reader.get_metrics_data()
    found = {
        metric.name: list(metric.data.data_points)
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert records == []
    assert set(found) <= {"gen_ai.client.operation.duration"}
    points: list[Any] = found.get("gen_ai.client.operation.duration", [])
    assert all(point.count == 1 for point in points)
    return [(dict(point.attributes), 0.0 < point.sum < 20.0) for point in points]


FAILURES = {
    "400": "BadRequestError",
    "401": "AuthenticationError",
    "403": "PermissionDeniedError",
    "404": "NotFoundError",
    "409": "ConflictError",
    "418": "APIStatusError",
    "422": "UnprocessableEntityError",
    "429": "RateLimitError",
    "500": "InternalServerError",
    "503": "InternalServerError",
    "0": "timeout",
}


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_refusal_is_an_operation_with_the_same_labels_at_every_door(
    failure: str, name: str, server: str
) -> None:
    """Status codes have the names that the SDK gives them; a server that never answers is a timeout."""
    port = server.rpartition(":")[2]

    assert operations(name, f"{server}/{failure}") == [
        (
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "asked",
                "server.address": "127.0.0.1",
                "server.port": port,
                "error.type": FAILURES[failure],
            },
            True,
        )
    ]


@pytest.mark.parametrize("name", DOORS)
def test_a_connection_that_is_refused_is_an_operation(name: str, nowhere: str) -> None:
    """Whatever each library calls it."""
    ((labels, timed),) = operations(name, nowhere)

    assert (labels["error.type"], labels["gen_ai.request.model"], timed) == (
        "APIConnectionError",
        "asked",
        True,
    )


@pytest.mark.parametrize("name", [name for name in DOORS if "sdk" not in name])
@pytest.mark.parametrize("ask", [{"model": "m", "messages": []}, {"stream": True}, {"stream": False}, []])
def test_a_refusal_of_something_else_is_none_of_ours(name: str, ask: Any, server: str, nowhere: str) -> None:
    """Calls that ask for no stream are not counted, whether they fail here or there."""
    expected = [] if not isinstance(ask, dict) or ask.get("stream") is not True else ["NotFoundError"]

    assert [labels["error.type"] for labels, _ in operations(name, f"{server}/404", ask)] == expected
    assert len(operations(name, nowhere, ask)) == len(expected)


@pytest.mark.parametrize("cut", ["closed", "reset"])
@pytest.mark.parametrize("name", DOORS)
def test_a_connection_that_breaks_before_the_head_is_an_operation(name: str, cut: str) -> None:
    """Closed by a server that was about to answer, or reset."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def break_off() -> None:
            taken, _ = listening.accept()
            taken.recv(65536)
            if cut == "reset":
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            taken.close()

        breaking = threading.Thread(target=break_off, daemon=True)
        breaking.start()
        ((labels, timed),) = operations(name, f"http://127.0.0.1:{listening.getsockname()[1]}")
        breaking.join(5)

    assert (labels["error.type"], timed) == ("APIConnectionError", True)
