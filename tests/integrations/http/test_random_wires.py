"""Random answers over a network that plays them: a monitored HTTP client gives what a bare one gives, to the byte.

Two worlds with the same script, one bare and one monitored: the same pieces at the same moments, the same exception,
the same state of the connection pool and of every socket.

    HOSTILE_EXAMPLES=5000 python -m pytest tests/integrations/http/test_random_wires.py
"""

from __future__ import annotations

import asyncio
import gzip
import os
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from midstream.testing import ManualClock, collect, http_library
from support.harness import settled
from support.hostile_answers import answers
from support.hostile_wire import Answer, Network, Piece

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "60"))
PATHS = {"chat": "chat/completions", "completions": "completions", "responses": "responses"}
WAYS = ["iter_raw", "iter_bytes", "iter_text", "iter_lines", "read", "send", "leave", "never"]


@st.composite
def wires(draw: st.DrawFn) -> tuple[str, Answer]:
    """One answer, cut at random places, perhaps with other line ends, comments, or compressed."""
    api = draw(st.sampled_from(sorted(PATHS)))
    answer = draw(answers(api))[0]
    cuts = draw(st.sampled_from([0, 0, 1, 3]))
    ends = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b"\r", b"\n: c\n"]))
    pieces: list[Piece] = []
    for delay, data in answer.pieces:
        if not isinstance(data, bytes):
            pieces.append((delay, data))
            continue
        sent = data.replace(b"\n", ends)
        places = sorted(draw(st.sets(st.integers(1, len(sent) - 1), max_size=cuts))) if len(sent) > 1 else []
        parts = [sent[start:end] for start, end in pairwise([0, *places, len(sent)])]
        pieces += [(delay if number == 0 else 0.25, part) for number, part in enumerate(parts)]
    coding = draw(st.sampled_from(["", "", "", "gzip", "deflate"]))
    if coding and answer.framing != "counted":
        pieces = compressed(pieces, coding)
        answer = replace(answer, headers=(*answer.headers, ("content-encoding", coding)))
    return api, replace(answer, pieces=tuple(pieces))


def compressed(pieces: list[Piece], coding: str) -> list[Piece]:
    """The same pieces, each compressed and flushed; what is compressed can be cut anywhere."""
    packer = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    packed: list[Piece] = [
        (
            delay,
            packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) if isinstance(piece, bytes) else piece,
        )
        for delay, piece in pieces
    ]
    return [*packed, (0.0, packer.flush())]


def test_the_compressed_pieces_are_what_they_were() -> None:
    """The test's own compression can be undone by anybody."""
    squeezed = [
        piece for _, piece in compressed([(0.0, b"ab"), (1.0, b"c")], "gzip") if isinstance(piece, bytes)
    ]
    assert gzip.decompress(b"".join(squeezed)) == b"abc"


class Caller:
    """A client in a world of its own, and what its caller got."""

    def __init__(self, kind: str, *, monitored: bool) -> None:
        self.kind = kind
        self.clock = ManualClock()
        self.network = Network(kind, self.clock, "knows")
        http = http_library()
        make = http.Client if kind == "sync" else http.AsyncClient
        self.client: Any = make(transport=self.network.transport, timeout=http.Timeout(60.0))
        self.seen = collect(self.client, clock=self.clock, freeze_after_s=5.0) if monitored else None
        self.got: list[Any] = []
        self.state: Any = None
        self.answered = False

    async def live(self, api: str, answer: Answer, how: str) -> None:
        """Send the request, read the response, close everything; note what came of it."""
        self.network.answers.append(answer)
        response = await self.noted(lambda: self.send(api, how))
        self.answered = hasattr(response, "status_code")
        if self.answered and how not in {"send", "never"}:
            await self.noted(lambda: self.read(response, how))
        if self.answered:
            await self.noted(lambda: settled(response.close() if self.kind == "sync" else response.aclose()))
        self.state = self.network.state()
        await settled(self.client.close() if self.kind == "sync" else self.client.aclose())

    async def noted(self, act: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await act()
        except BaseException as exc:
            self.got.append((type(exc), str(exc)))
            task = asyncio.current_task()
            if isinstance(exc, asyncio.CancelledError) and task is not None and hasattr(task, "uncancel"):
                task.uncancel()
        return None

    async def send(self, api: str, how: str) -> Any:
        body = {"model": "m", "stream": True, "messages": [], "prompt": "", "input": ""}
        request = self.client.build_request("POST", f"http://server.test/v1/{PATHS[api]}", json=body)
        response = await settled(self.client.send(request, stream=how != "send"))
        if how == "send":
            self.got.append(response.content)
        return response

    async def read(self, response: Any, how: str) -> None:
        if how == "read":
            self.got.append(await settled(response.read() if self.kind == "sync" else response.aread()))
            return
        name, most = ("iter_bytes", 2) if how == "leave" else (how, None)
        pieces = getattr(response, name if self.kind == "sync" else f"a{name}")()
        while most is None or len(self.got) < most:
            try:
                piece = next(pieces) if self.kind == "sync" else await anext(pieces)
            except (StopIteration, StopAsyncIteration):
                return
            self.got.append((self.clock.now, piece))


def caller(kind: str, wire: tuple[str, Answer], how: str, *, monitored: bool) -> Caller:
    """The life of one caller, from beginning to end."""

    async def live() -> Caller:
        made = Caller(kind, monitored=monitored)
        await made.live(*wire, how)
        return made

    return asyncio.run(live())


@pytest.mark.parametrize("kind", ["sync", "async"])
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(wire=wires(), how=st.sampled_from(WAYS))
def test_a_monitored_client_cannot_be_told_from_a_bare_one(
    kind: str, wire: tuple[str, Answer], how: str
) -> None:
    """Whatever is sent and however it is read; an answer that is followed has one record, and nothing is left open."""
    bare = caller(kind, wire, how, monitored=False)
    ours = caller(kind, wire, how, monitored=True)

    assert ours.got == bare.got
    assert ours.state == bare.state
    assert ours.seen is not None
    ours.seen.process.flush()
    answer = wire[1]
    followed = answer.kind == "sse" and 200 <= answer.status < 300
    assert len(ours.seen.records) <= int(followed)
    if ours.answered:
        assert len(ours.seen.records) == int(followed)
    assert ours.seen.process.streams() == ()
