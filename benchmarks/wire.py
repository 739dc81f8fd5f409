"""A raw HTTP server that plays one script to every request in real time and notes when each frame really left.

It sends what it is told, byte for byte: broken frames, silence, a cut connection. The moments of sending are kept
beside the stream and not in it, so that a measurement can be held against the truth.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Self

CUT = "cut"
"""A frame that resets the connection."""

Script: TypeAlias = Sequence["tuple[float, str]"]
"""What to send: seconds after the request was read, and the bytes as text."""

_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Exchange:
    """One request as it was answered: when it was read, when each frame left, on `time.monotonic()`."""

    request: bytes
    began: float
    sent: list[float] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


class WireServer:
    """Plays `script` to every request on a loopback port until it is closed."""

    def __init__(
        self,
        script: Script,
        *,
        tls: ssl.SSLContext | None = None,
        headers_at_s: float = 0.0,
        content_type: str = "text/event-stream",
    ) -> None:
        self._head = _HEAD.format(content_type).encode()
        self._script = script
        self._tls = tls
        self._headers_at_s = headers_at_s
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.exchanges: list[Exchange] = []
        self._connections: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, name="wire-server", daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._listener.getsockname()[1])

    @property
    def base_url(self) -> str:
        """What to give to an OpenAI client."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop at once, in the middle of whatever is being sent."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=5)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="wire-exchange", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), contextlib.closing(connection):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            self._connections.add(connection)
            try:
                for request in _requests(connection):
                    if not self._answer(connection, request):
                        return
            finally:
                self._connections.discard(connection)
                connection.close()

    def _answer(self, connection: socket.socket, request: bytes) -> bool:
        exchange = Exchange(request, time.monotonic())
        self.exchanges.append(exchange)
        try:
            if not self._wait_until(exchange.began + self._headers_at_s):
                return False
            connection.sendall(self._head)
            for at_s, data in self._script:
                if not self._wait_until(exchange.began + at_s):
                    return False
                if data is CUT:
                    # Lingering for no time at all makes the kernel send a reset instead of an orderly end.
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return False
                payload = data.encode()
                if payload:
                    connection.sendall(b"%x\r\n%s\r\n" % (len(payload), payload))
                exchange.sent.append(time.monotonic())
            connection.sendall(b"0\r\n\r\n")
            return True
        finally:
            exchange.over.set()

    def _wait_until(self, moment: float) -> bool:
        return not self._closing.wait(max(0.0, moment - time.monotonic()))


def _requests(connection: socket.socket) -> Iterator[bytes]:
    """The requests of one connection, head and body, until the client is done with it."""
    buffer = b""
    receive: Callable[[int], bytes] = connection.recv
    while True:
        while b"\r\n\r\n" not in buffer:
            data = receive(65536)
            if not data:
                return
            buffer += data
        head, _, buffer = buffer.partition(b"\r\n\r\n")
        length = _content_length(head)
        while len(buffer) < length:
            data = receive(65536)
            if not data:
                return
            buffer += data
        yield head + b"\r\n\r\n" + buffer[:length]
        buffer = buffer[length:]


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0
