"""Random answers below requests and aiohttp: a monitored session gives what a bare one gives, to the byte.

As `test_random_wires` does for httpx, and with every way in which these libraries let a body be read.

    HOSTILE_EXAMPLES=5000 python -m pytest tests/integrations/http/test_random_sockets.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integrations.http.test_random_wires import EXAMPLES, PATHS, wires
from midstream.testing import Collected, ManualClock, collect
from support.hostile_sockets import SocketNetwork, aiohttp_session_of, pooled, session_of
from support.hostile_wire import Answer

BODY = {"model": "m", "stream": True, "messages": [], "prompt": "", "input": ""}


def until_empty(read: Callable[[], bytes]) -> Iterator[bytes]:
    while piece := read():
        yield piece


async def until_empty_async(read: Callable[[], Any]) -> AsyncIterator[bytes]:
    while piece := await read():
        yield piece


def several(response: Any) -> Iterator[bytes]:
    """One piece, and what is left: several iterators over one response."""
    one = response.iter_content(3)  # kept: when it goes, it closes the response
    yield next(one, b"")
    yield from response.iter_content(11)


REQUESTS: dict[str, Callable[[Any], Iterator[Any]]] = {
    "iter_lines": lambda response: response.iter_lines(),
    "iter_content": lambda response: response.iter_content(None),
    "iter_content(1)": lambda response: response.iter_content(1),
    "iter_content(7)": lambda response: response.iter_content(7, decode_unicode=True),
    "content": lambda response: iter([response.content]),
    "raw.read(n)": lambda response: until_empty(lambda: response.raw.read(16)),
    "raw.read()": lambda response: iter([response.raw.read()]),
    "raw.read1": lambda response: until_empty(lambda: response.raw.read1(64)),
    "raw.read, decoded": lambda response: until_empty(lambda: response.raw.read(16, decode_content=True)),
    "raw.stream": lambda response: response.raw.stream(32, decode_content=False),
    "raw": lambda response: iter(response.raw),
    "raw.readline": lambda response: until_empty(response.raw.readline),
    "several": several,
}


async def several_async(content: Any) -> AsyncIterator[bytes]:
    """Some bytes, the rest of a line, a chunk, and what is left."""
    yield await content.read(3)
    yield await content.readline()
    yield await content.readany()
    async for piece in content.iter_chunked(9):
        yield piece


async def exactly(content: Any) -> AsyncIterator[bytes]:
    while True:
        yield await content.readexactly(6)


async def peeking(content: Any) -> AsyncIterator[bytes]:
    """What has come, without a wait, and one wait after it."""
    while True:
        yield content.read_nowait()
        piece = await content.readany()
        if not piece:
            return
        yield piece


AIOHTTP: dict[str, Callable[[Any], AsyncIterator[Any]]] = {
    "lines": lambda response: aiter(response.content),
    "iter_any": lambda response: aiter(response.content.iter_any()),
    "iter_chunked": lambda response: aiter(response.content.iter_chunked(7)),
    "iter_chunks": lambda response: aiter(response.content.iter_chunks()),
    "read(n)": lambda response: until_empty_async(lambda: response.content.read(5)),
    "read()": lambda response: until_empty_async(response.content.read),
    "response.read": lambda response: aiter(_Once(response.read)),
    "readuntil": lambda response: until_empty_async(lambda: response.content.readuntil(b"\n\n")),
    "readexactly": lambda response: exactly(response.content),
    "read_nowait": lambda response: peeking(response.content),
    "several": lambda response: several_async(response.content),
}


class _Once:
    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield await self._read()


class Seen:
    """A session in a world of its own, and what its caller got."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.network = SocketNetwork(self.clock)
        self.got: list[Any] = []
        self.state: Any = None
        self.answered = False
        self.collected: Collected | None = None

    def watch(self, session: Any, *, monitored: bool) -> None:
        if monitored:
            self.collected = collect(session, clock=self.clock, freeze_after_s=5.0)

    def note(self, exc: BaseException) -> None:
        self.got.append((self.clock.now, type(exc), str(exc).partition(" at 0x")[0]))


def with_requests(wire: tuple[str, Answer], how: str, most: int, *, monitored: bool) -> Seen:
    """One request of a session, its response, and the end of both."""
    seen = Seen()
    seen.network.answers.append(wire[1])
    with session_of(seen.network) as session:
        seen.watch(session, monitored=monitored)
        try:
            response = session.post(
                f"http://server.test/v1/{PATHS[wire[0]]}", json=BODY, stream=True, timeout=60.0
            )
            seen.answered = True
            with response:
                for _, piece in zip(range(most), REQUESTS[how](response), strict=False):
                    seen.got.append((seen.clock.now, piece))
        except BaseException as exc:
            seen.note(exc)
        seen.state = seen.network.state(), pooled(session)
    return seen


async def with_aiohttp(wire: tuple[str, Answer], how: str, most: int, *, monitored: bool) -> Seen:
    """The same for aiohttp."""
    seen = Seen()
    seen.network.answers.append(wire[1])
    async with aiohttp_session_of(seen.network) as session:
        seen.watch(session, monitored=monitored)
        try:
            async with session.post(f"http://server.test/v1/{PATHS[wire[0]]}", json=BODY) as response:
                seen.answered = True
                async for piece in AIOHTTP[how](response):
                    seen.got.append((seen.clock.now, piece))
                    if len(seen.got) >= most:
                        break
        except BaseException as exc:
            seen.note(exc)
            task = asyncio.current_task()
            if isinstance(exc, asyncio.CancelledError) and task is not None and hasattr(task, "uncancel"):
                task.uncancel()
        connector: Any = session.connector
        seen.state = seen.network.state(), [len(kept) for kept in connector._conns.values()]
    return seen


def compared(bare: Seen, ours: Seen, answer: Answer) -> None:
    assert ours.got == bare.got
    assert ours.state == bare.state
    assert ours.collected is not None
    ours.collected.process.flush()
    followed = answer.kind == "sse" and 200 <= answer.status < 300
    assert len(ours.collected.records) <= int(followed)
    if ours.answered:
        assert len(ours.collected.records) == int(followed)
    assert ours.collected.process.streams() == ()


MOST = st.sampled_from([0, 1, 2, 5, 1 << 30, 1 << 30, 1 << 30])
"""How many pieces are taken before the caller leaves."""


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
@given(wire=wires(), how=st.sampled_from(sorted(REQUESTS)), most=MOST)
def test_a_monitored_session_of_requests_cannot_be_told_from_a_bare_one(
    wire: tuple[str, Answer], how: str, most: int
) -> None:
    """Whatever is sent and however it is read: pieces, moments, exceptions, sockets and pools are the same."""
    compared(
        with_requests(wire, how, most, monitored=False),
        with_requests(wire, how, most, monitored=True),
        wire[1],
    )


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
@given(wire=wires(), how=st.sampled_from(sorted(AIOHTTP)), most=MOST)
def test_a_monitored_session_of_aiohttp_cannot_be_told_from_a_bare_one(
    wire: tuple[str, Answer], how: str, most: int
) -> None:
    """The same for aiohttp, whose reader is a proxy of ours."""

    async def both() -> tuple[Seen, Seen]:
        return (
            await with_aiohttp(wire, how, most, monitored=False),
            await with_aiohttp(wire, how, most, monitored=True),
        )

    compared(*asyncio.run(both()), wire[1])


WHOLE = Answer(
    ((0.0, b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'), (6.0, b"data: [DONE]\n\n"))
)


@pytest.mark.parametrize("how", REQUESTS)
def test_every_way_of_requests_reads_something(how: str) -> None:
    """So that the comparisons above compare something: a whole answer reaches the caller and is recorded."""
    seen = with_requests(("chat", WHOLE), how, 1 << 30, monitored=True)

    assert seen.collected is not None
    assert (seen.clock.now, len(seen.got) > 0) == (6.0, True)
    assert seen.collected.record.content_chunks == 1


@pytest.mark.parametrize("how", AIOHTTP)
def test_every_way_of_aiohttp_reads_something(how: str) -> None:
    """The same for aiohttp."""
    seen = asyncio.run(with_aiohttp(("chat", WHOLE), how, 1 << 30, monitored=True))

    assert seen.collected is not None
    assert (seen.clock.now, len(seen.got) > 0) == (6.0, True)
    assert seen.collected.record.content_chunks == 1
