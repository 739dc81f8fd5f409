"""The network of `hostile_wire` below requests and aiohttp: sockets that play an answer on a clock moved by hand.

Everything above the sockets is real: the client, its connection pool, the HTTP parser.
"""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import requests
from aiohttp.client_proto import ResponseHandler
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, PoolManager
from urllib3.connection import HTTPConnection

from midstream.testing import ManualClock
from support.hostile_wire import RAISES, Act, Answer, Line, now


class SocketNetwork:
    """The sockets of one session. `answers` are given to its requests in turn."""

    core = SimpleNamespace(ReadError=ConnectionResetError, ReadTimeout=TimeoutError)
    """What a read of a socket raises."""

    def __init__(self, clock: ManualClock) -> None:
        self.kind = "sync"
        self.clock = clock
        self.answers: list[Answer] = []
        self.meanwhile: dict[Act, Callable[[], Awaitable[None]]] = {}
        self.lines: list[Line] = []
        self.collected = False
        self.socket = "knows"

    def connect(self) -> Line:
        """Open a socket."""
        line = Line(self)  # type: ignore[arg-type]  # it has what a line needs
        self.lines.append(line)
        return line

    def state(self) -> Any:
        """What each socket has sent and received."""
        return [
            (bytes(line.sent), line.reads, line.closed, len(line.pieces)) for line in self.lines
        ], self.clock.now


# requests


class _Socket:
    def __init__(self, line: Line) -> None:
        self.line = line
        self.timeout: float | None = None

    def settimeout(self, timeout: float | None) -> None:
        self.timeout = timeout

    def sendall(self, data: Any) -> None:
        self.line.write(bytes(data))

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(_Raw(self))

    def close(self) -> None:
        self.line.closed = True

    def __getattr__(self, name: str) -> Any:
        kernel = self.line.get_extra_info("socket")
        return getattr(kernel, name)


class _Raw(io.RawIOBase):
    def __init__(self, below: _Socket) -> None:
        self._socket = below

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data: bytes = now(self._socket.line.read(len(buffer), self._socket.timeout))
        buffer[: len(data)] = data
        return len(data)


def session_of(network: SocketNetwork) -> requests.Session:
    """A session of requests whose connections are those of this network."""

    class Connection(HTTPConnection):
        def _new_conn(self) -> Any:
            return _Socket(network.connect())

    class Pool(HTTPConnectionPool):
        ConnectionCls = Connection

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *_: Any, **__: Any) -> None:
            self.poolmanager = PoolManager()
            self.poolmanager.pool_classes_by_scheme = {"http": Pool}

    session = requests.Session()
    session.trust_env = False
    session.mount("http://", Adapter())
    return session


def pooled(session: requests.Session) -> list[bool]:
    """The connections that have come back to their pools, and whether each is open."""
    adapter: Any = session.adapters["http://"]
    pools = [adapter.poolmanager.pools[key] for key in adapter.poolmanager.pools.keys()]  # noqa: SIM118
    return [one.sock is not None for pool in pools for one in list(pool.pool.queue) if one is not None]


# aiohttp


class _Transport(asyncio.Transport):
    """Gives its protocol one piece after the other, each when the reader has had time to take the one before."""

    def __init__(self, line: Line, protocol: Any, task: asyncio.Task[Any]) -> None:
        super().__init__()
        self._line = line
        self._protocol = protocol
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._paused = False
        self._playing = False

    def write(self, data: Any) -> None:
        self._line.write(bytes(data))
        self._play()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name != "socket":
            return default
        kernel = self._line.get_extra_info("socket")
        kernel.family = socket.AF_UNIX  # which has no options to be set
        return kernel

    def is_closing(self) -> bool:
        return self._line.closed

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._play()

    def close(self) -> None:
        self._lost(None)

    def abort(self) -> None:
        self._lost(None)

    def _play(self) -> None:
        if not self._playing and self._line.pieces:
            self._playing = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._playing = False
        if self._paused or self._line.closed or not self._line.pieces:
            return
        delay, data = self._line.pieces.pop(0)
        self._line.clock.advance(delay)
        self._line.reads += 1
        if isinstance(data, bytes):
            if data:
                _, received, segments = self._line.got
                self._line.got = (self._line.clock.now, received + len(data), segments + 1)
                self._protocol.data_received(data)
        elif data is Act.EOF:
            self._line.pieces.clear()
            self._protocol.eof_received()
            self._lost(None)
        elif data is Act.SILENCE:
            self._line.clock.advance(60.0)
            self._protocol._on_read_timeout()
        elif data is Act.CANCEL:
            self._task.cancel()
        elif data is Act.CUT or data in RAISES:
            self._line.pieces.clear()
            self._lost(ConnectionResetError("the connection broke"))
        if not self._line.pieces and self._protocol._payload is not None:
            self._loop.call_soon(self._loop.call_soon, self._over)
        self._play()

    def _over(self) -> None:
        """The server closes the connection after its last piece, if that has not ended the answer."""
        if (
            not self._line.closed
            and self._protocol._payload is not None
            and not self._protocol._payload.is_eof()
        ):
            self._protocol.eof_received()
            self._lost(None)

    def _lost(self, exc: Exception | None) -> None:
        if not self._line.closed:
            self._line.closed = True
            self._loop.call_soon(self._protocol.connection_lost, exc)


def aiohttp_session_of(network: SocketNetwork) -> aiohttp.ClientSession:
    """A session of aiohttp whose connections are those of this network. The running task is the one to be cancelled."""

    class Connector(aiohttp.TCPConnector):
        async def _create_connection(self, *_: Any, **__: Any) -> ResponseHandler:
            task = asyncio.current_task()
            assert task is not None
            protocol = ResponseHandler(loop=asyncio.get_running_loop())
            protocol.connection_made(_Transport(network.connect(), protocol, task))
            return protocol

    return aiohttp.ClientSession(
        connector=Connector(), timeout=aiohttp.ClientTimeout(total=None), trust_env=False
    )
