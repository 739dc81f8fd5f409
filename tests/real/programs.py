"""Real programs on free ports of the loopback: how to run them, and how to ask them what they saw."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from support.waiting import until

if TYPE_CHECKING:
    from typing_extensions import Self


def absent(program: str) -> NoReturn:
    """Skip the test, or fail it where nothing may be missing."""
    reason = f"{program} is not installed"
    if os.environ.get("MIDSTREAM_TEST_REQUIRE_REAL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Tell whether somebody accepts connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def fetch(url: str) -> bytes:
    """Get the body of an answer."""
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - only urls of our own making
        body: bytes = response.read()
        return body


def answers(url: str) -> bool:
    """Tell whether there is a good answer."""
    try:
        fetch(url)
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


@contextmanager
def running(command: list[str], output: Path, ready: Callable[[], object]) -> Iterator[None]:
    """Run a program from the moment it is ready to the end of the block."""
    with output.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until(lambda: process.poll() is not None or ready(), timeout_s=20)
            assert process.poll() is None, output.read_text()
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


@dataclass(frozen=True)
class Prometheus:
    """A real Prometheus that scrapes one target every second."""

    url: str

    def get(self, path: str, **parameters: str) -> Any:
        """Ask its API."""
        return json.loads(fetch(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]

    def query(self, expression: str) -> dict[str, float]:
        """Evaluate an expression now: values by their labels."""
        found: dict[str, float] = {}
        for sample in self.get("query", query=expression)["result"]:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample["metric"].items()))
            found[labels] = float(sample["value"][1])
        return found

    def value(self, expression: str) -> float | None:
        """Evaluate an expression that has one value, or none yet."""
        values = list(self.query(expression).values())
        assert len(values) <= 1, values
        return values[0] if values else None

    def series(self, match: str) -> list[dict[str, str]]:
        """List the label sets of the series that match."""
        found: list[dict[str, str]] = self.get("series", **{"match[]": match})
        return found


class Backend:
    """What a collector sends on to: keeps all that arrives."""

    def __init__(self) -> None:
        received: list[ExportMetricsServiceRequest] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                # Whatever it is told about compression, rotel compresses.
                received.append(ExportMetricsServiceRequest.FromString(gzip.decompress(body)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

        self._received = received
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def metrics(self, service: str) -> dict[str, Any]:
        """Give the last state of every metric of a service, by name."""
        return {
            metric.name: metric
            for request in list(self._received)
            for resource in request.resource_metrics
            if service in [entry.value.string_value for entry in resource.resource.attributes]
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@dataclass(frozen=True)
class Collector:
    """A real collector: its two addresses, and what came out at its other end."""

    grpc: str
    http: str
    backend: Backend
