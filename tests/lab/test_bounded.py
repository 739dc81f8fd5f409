"""Servers of the lab against clients that mean no good: connections, hosts, origins, bodies, odd JSON."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from midstream.cli.dashboard.page import DashboardPage
from midstream.lab.emulation import Emulated, emulator
from midstream.lab.library import packaged_recordings
from midstream.lab.replay import replayer
from midstream.lab.server import serve
from midstream.monitoring.alerts import Naming
from midstream.monitoring.dashboards import DASHBOARDS

MOST = 200


@contextmanager
def emulating(allow_hosts: tuple[str, ...] = ()) -> Iterator[int]:
    with serve(emulator(Emulated(speed=1000.0)), allow_hosts=allow_hosts) as url:
        yield int(url.rpartition(":")[2].partition("/")[0])


@contextmanager
def replaying(allow_hosts: tuple[str, ...] = ()) -> Iterator[int]:
    with serve(replayer(packaged_recordings(), speed=1000.0), allow_hosts=allow_hosts) as url:
        yield int(url.rpartition(":")[2].partition("/")[0])


@contextmanager
def showing(allow_hosts: tuple[str, ...] = ()) -> Iterator[int]:
    dashboard = DASHBOARDS["overview"](Naming.PROMETHEUS)
    with DashboardPage(("127.0.0.1", 0), "http://127.0.0.1:9", dashboard, allow_hosts=allow_hosts) as page:
        yield page.server_port


LISTENERS = pytest.mark.parametrize(
    ("listener", "path"), [(emulating, "/v1/models"), (replaying, "/v1/models"), (showing, "/")]
)
SERVERS = pytest.mark.parametrize("listener", [emulating, replaying])


def exchanged(port: int, request: bytes) -> tuple[int, bytes]:
    """Send bytes, and return the status and the body that come back; status 0 if there is none."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        read = b""
        try:
            while part := connection.recv(65536):
                read += part
        except ConnectionResetError:
            pass
    head, _, body = read.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body


def get(port: int, path: str, **headers: str) -> int:
    lines = [f"GET {path} HTTP/1.1", *(f"{name.title()}: {value}" for name, value in headers.items())]
    return exchanged(port, "\r\n".join([*lines, "Connection: close", "", ""]).encode())[0]


def post(port: int, body: bytes, path: str = "/v1/chat/completions") -> tuple[int, Any]:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    status, answer = exchanged(port, head.encode() + body)
    return status, json.loads(answer) if answer[:1] in (b"{", b"[") else answer


@LISTENERS
def test_a_loopback_listener_answers_its_own_hosts_only(listener: Any, path: str) -> None:
    """A name that was rebound to 127.0.0.1 reaches nothing."""
    with listener() as port:
        assert [get(port, path, host=host) for host in ("127.0.0.1", f"localhost:{port}", "[::1]")] == [
            200
        ] * 3
        assert [get(port, path, host=host) for host in ("evil.example", "127.0.0.1.evil.example:80")] == [
            403
        ] * 2
    with listener(("gpu.example",)) as port:
        assert get(port, path, host="gpu.example:8000") == 200
        assert get(port, path, host="evil.example") == 403


@LISTENERS
def test_pages_of_other_sites_are_refused(listener: Any, path: str) -> None:
    """A script on another site may send a simple request without asking."""
    with listener() as port:
        for origin in ("http://evil.example", "null", "https://127.0.0.1.evil.example", "http://["):
            assert get(port, path, host="127.0.0.1", origin=origin) == 403
        assert get(port, path, host=f"127.0.0.1:{port}", origin=f"http://127.0.0.1:{port}") == 200


@SERVERS
def test_connections_without_a_request_are_bounded(listener: Any) -> None:
    """The oldest are closed, and another client is still answered."""
    with listener() as port, ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(MOST + 30)]
        assert get(port, "/v1/models", host="localhost") == 200
        idle[0].settimeout(30)
        assert idle[0].recv(1) == b""


def test_a_connection_on_which_no_request_comes_is_closed() -> None:
    """Whether nothing comes, or a byte of a header from time to time."""
    with emulating() as port:
        quiet = socket.create_connection(("127.0.0.1", port))
        slow = socket.create_connection(("127.0.0.1", port))
        with quiet, slow:
            slow.sendall(b"GET /v1/models HTTP/1.1\r\nX: ")
            began = time.monotonic()
            slow.settimeout(0.5)
            while time.monotonic() - began < 60:
                try:
                    if slow.recv(1) == b"":
                        break
                except TimeoutError:
                    slow.sendall(b"a")
                except ConnectionError:
                    break
            quiet.settimeout(30)
            assert quiet.recv(1) == b""
        assert 5 < time.monotonic() - began < 50


@SERVERS
def test_a_body_without_an_end_is_refused(listener: Any) -> None:
    """By its announced length, and by what comes."""
    with listener() as port:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        status, body = exchanged(port, head + b"Content-Length: 99999999999\r\n\r\n")
        assert status == 413
        assert json.loads(body)["error"]["message"] == "The request body is longer than 8 MiB."
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
            sent = 0
            try:
                for _ in range(64):
                    sent += connection.send(chunk)
            except OSError:
                pass
            assert sent < 40 * len(chunk)


ODD = [
    b"[" * 100_000,
    b"null",
    b"[]",
    b'"x"',
    b"NaN",
    b"\xff\xfe",
    b"9" * 5000,
    b'{"model": ' + b'{"a":' * 5000,
    b'{"model": "\\ud800", "messages": []}',
    b'{"model": ["x"], "messages": [], "stream": true}',
    b'{"messages": [{"content": 5}], "n": 1000000000}',
    b'{"messages": [{"content": "x"}], "n": 1e400}',
    b'{"messages": [{"content": "x"}], "n": ' + b"9" * 400 + b"}",
    b'{"messages": [{"content": "x"}], "max_tokens": "many"}',
    b'{"messages": "x"}',
    b'{"messages": [{"content": "x"}], "emulate": {"answer_tokens": 1000000000}}',
    b'{"messages": [{"content": "x"}], "tools": [{}], "tool_choice": {"function": "x"}}',
    (
        b'{"messages": [{"content": "x"}], "tools": [{"function": {"name": 1, "parameters": {"properties": {"a": 3}, '
        b'"required": [[], {}]}}}]}'
    ),
    b'{"messages": [{"content": ' + b"[" * 400 + b"]" * 400 + b'}], "n": 2000}',
]


@SERVERS
@pytest.mark.parametrize("body", ODD, ids=lambda body: repr(body[:30]))
def test_odd_json_is_refused_in_the_shape_of_openai(
    listener: Any, body: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a status of the client's, and without a traceback."""
    with listener() as port:
        status, answer = post(port, body)
        assert post(port, b'{"model": "nobody", "messages": []}', "/v1/chat/completions")[0] in (200, 404)
    assert 400 <= status < 500, answer
    error = answer.get("error", answer)
    assert isinstance(error["message"], str)
    assert capfd.readouterr().err == ""


@LISTENERS
def test_resets_and_noise_print_nothing(listener: Any, path: str, capfd: pytest.CaptureFixture[str]) -> None:
    with listener() as port:
        for request in (
            b"",
            b"\x16\x03\x01\x02\x00",
            b"GET / HTTP/9\r\n\r\n",
            f"GET {path} HTTP/1.1\r\n".encode(),
        ):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(request)
            connection.close()
        assert get(port, path, host="localhost") == 200
    assert capfd.readouterr().err == ""
