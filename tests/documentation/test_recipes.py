"""The recipes of docs/fallbacks.md, run against two servers of which the first stalls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest
from benchmarks.wire import Exchange, Script, WireServer
from openai import AsyncOpenAI, OpenAI

from midstream import StreamStalled
from midstream.lab.emulation import Emulated, emulator
from midstream.lab.emulation.words import words
from midstream.lab.server import serve
from midstream.testing import Collected, collect, role, text
from support.emulating import QUICK
from support.recipes import HALF, LIMITS, PINGS, SILENT, WHOLE, recipe

MESSAGES = [{"role": "user", "content": "Say it in tokens=9"}]


def read(answer: Iterator[str]) -> tuple[str, bool]:
    """What the reader was shown, and whether it ended in a stall."""
    pieces: list[str] = []
    try:
        pieces.extend(answer)
    except StreamStalled:
        return "".join(pieces), True
    return "".join(pieces), False


def monitored(seen: Collected, urls: Sequence[str]) -> list[OpenAI]:
    return [seen.monitor(OpenAI(api_key="none", base_url=url, max_retries=0)) for url in urls]


def body_of(exchange: Exchange) -> Any:
    return json.loads(exchange.request.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    ("first", "second", "shown", "stalls"),
    [
        (WHOLE, WHOLE, "Hello you", False),
        (SILENT, WHOLE, "Hello you", False),
        (HALF, WHOLE, "Hel", True),
        (SILENT, SILENT, "", True),
    ],
    ids=["nothing stalls", "before the first output", "in mid-answer", "both stall"],
)
def test_another_server_is_asked_only_while_nothing_was_shown(
    first: Script, second: Script, shown: str, stalls: bool
) -> None:
    """The reader sees one answer, or half an answer and the exception."""
    answer_of: Callable[..., Iterator[str]] = recipe("Ask again while nothing was shown")["answer_of"]
    with WireServer(first) as one, WireServer(second) as other:
        clients = monitored(collect(**LIMITS), [one.base_url, other.base_url])

        assert read(answer_of(clients, MESSAGES)) == (shown, stalls)


def test_an_answer_is_continued_where_it_stalled() -> None:
    """The first server stops after four words of nine, and an emulated vLLM writes the other five."""
    continued: Callable[..., Iterator[str]] = recipe(
        "Continue an answer from its prefix", StreamStalled=StreamStalled
    )["continued"]
    half: Script = [(0.02, role()), (0.04, text(words(0, 0, 4))), *PINGS]
    seen = collect(**LIMITS)
    vllm = emulator(Emulated("vllm", {}, QUICK, model="m"))
    with WireServer(half) as one, serve(vllm) as other_url:
        clients = monitored(seen, [one.base_url, other_url])

        assert read(continued(clients, MESSAGES)) == (words(0, 0, 9), False)

    assert seen.records[0].error_type == "stall_timeout"
    assert [record.outcome for record in seen.records] == ["timeout", "completed"]


@pytest.mark.parametrize("first", [SILENT, WHOLE], ids=["before the first output", "nothing stalls"])
def test_what_was_not_shown_is_not_continued(first: Script) -> None:
    """The second request is the first once more."""
    continued: Callable[..., Iterator[str]] = recipe(
        "Continue an answer from its prefix", StreamStalled=StreamStalled
    )["continued"]
    with WireServer(first) as one, WireServer(WHOLE) as other:
        clients = monitored(collect(**LIMITS), [one.base_url, other.base_url])

        assert read(continued(clients, MESSAGES)) == ("Hello you", False)

        asked = [body_of(exchange) for exchange in (*one.exchanges, *other.exchanges)]
    assert all(each["messages"] == MESSAGES and "continue_final_message" not in each for each in asked)
    assert len(asked) == (2 if first is SILENT else 1)


@pytest.mark.parametrize(
    ("scripts", "shown", "asked"),
    [
        ([WHOLE, WHOLE], "Hello you", [1, 0]),
        ([SILENT, WHOLE], "Hello you", [1, 1]),
        ([SILENT, SILENT], None, [1, 1]),
    ],
    ids=["the first begins", "the first is late", "none begins"],
)
def test_the_answer_that_begins_first_is_shown(
    scripts: list[Script], shown: str | None, asked: list[int]
) -> None:
    """The server of the other one sees its client go."""
    hedged = recipe("Hedge the first output")["hedged"]
    seen = collect(stall_timeout_s=3.0, first_content_timeout_s=3.0)

    async def reading(urls: list[str]) -> str:
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(AsyncOpenAI(api_key="none", base_url=url, max_retries=0))
                for url in urls
            ]
            answer = hedged([seen.monitor(client) for client in clients], MESSAGES, after_s=1.0)
            return "".join([piece async for piece in answer])

    with ExitStack() as stack:
        servers = [stack.enter_context(WireServer(script)) for script in scripts]
        urls = [server.base_url for server in servers]
        if shown is None:
            with pytest.raises(StreamStalled):
                asyncio.run(reading(urls))
        else:
            assert asyncio.run(reading(urls)) == shown

        assert [len(server.exchanges) for server in servers] == asked
        assert all(exchange.over.wait(60) for server in servers for exchange in server.exchanges)
