"""What an event and a response cost, in calls of our own functions: time is measured by `benchmarks.transport`."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.transport import BODY, URL, http_client, pieces_of

from midstream.testing import collect
from support.paths import ROOT

if TYPE_CHECKING:
    from typing_extensions import Self

OURS = str(ROOT / "src" / "midstream" / "")
EVENTS = 500


class Calls:
    """Counts the calls of midstream's functions while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        self.count += event == "call" and frame.f_code.co_filename.startswith(OURS)


def response_of(client: Any) -> Any:
    return client.send(client.build_request("POST", URL, json=BODY), stream=True)


async def skipped(kind: str, response: Any, events: int) -> Any:
    """Read some pieces of a response; the iterator over the others."""
    pieces = response.iter_raw() if kind == "sync" else response.aiter_raw()
    for _ in range(events):
        await step(kind, pieces)
    return pieces


async def step(kind: str, pieces: Any) -> None:
    if kind == "sync":
        next(pieces)
    else:
        await anext(pieces)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_steady_event_takes_few_calls_and_holds_nothing(kind: str) -> None:
    """The iterator's step, two readings of the clock, the comparison of bytes, the update: no parser, no lock."""

    async def scene() -> tuple[float, int]:
        client = http_client(kind, pieces_of(3 * EVENTS, None))
        seen = collect(client)
        response = response_of(client) if kind == "sync" else await response_of(client)
        pieces = await skipped(kind, response, EVENTS)
        with Calls() as calls:
            for _ in range(EVENTS):
                await step(kind, pieces)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(EVENTS - 1):
            await step(kind, pieces)
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        if kind == "sync":
            response.close()
        else:
            await response.aclose()
        assert seen.record.content_chunks >= 3 * EVENTS - 2
        return calls.count / EVENTS, held

    calls, held = asyncio.run(scene())

    assert 4 < calls < 11
    assert held < 4 * EVENTS


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_response_that_is_no_event_stream_takes_few_calls(kind: str) -> None:
    """Whose request it is, and what type the response has; its byte stream is the library's own."""

    async def scene() -> int:
        client = http_client(kind, [b"{}"], "application/json")
        bare = http_client(kind, [b"{}"], "application/json")
        collect(client)
        types = []
        for each in (client, bare, client):
            with Calls() as calls:
                response = response_of(each) if kind == "sync" else await response_of(each)
            types.append(type(response.stream))
            await response.aread() if kind == "async" else response.read()
        assert types == [types[1]] * 3
        return calls.count

    assert 4 < asyncio.run(scene()) < 12
