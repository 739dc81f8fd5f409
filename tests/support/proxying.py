"""A proxy in a thread of this process, and model servers that send exactly the bytes they are told to."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from midstream.proxy.routes import Route, Routes
from midstream.proxy.server import ProxyServer, listen
from midstream.proxy.service import ProxySettings, proxy_server
from midstream.proxy.upstream import upstream_of
from midstream.runtime.monitor import PROCESS
from midstream.runtime.settings import Settings
from midstream.stream.model import StreamRecord
from support.waiting import until

SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ASK = b'{"model":"m","stream":true,"max_tokens":7,"messages":[{"role":"user","content":"secret"}]}'


def chunked(*pieces: bytes) -> bytes:
    """The pieces as chunks of HTTP/1.1, without the last one, which is empty."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


LAST = b"0\r\n\r\n"


def sending(*data: bytes, then: str = "") -> Callable[[Line], None]:
    """What sends this and then ends the connection: "close", or leaves that to the other side ("stay")."""

    def play(line: Line) -> None:
        line.send(*data)
        if then == "close":
            line.connection.close()
        elif then == "stay":
            line.until_gone()

    return play


def post(body: bytes = ASK, path: bytes = b"/v1/chat/completions", *lines: bytes) -> bytes:
    """A request as its bytes."""
    head = [b"POST " + path + b" HTTP/1.1", b"Host: localhost", b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join([*head, b"", body])


class Line:
    """A connection of a model server, after its request has come."""

    def __init__(self, connection: socket.socket, head: bytes, body: bytes) -> None:
        self.connection = connection
        self.head = head
        self.body = body

    def send(self, *data: bytes) -> None:
        """Send each with a pause between, so that they arrive one by one."""
        for number, each in enumerate(data):
            if number:
                time.sleep(0.02)
            self.connection.sendall(each)

    def reset(self) -> None:
        """End the connection as a process that dies does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.connection.close()

    def until_gone(self, timeout_s: float = 20.0) -> float:
        """Return the moment at which the other side closes the connection."""
        self.connection.settimeout(timeout_s)
        with suppress(ConnectionError):
            while self.connection.recv(65536):
                pass
        return time.monotonic()


@dataclass
class RawServer:
    """A server that reads a request, keeps its bytes, and then does what it is told to."""

    play: Callable[[Line], Any]
    lines: list[Line] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                data = b""
                while True:
                    request, data = _whole_request(connection, data)
                    if request is None:
                        return
                    line = Line(connection, *request)
                    self.lines.append(line)
                    self.play(line)
        except OSError:
            return
        except BaseException as error:
            self.failures.append(error)


def _whole_request(connection: socket.socket, data: bytes) -> tuple[tuple[bytes, bytes] | None, bytes]:
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None, b""
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        while not rest.endswith(b"0\r\n\r\n"):
            rest += connection.recv(65536)
        return (head, rest), b""
    length = int(fields.get(b"content-length", b"0"))
    while len(rest) < length:
        rest += connection.recv(65536)
    return (head, rest[:length]), rest[length:]


@contextmanager
def raw_server(play: Callable[[Line], Any]) -> Iterator[RawServer]:
    """Run a server that does this with each request."""
    server = RawServer(play)
    try:
        yield server
        assert server.failures == []
    finally:
        server.close()


@dataclass
class Proxied:
    """A proxy that runs."""

    url: str
    port: int
    server: ProxyServer
    thread: threading.Thread
    records: list[StreamRecord]

    @property
    def record(self) -> StreamRecord:
        """The one record, once it is there."""
        until(lambda: self.records)
        PROCESS.flush()
        (record,) = self.records
        return record

    def connect(self) -> socket.socket:
        """A connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def ask(self, request: bytes) -> bytes:
        """All that comes back for these bytes, until the proxy closes the connection or is silent for a while."""
        with self.connect() as connection:
            connection.sendall(request)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes; a reset is shown as such."""
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
    except ConnectionResetError:
        data += b"<reset>"
    return data


@contextmanager
def proxied(
    upstream: str,
    *,
    port: int = 0,
    monitor: dict[str, Any] | None = None,
    routes: tuple[Route, ...] = (),
    **settings: Any,
) -> Iterator[Proxied]:
    """Run a proxy in front of this address; `monitor` are settings of the monitor, the others the proxy's own."""
    records: list[StreamRecord] = []
    made = ProxySettings(
        routes=Routes(routes, upstream_of(upstream)),
        monitor=Settings(on_end=records.append, **(monitor or {})),
        **{"drain_s": 0.0, **settings},
    )
    server = proxy_server(made)
    listener = listen("127.0.0.1", port)
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run_on, args=(listener,), daemon=True)
    thread.start()
    try:
        server.ready.wait()
        yield Proxied(f"http://127.0.0.1:{port}", port, server, thread, records)
    finally:
        server.stop(drain=False)
        thread.join(20)
        listener.close()
        assert not thread.is_alive()
