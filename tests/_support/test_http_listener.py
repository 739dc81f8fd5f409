"""The listener takes a bounded share of its program, whatever its clients do, and answers whom it should."""

from __future__ import annotations

import logging
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import pytest

from midstream._support import internal_errors
from midstream._support.http_hosts import host_of, is_loopback, url_host
from midstream._support.http_listener import (
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    HttpListener,
    HttpRequest,
    HttpResponse,
)
from support.waiting import until


def page(request: HttpRequest) -> HttpResponse:
    """Answer with what was asked for; fail where that is asked for."""
    if request.path == "/fails":
        raise RuntimeError("secret words")
    if request.path == "/large":
        return HttpResponse(b"x" * 8_000_000, "text/plain")
    return HttpResponse(f"{request.path}?{request.query}".encode(), "text/plain")


@pytest.fixture
def listener() -> Iterator[HttpListener]:
    listener = HttpListener("127.0.0.1", 0, page)
    listener.start()
    yield listener
    listener.close()


def connect(listener: HttpListener) -> socket.socket:
    return socket.create_connection(("127.0.0.1", listener.port), timeout=10)


def exchange(listener: HttpListener, request: str) -> str:
    """Send these bytes, and read until the listener closes."""
    with connect(listener) as client:
        client.sendall(request.encode("latin-1"))
        return b"".join(iter(lambda: client.recv(65536), b"")).decode("latin-1")


def get(listener: HttpListener, path: str = "/", host: str = "localhost") -> str:
    return exchange(listener, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")


def status(response: str) -> int:
    return int(response.split(" ", 2)[1])


def test_a_request_gets_its_response_and_the_connection_is_closed(listener: HttpListener) -> None:
    head, _, body = get(listener, "/metrics?a=b").partition("\r\n\r\n")

    assert head.splitlines() == [
        "HTTP/1.1 200 OK",
        "Content-Type: text/plain",
        "Content-Length: 12",
        "Connection: close",
        "X-Content-Type-Options: nosniff",
    ]
    assert body == "/metrics?a=b"


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        ("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        ("GET / HTTP/1.0\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\n\r\n", 400),  # no Host
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        ("GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET / HTTP/2\r\nHost: localhost\r\n\r\n", 400),
        ("GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n folded: 1\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 405),
        ("GET /" + "a" * MAX_HEAD_BYTES + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
    ],
)
def test_what_is_not_a_plain_get_is_refused_with_its_status(
    listener: HttpListener, request_text: str, expected: int
) -> None:
    assert status(exchange(listener, request_text)) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200),
        ("LOCALHOST.:9464", 200),
        ("app.localhost", 200),
        ("127.0.0.1:80", 200),
        ("127.9.9.9", 200),
        ("[::1]:9464", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.168.0.1", 403),
        ("[::1", 403),
        ("localhost:port", 403),
        ("", 403),
    ],
)
def test_on_loopback_only_loopback_hosts_are_answered(
    listener: HttpListener, host: str, expected: int
) -> None:
    """A page from the web whose name was rebound to 127.0.0.1 sends its own name."""
    assert status(get(listener, host=host)) == expected


@pytest.mark.parametrize(
    ("address", "allow_hosts", "host", "expected"),
    [
        ("127.0.0.1", ("metrics.internal",), "Metrics.Internal:80", 200),
        ("127.0.0.1", ("metrics.internal",), "localhost", 200),
        ("127.0.0.1", ("metrics.internal",), "evil.example", 403),
        ("127.0.0.1", ("*",), "evil.example", 200),
        ("0.0.0.0", (), "app.internal", 200),
        ("0.0.0.0", ("app.internal",), "evil.example", 403),
    ],
)
def test_more_hosts_can_be_allowed(
    address: str, allow_hosts: tuple[str, ...], host: str, expected: int
) -> None:
    listener = HttpListener(address, 0, page, allow_hosts=allow_hosts)
    listener.start()
    try:
        assert status(get(listener, host=host)) == expected
    finally:
        listener.close()


def test_idle_connections_are_bounded_and_keep_nobody_out(listener: HttpListener) -> None:
    """The oldest idle one is closed for each new one."""
    idle = [connect(listener) for _ in range(3 * MAX_CONNECTIONS)]

    assert status(get(listener)) == 200
    assert len(listener._connections) <= MAX_CONNECTIONS
    assert idle[0].recv(1) == b""
    for client in idle:
        client.close()


def test_one_thread_serves_all(listener: HttpListener) -> None:
    clients = [connect(listener) for _ in range(10)]
    get(listener)

    names = [thread.name for thread in threading.enumerate()]
    assert names.count("midstream-http") == 1
    for client in clients:
        client.close()


def test_a_client_that_is_slow_to_ask_or_to_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte by byte is no excuse: the limit is on the whole request, and on the whole response."""
    monkeypatch.setattr("midstream._support.http_listener.READ_TIMEOUT_S", 0.5)
    monkeypatch.setattr("midstream._support.http_listener.WRITE_TIMEOUT_S", 0.5)
    listener = HttpListener("127.0.0.1", 0, page)
    listener.start()
    try:
        with connect(listener) as asks, connect(listener) as reads:
            reads.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            began = time.monotonic()
            with pytest.raises(OSError, match=r".*"):
                while time.monotonic() < began + 10:
                    asks.sendall(b"a")
                    time.sleep(0.05)
            assert time.monotonic() - began < 9
            until(lambda: not listener._connections)
    finally:
        listener.close()


def test_resets_and_failures_of_the_page_leave_no_traceback(
    listener: HttpListener, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The program's stderr is the program's; the log gets one line without the words of the exception."""
    monkeypatch.setattr("midstream._support.internal_errors.RAISE", False)
    monkeypatch.setattr(internal_errors, "_internal_errors", internal_errors.OnceLog())
    caplog.set_level(logging.WARNING)
    for sent in (b"", b"GET / HT", b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        client = connect(listener)
        client.sendall(sent)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # a reset

    assert status(get(listener, "/fails")) == 500
    assert status(get(listener, "/fails")) == 500
    assert status(get(listener)) == 200
    assert capfd.readouterr() == ("", "")
    assert [record.getMessage() for record in caplog.records] == [
        "the HTTP listener failed with RuntimeError; one request was not answered"
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="a limit of file descriptors is set")
def test_connections_do_not_take_the_file_descriptors_of_the_program() -> None:
    """Under `ulimit -n 256` the program's own calls work, and when none is left the listener waits without spinning."""
    program = textwrap.dedent(
        """
        import resource, socket, threading, time
        from midstream._support.http_listener import HttpListener, HttpResponse
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        listener = HttpListener("127.0.0.1", 0, lambda request: HttpResponse(b"", "text/plain"))
        listener.start()
        print(listener.port, flush=True)
        input()
        own = [socket.socket() for _ in range(200)]
        print(len(own), flush=True)
        while True:
            try:
                own.append(socket.socket())
            except OSError:
                break
        began, spent = time.monotonic(), time.process_time()
        input()
        print((time.process_time() - spent) / (time.monotonic() - began) < 0.3, flush=True)
        del own  # the interpreter opens a library when it ends a thread
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        idle = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(100)]
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "200\n"
        idle += [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(20)]
        time.sleep(1.0)  # the time in which a loop that spins would burn a processor
        process.stdin.write("\n")
        process.stdin.close()
        assert process.stdout.read() == "True\n"
        for client in idle:
            client.close()
    assert process.returncode == 0


def test_closing_frees_the_port_and_every_descriptor() -> None:
    listener = HttpListener("127.0.0.1", 0, page)
    listener.start()
    client = connect(listener)
    get(listener)
    listener.close()

    assert client.recv(1) == b""
    client.close()
    with socket.create_server(("127.0.0.1", listener.port)):
        pass
    assert not any(thread.name == "midstream-http" for thread in threading.enumerate())


def test_a_taken_port_is_known_when_the_listener_is_made(listener: HttpListener) -> None:
    with pytest.raises(OSError, match="ddress already in use"):
        HttpListener("127.0.0.1", listener.port, page)


def test_hosts_are_told_apart_and_written_as_they_are_opened() -> None:
    assert [
        is_loopback(host) for host in ("127.0.0.2", "::1", "::ffff:127.0.0.1", "localhost", "0.0.0.0")
    ] == [
        True,
        True,
        True,
        True,
        False,
    ]
    assert [host_of(header) for header in ("A:1", "[::1]:1", "[::1]x", "a:b:c", ":1")] == [
        "a",
        "::1",
        None,
        None,
        None,
    ]
    assert [url_host(host) for host in ("127.0.0.1", "::1", "0.0.0.0", "::")] == [
        "127.0.0.1",
        "[::1]",
        "localhost",
        "localhost",
    ]
