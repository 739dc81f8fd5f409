"""Sizes that few tests have, over real sockets: huge chunks and very many of them, in the clear and over TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

import midstream
from midstream.testing import http_library
from support.certificate import CERTIFICATE
from support.waiting import until

KINDS = ["sync", "async"]


def event(**fields: Any) -> bytes:
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **fields}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def content(text: str) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": None}])


END = event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]) + b"data: [DONE]\n\n"


class Handler(BaseHTTPRequestHandler):
    """Answers by the name of the model: `big`, `many`, or two chunks."""

    def log_message(self, *_args: Any) -> None:
        pass

    def do_POST(self) -> None:
        model = json.loads(self.rfile.read(int(self.headers["content-length"])))["model"]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if model == "big":
            for _ in range(3):
                self.wfile.write(content("x" * 5_000_000))
        elif model == "many":
            for _ in range(5):
                self.wfile.write(content("x") * 1000)
        else:
            self.wfile.write(content("a") + content("b"))
        self.wfile.write(END)


@pytest.fixture(params=["http", "https"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Any]]:
    """The base URL, and what a client needs to trust it."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    trust: Any = True
    if request.param == "https":
        file = tmp_path / "certificate.pem"
        file.write_text(CERTIFICATE)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        made.socket = context.wrap_socket(made.socket, server_side=True)
        trust = ssl.create_default_context(cafile=str(file))
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"{request.param}://127.0.0.1:{made.server_address[1]}/v1", trust
    made.shutdown()
    made.server_close()


def read(kind: str, url: str, verify: Any, model: str, **settings: Any) -> tuple[int, int]:
    """Read a stream with a monitored client: how many chunks came, and how many characters."""

    async def aread() -> tuple[int, int]:
        http = http_library().AsyncClient(verify=verify)
        async with AsyncOpenAI(api_key="k", base_url=url, max_retries=0, http_client=http) as client:
            midstream.monitor(client, **settings)
            stream = await client.chat.completions.create(model=model, messages=[], stream=True)
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
            return len(pieces), sum(map(len, pieces))

    if kind == "async":
        return asyncio.run(aread())
    http = http_library().Client(verify=verify)
    with OpenAI(api_key="k", base_url=url, max_retries=0, http_client=http) as client:
        midstream.monitor(client, **settings)
        stream = client.chat.completions.create(model=model, messages=[], stream=True)
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
        return len(pieces), sum(map(len, pieces))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("model", "chunks", "characters"), [("big", 4, 15_000_000), ("many", 5_001, 5_000), ("small", 3, 2)]
)
def test_sizes_make_no_difference(
    server: tuple[str, Any], model: str, chunks: int, characters: int, kind: str
) -> None:
    """Every chunk reaches the caller and is counted, and a server that never paused has no freeze."""
    url, trust = server
    records: list[midstream.StreamRecord] = []

    assert read(kind, url, trust, model, on_end=records.append) == (chunks, characters)
    until(lambda: len(records) == 1)

    record = records[0]
    assert (record.outcome.value, record.chunks, record.content_chunks) == ("completed", chunks, chunks - 1)
    assert (record.freezes, record.hidden, record.error_type) == (0, 0, None)
