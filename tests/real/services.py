"""Applications that stream through midstream, run by the servers that people deploy, over loopback."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.wire import WireServer
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from real.programs import free_port, listens
from support.waiting import until

if TYPE_CHECKING:
    from typing_extensions import Self

APPLICATION = """
import json, os, sys
from openai import AsyncOpenAI, OpenAI
import midstream

setup = json.loads(os.environ["SETUP"])
if setup is not None:
    midstream.setup(**setup)
ASK = dict(model="m", messages=[{"role": "user", "content": "a"}], stream=True)
own = dict(api_key="none", base_url=os.environ["UPSTREAM"], max_retries=0)
journal = os.environ.get("JOURNAL")

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    async with AsyncOpenAI(**own) as client:
        midstream.monitor(client, journal=journal)
        chunks = [chunk async for chunk in await client.chat.completions.create(**ASK)]
    body = json.dumps({"pid": os.getpid(), "chunks": len(chunks)}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})

sync_client = None

def wsgi(environ, start_response):
    global sync_client
    if sync_client is None:
        sync_client = midstream.monitor(OpenAI(**own), journal=journal)
    chunks = list(sync_client.chat.completions.create(**ASK))
    start_response("200 OK", [("content-type", "application/json")])
    return [json.dumps({"pid": os.getpid(), "chunks": len(chunks)}).encode()]
"""

SERVERS = {
    "uvicorn": ["uvicorn", "application:app", "--port={port}", "--log-level=warning"],
    "uvicorn with 2 workers": ["uvicorn", "application:app", "--port={port}", "--log-level=warning", "--workers=2"],
    "gunicorn": ["gunicorn", "application:wsgi", "--bind=127.0.0.1:{port}", "--log-level=warning", "--workers=2",
                 "--threads=4"],
    "gunicorn with uvicorn's workers": ["gunicorn", "application:app", "--bind=127.0.0.1:{port}",
                                        "--log-level=warning", "--workers=2",
                                        "--worker-class=uvicorn_worker.UvicornWorker"],
    "hypercorn": ["hypercorn", "application:app", "--bind=127.0.0.1:{port}", "--graceful-timeout=10"],
    "granian": ["granian", "application:app", "--interface=asgi", "--port={port}", "--no-access-log",
                "--log-level=warning", "--workers=2"],
}  # fmt: skip


def frame(content: str = "", **choice: Any) -> str:
    """One event of a chat answer."""
    delta = {"content": content} if content else {}
    body = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None, **choice}],
    }
    return f"data: {json.dumps(body)}\n\n"


def answer(seconds: float) -> list[tuple[float, str]]:
    """An answer of two pieces that takes this long."""
    return [
        (0.0, frame("a")),
        (seconds, frame("b")),
        (seconds, frame(finish_reason="stop") + "data: [DONE]\n\n"),
    ]


@dataclass
class Service:
    """A server at work, with the application of this module."""

    process: subprocess.Popen[bytes]
    port: int
    pool: ThreadPoolExecutor

    def ask(self) -> Future[dict[str, Any]]:
        """Ask for one answer; its result names the worker that gave it, and the chunks that it read."""
        return self.pool.submit(self._ask)

    def _ask(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=60) as response:
            answered: dict[str, Any] = json.load(response)
            return answered


@contextmanager
def serving(
    command: list[str],
    home: Path,
    upstream: str,
    *,
    setup: dict[str, Any] | None,
    journal: Path | None = None,
    application: str = APPLICATION,
    **environ: str,
) -> Iterator[Service]:
    """Run a server from the moment it listens to the end of the block."""
    (home / "application.py").write_text(application)
    port = free_port()
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MIDSTREAM_"))}
    known = {"UPSTREAM": upstream, "SETUP": json.dumps(setup), "MIDSTREAM_RUNTIME_DIR": str(home / "runtime")}
    if journal is not None:
        known["JOURNAL"] = str(journal)
    with (home / "output").open("wb") as output, ThreadPoolExecutor(16) as pool:
        process = subprocess.Popen(
            [sys.executable, "-m", *(part.format(port=port) for part in command)],
            cwd=home,
            env={**own, **known, **environ},
            stdout=output,
            stderr=output,
        )
        try:
            until(lambda: process.poll() is not None or listens(port), 60)
            assert process.poll() is None, (home / "output").read_text()
            yield Service(process, port, pool)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


class Collector:
    """Keeps what arrives by OTLP over HTTP."""

    def __init__(self) -> None:
        self._received: list[ExportMetricsServiceRequest] = []
        received = self._received

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                received.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def total(self, name: str) -> float:
        """The sum of a counter over all instances of all services: of each what it sent last."""
        latest: dict[str, float] = {}
        for request in list(self._received):
            for resource in request.resource_metrics:
                named = {entry.key: entry.value.string_value for entry in resource.resource.attributes}
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        if metric.name == name:
                            points = metric.sum.data_points
                            value = sum(point.as_int or point.as_double for point in points)
                            latest[named["service.instance.id"]] = value
        return sum(latest.values())


@contextmanager
def upstream(seconds: float) -> Iterator[WireServer]:
    """An OpenAI-compatible server whose answers take this long."""
    with WireServer(answer(seconds)) as server:
        yield server
