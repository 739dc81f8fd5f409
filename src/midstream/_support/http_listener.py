"""A small HTTP server for pages of this process: one thread, few connections, a time limit on everything.

It answers GET and HEAD, one request for each connection. It is made for programs that have other work to do: it cannot
take their file descriptors, their threads or their log, whatever clients do. On a loopback address it answers loopback
hosts only, so that a web page whose name was rebound to 127.0.0.1 cannot read it.

    listener = HttpListener("127.0.0.1", 0, lambda request: HttpResponse(b"hello", "text/plain"))
    listener.start()
    ...
    listener.close()
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

from midstream._support.http_hosts import host_of, is_loopback, url_host
from midstream._support.internal_errors import report_internal_error

MAX_CONNECTIONS = 16
"""Open at the same time. One more closes the oldest that has not sent its request yet."""
MAX_HEAD_BYTES = 16 * 1024
READ_TIMEOUT_S = 10.0
"""How long a client may take to send its request, from the connection to the last byte."""
WRITE_TIMEOUT_S = 30.0
"""How long a client may take to read the response."""
DRAIN_TIMEOUT_S = 1.0
"""How long the connection stays open after the response, so that a client that still sends gets to read it."""
ACCEPT_RETRY_S = 1.0
"""How long no connection is accepted after the system refused one, such as without free file descriptors."""

_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A GET or HEAD request. Names of headers are in lower case; of a repeated one the last value counts."""

    path: str
    query: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole response. Its length and `Connection: close` are added."""

    body: bytes
    content_type: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[HttpRequest], HttpResponse]
"""Runs on the listener's only thread, so it should take no longer than another client can wait."""


class HttpListener:
    """Bound to its port when it is made, so that a taken one is known at once; answers from `start()` on.

    `allow_hosts`: names for the `Host` header that are answered beside loopback ones (`"*"`: any). A listener on an
    address that other machines reach answers any name, unless `allow_hosts` says which.
    Raises OSError if the address cannot be had.
    """

    def __init__(
        self,
        host: str,
        port: int,
        handler: Handler,
        *,
        allow_hosts: Collection[str] = (),
        name: str = "midstream-http",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        address = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][4]
        self._listener = socket.create_server(
            (str(address[0]), port),
            family=family,
            dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
        )
        self._listener.setblocking(False)
        self.host = host
        self.port: int = self._listener.getsockname()[1]
        self._handler = handler
        self._clock = clock
        self._allowed = {name.lower().rstrip(".") for name in allow_hosts} | {host.lower()}
        self._any_host = "*" in self._allowed or not (is_loopback(str(address[0])) or allow_hosts)
        self._selector = selectors.DefaultSelector()
        self._waker, self._wake = socket.socketpair()
        self._waker.setblocking(False)
        self._connections: dict[socket.socket, _HttpConnection] = {}  # the oldest first
        self._accept_at = 0.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def url(self) -> str:
        """Where a client on this machine finds it, without a path."""
        return f"http://{url_host(self.host)}:{self.port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering, free the port and cut what is open."""
        self._closing.set()
        with suppress(OSError):
            self._wake.send(b"x")
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(2 * ACCEPT_RETRY_S)
        self.release()

    def release(self) -> None:
        """Close every file descriptor and nothing else: for a forked child, which has a copy of each but no thread."""
        for connection in list(self._connections):
            connection.close()
        self._connections = {}
        for each in (self._listener, self._waker, self._wake):
            each.close()
        self._selector.close()  # it does not unregister: a parent and its child share what is registered

    # The thread

    def _run(self) -> None:
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while not self._closing.is_set():
            try:
                self._turn()
            except Exception as exc:  # noqa: BLE001, PERF203 - the thread must outlive a fault
                if self._closing.is_set():
                    return
                report_internal_error("HTTP listener", exc, "one request was not answered")

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._timeout_s()):
            if key.fileobj is self._waker:
                return
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._connections:
                self._serve(key.fileobj, self._connections[key.fileobj])
        now = self._clock()
        for sock, connection in list(self._connections.items()):
            if now >= connection.deadline:
                self._drop(sock)
        if self._accept_at and now >= self._accept_at:
            self._accept_at = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _timeout_s(self) -> float | None:
        moments = [connection.deadline for connection in self._connections.values()]
        if self._accept_at:
            moments.append(self._accept_at)
        return max(0.0, min(moments) - self._clock()) if moments else None

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # it has gone again
        except OSError:  # without a pause the selector would report the listener again at once
            self._selector.unregister(self._listener)
            self._accept_at = self._clock() + ACCEPT_RETRY_S
            return
        sock.setblocking(False)
        while len(self._connections) >= MAX_CONNECTIONS:
            # A client that was answered and one that is reading come before one that only connected.
            idle = (each for each, connection in self._connections.items() if connection.head is not None)
            self._drop(next(idle, next(iter(self._connections))))
        self._connections[sock] = _HttpConnection(self._clock() + READ_TIMEOUT_S)
        self._selector.register(sock, selectors.EVENT_READ)

    def _drop(self, sock: socket.socket) -> None:
        del self._connections[sock]
        with suppress(KeyError, ValueError):
            self._selector.unregister(sock)
        sock.close()

    def _serve(self, sock: socket.socket, connection: _HttpConnection) -> None:
        try:
            if connection.response:
                self._write(sock, connection)
            elif connection.head is None:  # answered: what still comes is thrown away until the client closes
                if not sock.recv(_CHUNK_BYTES):
                    self._drop(sock)
            else:
                self._read(sock, connection, connection.head)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._drop(sock)  # a reset is the client's business

    def _read(self, sock: socket.socket, connection: _HttpConnection, head: bytearray) -> None:
        data = sock.recv(_CHUNK_BYTES)
        if not data:
            self._drop(sock)
            return
        head += data
        end = head.find(b"\r\n\r\n")
        if end < 0 and len(head) <= MAX_HEAD_BYTES:
            return
        connection.head = None
        if 0 <= end <= MAX_HEAD_BYTES:
            connection.response = memoryview(self._respond(bytes(head[:end])))
        else:
            connection.response = memoryview(_written(_refusal(431), head_only=False))
        connection.deadline = self._clock() + WRITE_TIMEOUT_S
        self._selector.modify(sock, selectors.EVENT_WRITE)
        self._write(sock, connection)

    def _write(self, sock: socket.socket, connection: _HttpConnection) -> None:
        connection.response = connection.response[sock.send(connection.response) :]
        if not connection.response:
            connection.deadline = self._clock() + DRAIN_TIMEOUT_S
            self._selector.modify(sock, selectors.EVENT_READ)
            sock.shutdown(socket.SHUT_WR)

    def _respond(self, head: bytes) -> bytes:
        method = head.partition(b" ")[0]
        request = _parsed(head)
        if isinstance(request, int):
            return _written(_refusal(request), head_only=method == b"HEAD")
        if not self._is_allowed(request.headers.get("host")):
            return _written(
                _refusal(403, "This host name is not answered here."), head_only=method == b"HEAD"
            )
        try:
            response = self._handler(request)
        except Exception as exc:  # noqa: BLE001 - the client gets a status, and the log one line
            with suppress(Exception):  # under test it is raised, which would end this thread
                report_internal_error("HTTP listener", exc, "one request was not answered")
            response = _refusal(500)
        return _written(response, head_only=method == b"HEAD")

    def _is_allowed(self, header: str | None) -> bool:
        if self._any_host or header is None:  # without the header only in HTTP/1.0, which no browser speaks
            return True
        host = host_of(header)
        return host is not None and (host in self._allowed or is_loopback(host))


@dataclass(slots=True)
class _HttpConnection:
    deadline: float
    head: bytearray | None = field(default_factory=bytearray)
    """What came so far; None once the request is complete."""
    response: memoryview = field(default_factory=lambda: memoryview(b""))
    """What is still to be sent."""


def _parsed(head: bytes) -> HttpRequest | int:
    """The request, or the status that refuses it."""
    try:
        first, *lines = head.decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        return 400
    method, _, rest = first.partition(" ")
    target, _, version = rest.rpartition(" ")
    if version not in {"HTTP/1.1", "HTTP/1.0"} or not target.startswith("/") or not target.isprintable():
        return 400
    if method not in {"GET", "HEAD"}:
        return 405
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip() or (name == "host" and name in headers):
            return 400
        headers[name] = value.strip()
    if version == "HTTP/1.1" and "host" not in headers:
        return 400
    try:
        parts = urlsplit("//host" + target)
    except ValueError:
        return 400
    return HttpRequest(parts.path, parts.query, headers)


def _refusal(status: int, sentence: str | None = None) -> HttpResponse:
    return HttpResponse(
        f"{sentence or HTTPStatus(status).phrase}\n".encode(),
        "text/plain; charset=utf-8",
        status,
        {"Allow": "GET, HEAD"} if status == 405 else {},
    )


def _written(response: HttpResponse, *, head_only: bool) -> bytes:
    fields = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Connection": "close",
        "X-Content-Type-Options": "nosniff",
        **response.headers,
    }
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if head_only else response.body)
