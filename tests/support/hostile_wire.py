"""A network of the HTTP library's own kind that plays hostile answers, byte for byte, on a clock moved by hand.

Everything above the sockets is real: the SDK, its HTTP client, the connection pool, the HTTP parser.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from midstream.testing import ManualClock, http_library


class Act(Enum):
    """What happens in the middle of a read, beside bytes."""

    EOF = "the server closes the connection"
    CUT = "the connection breaks"
    SILENCE = "nothing comes until the read timeout"
    CANCEL = "the caller's wait is cancelled"
    INTERRUPT = "the read is interrupted from the keyboard"
    EXIT = "the read ends with the program"
    ABANDON = "the read ends as a generator that is closed does"
    FAULT = "the read fails in a way that no HTTP library knows"
    GARBAGE = "the garbage collector runs"
    CLOSE = "somebody else closes the stream"
    READ = "somebody else asks for the next chunk"
    LOOK = "somebody else lists the open streams"


RAISES: dict[Act, Callable[[], BaseException]] = {
    Act.INTERRUPT: KeyboardInterrupt,
    Act.EXIT: lambda: SystemExit(3),
    Act.ABANDON: GeneratorExit,
    Act.FAULT: lambda: LookupError("no such thing"),
}
"""What the reader is hit by, in either world."""

Piece: TypeAlias = "tuple[float, bytes | Act]"
"""Seconds after the piece before it, and what comes then."""

RESPONSES = {"sse": "text/event-stream", "json": "application/json", "html": "text/html; charset=utf-8"}


@dataclass(frozen=True)
class Answer:
    """What the server says to one request. `framing`: chunked, counted (content-length), or open until the end."""

    pieces: tuple[Piece, ...]
    status: int = 200
    kind: str = "sse"
    framing: str = "chunked"
    headers: tuple[tuple[str, str], ...] = ()
    headers_at_s: float = 0.0
    whole: bool = True
    """Whether the body is brought to its proper end after the last piece."""
    at_once: bool = False
    """Whether pieces that come at the same moment are read as one."""
    missing: int = 0
    """How many bytes fewer than promised are sent, with content-length."""

    def wire(self) -> list[Piece]:
        """Everything that is read from the socket, in order."""
        body = [data for _, data in self.pieces if isinstance(data, bytes)]
        lines = [f"HTTP/1.1 {self.status} X", f"content-type: {RESPONSES[self.kind]}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.framing == "chunked":
            lines.append("transfer-encoding: chunked")
        elif self.framing == "counted":
            lines.append(f"content-length: {sum(map(len, body)) + self.missing}")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        sent: list[Piece] = [(self.headers_at_s, head)]
        for delay, data in self.pieces:
            if isinstance(data, bytes) and self.framing == "chunked":
                sent.append((delay, b"%x\r\n%s\r\n" % (len(data), data) if data else b""))
            else:
                sent.append((delay, data))
        if self.whole and self.framing == "chunked":
            sent.append((0.0, b"0\r\n\r\n"))
        return _glued(sent) if self.at_once else sent


def _glued(pieces: list[Piece]) -> list[Piece]:
    glued: list[Piece] = []
    for delay, data in pieces:
        if glued and delay == 0 and isinstance(data, bytes) and isinstance(glued[-1][1], bytes):
            glued[-1] = (glued[-1][0], glued[-1][1] + data)
        else:
            glued.append((delay, data))
    return glued


class Network:
    """The sockets of one client. `answers` are given to its requests in turn."""

    def __init__(self, kind: str, clock: ManualClock, socket: str) -> None:
        self.kind = kind
        self.clock = clock
        self.answers: list[Answer] = []
        self.meanwhile: dict[Act, Callable[[], Awaitable[None]]] = {}
        """What somebody else does while a read is under way."""
        self.lines: list[Line] = []
        self.collected = False
        """Whether an answer had the garbage collected."""
        http = http_library()
        self.core = importlib.import_module(http.__name__.replace("httpx", "httpcore"))
        self.socket = socket
        if kind == "sync":
            self.transport = http.HTTPTransport(verify=False)
            self.pool = self.core.ConnectionPool(max_connections=None, network_backend=_backend(self))
        else:
            self.transport = http.AsyncHTTPTransport(verify=False)
            self.pool = self.core.AsyncConnectionPool(
                max_connections=None, network_backend=_async_backend(self)
            )
        self.transport._pool = self.pool

    def state(self) -> Any:
        """What the pool and the sockets are like: connections in order, and what each has sent and received."""
        return (
            [connection.info() for connection in self.pool.connections],
            len(self.pool._requests),
            [(bytes(line.sent), line.reads, line.closed, len(line.pieces)) for line in self.lines],
            self.clock.now,
        )

    def connect(self) -> Line:
        """Open a socket."""
        line = Line(self)
        self.lines.append(line)
        return line


class Line:
    """One connection."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.clock = network.clock
        self.sent = bytearray()
        self.reads = 0
        self.closed = False
        self.pieces: list[Piece] = []
        self.got = (self.clock.now, 0, 0)  # when, bytes, pieces: what the kernel would know

    def write(self, data: bytes) -> None:
        self.sent += data
        if not data:
            return  # the end of a request is told as well
        head, found, body = bytes(self.sent).rpartition(b"POST ")[2].partition(b"\r\n\r\n")
        if not found:
            return
        length = next(
            int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"
        )
        if len(body) >= length:
            self.pieces = self.network.answers.pop(0).wire()

    async def read(self, most: int, timeout: float | None) -> bytes:
        self.reads += 1
        core = self.network.core
        while True:
            if self.closed:
                raise core.ReadError("the socket is closed")
            if not self.pieces:
                return b""
            delay, data = self.pieces.pop(0)
            if timeout is not None and delay > timeout:
                self.clock.advance(timeout)
                self.pieces.insert(0, (delay - timeout, data))
                raise core.ReadTimeout("nothing came")
            self.clock.advance(delay)
            if isinstance(data, bytes):
                if len(data) > most:
                    self.pieces.insert(0, (0.0, data[most:]))
                    data = data[:most]
                if data:
                    _, received, segments = self.got
                    self.got = (self.clock.now, received + len(data), segments + 1)
                    return data
            else:
                await self._act(data, timeout)
                if data is Act.EOF:
                    self.pieces.clear()
                    return b""

    async def _act(self, act: Act, timeout: float | None) -> None:
        core = self.network.core
        if act is Act.CUT:
            self.pieces.clear()
            raise core.ReadError("the connection broke")
        if act is Act.SILENCE:
            self.clock.advance(timeout or 0.0)
            raise core.ReadTimeout("nothing came")
        if act is Act.CANCEL:
            if self.network.kind == "sync":
                raise KeyboardInterrupt
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        if act in RAISES:
            exception = RAISES[act]()
            raise exception
        if act is Act.GARBAGE:
            self.network.collected = True
            gc.collect()
        if act in self.network.meanwhile:
            await self.network.meanwhile[act]()

    def get_extra_info(self, name: str) -> Any:
        if name == "is_readable":
            return self.closed or (bool(self.pieces) and self.pieces[0][1] is Act.EOF)
        if name == "socket" and self.network.socket != "none":
            return _Kernel(self)
        return None


class _Kernel:
    """The socket below a connection, as far as anybody asks it: a kernel that knows, that lies, or that fails."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        kind = self._line.network.socket
        if kind == "fails" or self._line.closed:
            raise OSError(9, "Bad file descriptor")
        if kind == "short":
            return b"\0" * 20
        if kind == "lies":
            return b"\xff" * size
        at, received, segments = self._line.got
        info = bytearray(size)
        struct.pack_into("=I", info, 52, int((self._line.clock.now - at) * 1000))
        struct.pack_into("=Q", info, 128, received)
        struct.pack_into("=I", info, 152, segments)
        return bytes(info)

    def fileno(self) -> int:
        return -1


def now(coroutine: Any) -> Any:
    """Run to its end what never really waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited")


def _backend(network: Network) -> Any:
    core = network.core

    class Stream(core.NetworkStream):  # type: ignore[name-defined,misc]  # the library is known at run time
        def __init__(self, line: Line) -> None:
            self.line = line

        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            self.line.write(buffer)

        def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            return bytes(now(self.line.read(max_bytes, timeout)))

        def close(self) -> None:
            self.line.closed = True

        def get_extra_info(self, info: str) -> Any:
            return self.line.get_extra_info(info)

    class Backend(core.NetworkBackend):  # type: ignore[name-defined,misc]
        def connect_tcp(self, *_: Any, **__: Any) -> Any:
            return Stream(network.connect())

    return Backend()


def _async_backend(network: Network) -> Any:
    core = network.core

    class Stream(core.AsyncNetworkStream):  # type: ignore[name-defined,misc]
        def __init__(self, line: Line) -> None:
            self.line = line

        async def write(self, buffer: bytes, timeout: float | None = None) -> None:
            self.line.write(buffer)

        async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            await asyncio.sleep(0)
            return await self.line.read(max_bytes, timeout)

        async def aclose(self) -> None:
            self.line.closed = True

        def get_extra_info(self, info: str) -> Any:
            return self.line.get_extra_info(info)

    class Backend(core.AsyncNetworkBackend):  # type: ignore[name-defined,misc]
        async def connect_tcp(self, *_: Any, **__: Any) -> Any:
            return Stream(network.connect())

    return Backend()
