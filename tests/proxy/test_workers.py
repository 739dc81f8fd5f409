"""Several processes behind one port: no stream and no record is missing, and they end together."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from midstream.journal import read_records
from midstream.proxy.server import allow_open_files
from midstream.testing import DONE, finish, role, text
from support.commands import children_of, is_running, read_until, running
from support.proxying import LAST, SSE_HEAD, chunked, post
from support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork()")
BEGUN = SSE_HEAD + chunked(role().encode(), text("Hel").encode())
REST = chunked(text("lo").encode(), finish().encode(), DONE.encode()) + LAST


class Upstream:
    """A model server for many streams: each begins at once, and goes on when all are told to."""

    def __init__(self) -> None:
        self.begun = 0
        self._loop = asyncio.new_event_loop()
        self._go_on = asyncio.Event()
        self._port: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._thread.start()
        until(lambda: self._port)

    def go_on(self) -> None:
        self._loop.call_soon_threadsafe(self._go_on.set)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2048)
        )
        self._port = server.sockets[0].getsockname()[1]
        self._loop.run_forever()
        self._go_on.set()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        writer.write(BEGUN)
        self.begun += 1
        await self._go_on.wait()
        writer.write(REST)
        await writer.drain()
        writer.close()


@contextmanager
def upstream() -> Iterator[Upstream]:
    """Run it."""
    made = Upstream()
    made.start()
    try:
        yield made
    finally:
        made.stop()


def options(server: Upstream, *more: str) -> list[str]:
    """The command with two workers."""
    return [
        *("proxy", "--upstream", server.url, "--port", "0", "--metrics-port", "0", "--workers", "2"),
        *more,
    ]


def ports_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its port, and the address of its metrics."""
    said = read_until(process, "^Clients: ")
    assert "\nWorkers: 2 processes\n" in said
    (port,) = re.findall(r"^http://127.0.0.1:(\d+)$", said, re.MULTILINE)
    return int(port), re.findall(r"^Metrics: (\S+)$", said, re.MULTILINE)[0]


def total(page: str, name: str) -> float:
    """The sum of a metric's series."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.split("{")[0] == name)


def can_connect(port: int) -> bool:
    """Whether anything listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def ask_many(port: int, count: int) -> list[bytes]:
    """So many streams at once, each on a connection of its own."""

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post())
        answer = await reader.readuntil(LAST)
        writer.close()
        return answer

    return await asyncio.gather(*(ask() for _ in range(count)))


@pytest.mark.timeout(180)
def test_a_thousand_streams_at_once_have_a_thousand_records(tmp_path: Path) -> None:
    """All are open at the same time, in both processes; the journal and the one page of metrics have each of them."""
    allow_open_files()
    journal = tmp_path / "streams.db"
    answers: list[bytes] = []
    with (
        upstream() as server,
        running(*options(server, "--journal", str(journal), "--drain", "60")) as process,
    ):
        port, metrics = ports_of(process)
        asking = threading.Thread(target=lambda: answers.extend(asyncio.run(ask_many(port, 1000))))
        asking.start()
        until(lambda: server.begun == 1000, 60)
        until(lambda: total(requests.get(metrics, timeout=30).text, "stream_active") == 1000, 60)
        workers = children_of(process.pid)
        server.go_on()
        asking.join(60)
        until(lambda: total(requests.get(metrics, timeout=30).text, "stream_ended_total") == 1000, 60)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")

    assert len(workers) == 2
    assert [worker for worker in workers if is_running(worker)] == []
    assert [answer.endswith(REST) for answer in answers] == [True] * 1000
    records = read_records(journal)
    assert [(record.outcome, record.content_chunks) for record in records] == [("completed", 2)] * 1000


def test_a_worker_that_dies_is_replaced() -> None:
    """Its streams are cut; the other's go on, and so does the service."""
    with upstream() as server, running(*options(server)) as process:
        port, _ = ports_of(process)
        until(lambda: len(children_of(process.pid)) == 2)
        first, second = children_of(process.pid)
        os.kill(first, signal.SIGKILL)
        until(lambda: len(set(children_of(process.pid)) - {first}) == 2)
        assert second in children_of(process.pid)
        server.go_on()
        answers = asyncio.run(ask_many(port, 20))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)

    assert [answer.endswith(REST) for answer in answers] == [True] * 20
    assert f"worker process {first} has ended (status -9); another one takes its place" in err
    assert process.returncode == 0


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM", "the first process is killed"])
def test_workers_end_with_the_first_process(how: str) -> None:
    """A terminal and an init system signal all of them, which is one signal: SIGTERM lets an open stream finish."""
    answers: list[bytes] = []
    drains = how == "SIGTERM"
    with upstream() as server, running(*options(server, "--drain", "30" if drains else "0.2")) as process:
        port, _ = ports_of(process)
        asking = threading.Thread(target=lambda: answers.extend(asyncio.run(ask_many(port, 4))))
        if drains:
            asking.start()
            until(lambda: server.begun == 4)
        until(lambda: len(children_of(process.pid)) == 2)
        workers = children_of(process.pid)
        if how == "the first process is killed":
            process.kill()
        else:
            for each in (*workers, process.pid):
                os.kill(each, signal.SIGTERM if drains else signal.SIGINT)
        if drains:
            until(lambda: not can_connect(port))
            server.go_on()
            asking.join(30)
        process.communicate(timeout=60)
        until(lambda: not any(map(is_running, workers)))

    assert process.returncode == {"Ctrl-C": 130, "SIGTERM": 0}.get(how, -9)
    assert [answer.endswith(REST) for answer in answers] == [True] * (4 if drains else 0)
