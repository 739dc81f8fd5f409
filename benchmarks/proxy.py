"""What `midstream proxy` costs: latency and CPU for each chunk, memory for each stream, beside a bare pass-through.

    python -m benchmarks.proxy [--rounds N] [--streams N] [--seconds S] [--json FILE]

A model server in a process of its own writes the time into each event that it sends; clients of bare sockets in this
process note how much later it came. It is asked directly, through `midstream proxy`, and through what Starlette's
users write (StreamingResponse over httpx, under the same uvicorn), in turns, in an order that changes every round. Each
proxy has one process. CPU and memory are those of that process, as Linux counts them. "Streams on one core" is the time
of a core over what the chunks of one stream take, without what it takes to open and end it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from midstream._support.statistics import nearest_rank
from midstream.proxy.server import allow_open_files

EVERY_S = 0.05
"""A token each 50 ms: 20 a second."""
WAYS = ("direct", "midstream", "starlette")
_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    b'[{"index":0,"delta":{"content":"%016d"},"finish_reason":null}]}\n\n'
)
_END = (
    (
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    ),
    b"data: [DONE]\n\n",
)
_CONTENT = b'"content":"'
_TICKS = os.sysconf("SC_CLK_TCK")


# The model server


_left: list[int] = []
"""When connections were lost before their answer was sent."""


class _Answering(asyncio.Protocol):
    """Answers each request with as many events as it asks for, one each `EVERY_S`; `GET /left` with `_left`."""

    _left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if found and head.startswith(b"GET /left"):
            text = json.dumps(_left).encode()
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))
            self._transport.close()
            return
        length = re.search(rb"content-length: (\d+)", head.lower())
        if not found or length is None or len(body) < int(length[1]):
            return
        self._data = b""
        self._left = int(json.loads(body)["max_tokens"])
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + random.random() * EVERY_S
        self._loop.call_at(self._due, self._tick)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._left:
            _left.append(time.monotonic_ns())

    def _tick(self) -> None:
        if self._transport.is_closing():
            return
        if not self._left:
            self._transport.write(b"".join(map(_chunk, _END)) + b"0\r\n\r\n")
            return
        self._left -= 1
        self._transport.write(_chunk(_EVENT % time.monotonic_ns()))
        self._due += EVERY_S
        self._loop.call_at(self._due, self._tick)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# What Starlette's users write


def _pass_through(upstream: str) -> None:
    client = httpx.AsyncClient(
        base_url=upstream, timeout=httpx.Timeout(None), limits=httpx.Limits(max_connections=None)
    )

    async def relay(request: Request) -> StreamingResponse:
        asked = client.build_request(
            request.method,
            request.url.path,
            headers=[(name, value) for name, value in request.headers.raw if name != b"host"],
            content=request.stream(),
        )
        answer = await client.send(asked, stream=True)
        return StreamingResponse(
            answer.aiter_raw(),
            status_code=answer.status_code,
            headers={"content-type": answer.headers["content-type"]},
            background=BackgroundTask(answer.aclose),
        )

    app = Starlette(routes=[Route("/{path:path}", relay, methods=["GET", "POST"])])
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, http="h11", access_log=False, log_level="warning", lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


# Processes


@contextmanager
def _process(*command: str, pattern: str) -> Iterator[tuple[int, int]]:
    """Run this; its process id, and the port that it prints."""
    with subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := re.search(pattern, line):
                    yield process.pid, int(found[1])
                    return
            raise RuntimeError(f"{command} has ended")
        finally:
            process.terminate()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# The clients


def _request(events: int) -> bytes:
    body = json.dumps({"model": "m", "messages": [], "stream": True, "max_tokens": events}).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )


class _Reading(asyncio.Protocol):
    """Asks for one stream, and notes how many seconds after its sending each event came."""

    def __init__(self, events: int, late: list[float], done: asyncio.Future[None]) -> None:
        self._events = events
        self._late = late
        self._done = done
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(_request(self._events))

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        data = self._tail + data
        at = data.find(_CONTENT)
        while at >= 0 and at + len(_CONTENT) + 16 <= len(data):
            sent = int(data[at + len(_CONTENT) : at + len(_CONTENT) + 16])
            self._late.append((now - sent) / 1e9)
            data = data[at + len(_CONTENT) + 16 :]
            at = data.find(_CONTENT)
        if b"0\r\n\r\n" in data:
            self._transport.close()
        self._tail = data[-400:]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_result(None)


async def _read(port: int, streams: int, events: int) -> tuple[list[float], asyncio.Task[None]]:
    """Open so many streams, spread over a second; the times, which grow until the task has ended."""
    loop = asyncio.get_running_loop()
    late: list[float] = []

    async def one(number: int) -> None:
        await asyncio.sleep(number / streams)
        done: asyncio.Future[None] = loop.create_future()
        await loop.create_connection(lambda: _Reading(events, late, done), "127.0.0.1", port)
        await done

    async def all_of_them() -> None:
        await asyncio.gather(*map(one, range(streams)))

    return late, asyncio.create_task(all_of_them())


async def _measured(port: int, pid: int | None, streams: int, seconds: float) -> dict[str, float]:
    events = int(seconds / EVERY_S)
    before = 0 if pid is None else _resident(pid)
    late, reading = await _read(port, streams, events)
    await asyncio.sleep(1.5)
    cpu, count = 0.0 if pid is None else _cpu_s(pid), len(late)
    await asyncio.sleep(seconds - 2)
    chunks = len(late) - count
    used = 0.0 if pid is None else _cpu_s(pid) - cpu
    held = 0 if pid is None else _resident(pid) - before
    within = late[count : count + chunks]
    await reading
    return {
        "events": len(late),
        "expected": streams * events,
        "median_ms": 1000 * statistics.median(within),
        "p99_ms": 1000 * nearest_rank(sorted(within), 0.99),
        "cpu_us": 1e6 * used / chunks,
        "kib": held / streams / 1024,
    }


async def _short(port: int, pid: int, streams: int = 200) -> float:
    """Milliseconds of CPU for a stream of one event, of so many one after the other."""
    began = _cpu_s(pid)
    for _ in range(streams):
        _, reading = await _read(port, 1, 1)
        await reading
    return 1e3 * (_cpu_s(pid) - began) / streams


async def _leaving(port: int, direct: int, times: int = 100) -> list[float]:
    """Seconds from a client's leaving in the middle of its stream until the server's connection is closed."""
    found = []
    for number in range(times):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_request(1000))
        await reader.readuntil(_CONTENT)
        before = len(await _all_left(direct))
        at = time.monotonic_ns()
        writer.transport.abort() if number % 2 else writer.close()
        while len(left := await _all_left(direct)) == before:  # noqa: ASYNC110 - another process is asked
            await asyncio.sleep(0.01)
        found.append((left[-1] - at) / 1e9)
    return sorted(found)


async def _all_left(direct: int) -> list[int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", direct)
    writer.write(b"GET /left HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return list(json.loads(answer.partition(b"\r\n\r\n")[2]))


@contextmanager
def running(ways: Sequence[str]) -> Iterator[dict[str, tuple[int | None, int]]]:
    """Run the model server, and what is between: process id and port by way."""
    with ExitStack() as stack:
        run = stack.enter_context
        _, direct = run(_process("benchmarks.proxy", "--role", "server", pattern=r"^(\d+)$"))
        url = f"http://127.0.0.1:{direct}"
        found: dict[str, tuple[int | None, int]] = {}
        for way in ways:
            if way == "midstream":
                options = ["--upstream", url, "--port", "0", "--metrics-port", "0"]
                pattern = r"^http://127.0.0.1:(\d+)$"
                found[way] = run(_process("midstream", "proxy", *options, pattern=pattern))
            elif way == "starlette":
                options = ["--role", "starlette", "--upstream", url]
                found[way] = run(_process("benchmarks.proxy", *options, pattern=r"^(\d+)$"))
            else:
                found[way] = None, direct
        yield found


def measured(streams: int, seconds: float, rounds: int, ways: Sequence[str]) -> dict[str, dict[str, float]]:
    """The medians of all rounds, by way; memory is that of the first, before freed memory is used again."""
    times: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    short: dict[str, float] = {}
    with running(ways) as processes:
        for _ in range(rounds):
            for way in random.sample(list(ways), len(ways)):
                pid, port = processes[way]
                times[way].append(asyncio.run(_measured(port, pid, streams, seconds)))
        for way, (pid, port) in processes.items():
            short[way] = 0.0 if pid is None else asyncio.run(_short(port, pid))
    return {
        way: {name: statistics.median(each[name] for each in rows) for name in rows[0]}
        | {"kib": rows[0]["kib"], "short_ms": short[way]}
        for way, rows in times.items()
    }


def _line(streams: str, way: str, row: dict[str, float]) -> str:
    cells = [
        streams,
        way,
        f"{row['events']:,.0f} of {row['expected']:,.0f}",
        f"{row['median_ms']:.2f} ms",
        f"{row['p99_ms']:.1f} ms",
    ]
    if row["cpu_us"]:
        cells += [
            f"{row['cpu_us']:.0f} µs",
            f"{row['kib']:.0f} KiB",
            f"{row['short_ms']:.1f} ms",
            f"{EVERY_S * 1e6 / row['cpu_us']:.0f} streams",
        ]
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str]) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", default="1,50,100,200")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--role", choices=["server", "starlette"])
    parser.add_argument("--upstream")
    options = parser.parse_args(arguments)
    allow_open_files()
    if options.role == "server":
        asyncio.run(_serve())
    if options.role == "starlette":
        _pass_through(options.upstream)
    found = {}
    print(
        "| streams | | events | latency, median | p99 | CPU, a chunk | memory, a stream | CPU, a stream | one core |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for text in options.streams.split(","):
        rows = measured(int(text), options.seconds, options.rounds, options.ways.split(","))
        found[text] = rows
        for way, row in rows.items():
            print(_line(text, way, row), flush=True)
    with running(("direct", "midstream")) as processes:
        left = asyncio.run(_leaving(processes["midstream"][1], processes["direct"][1]))
    print(
        f"\nA client leaves, and the server's connection is closed after {1000 * statistics.median(left):.1f} ms "
        f"(median of {len(left)}; the longest {1000 * left[-1]:.1f} ms)."
    )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
