"""LangChain's and LiteLLM's recipes of docs/fallbacks.md, against two servers of which the first stalls."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.wire import Script, WireServer
from openai import APIError

import midstream
from support.recipes import HALF, LIMITS, SILENT, WHOLE, recipe

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the internet for prices


@pytest.fixture
def records() -> Iterator[list[midstream.StreamRecord]]:
    kept: list[midstream.StreamRecord] = []
    midstream.instrument(**LIMITS, on_end=kept.append)
    yield kept
    midstream.uninstrument()


def read(model: Any) -> str:
    return "".join(chunk.text for chunk in model.stream("hi"))


def read_async(model: Any) -> str:
    async def reading() -> str:
        return "".join([chunk.text async for chunk in model.astream("hi")])

    return asyncio.run(reading())


@pytest.mark.parametrize("use", [read, read_async], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("first", "shown"),
    [(SILENT, "Hello you"), (HALF, None)],
    ids=["before the first output", "in mid-answer"],
)
def test_langchain_falls_back_before_the_first_output(
    first: Script, shown: str | None, use: Any, records: list[midstream.StreamRecord]
) -> None:
    """After output the exception is the caller's."""
    langchain_openai = pytest.importorskip("langchain_openai")
    with_fallback = recipe("LangChain's with_fallbacks")["with_fallback"]
    with WireServer(first) as one, WireServer(WHOLE) as other:
        models = [
            langchain_openai.ChatOpenAI(model="m", api_key="none", base_url=server.base_url, max_retries=0)
            for server in (one, other)
        ]
        if shown is None:
            with pytest.raises(
                (APIError, TimeoutError)
            ) as caught:  # LangChain's own; in async programs the second
                use(with_fallback(*models))
            assert isinstance(caught.value.__cause__, midstream.StreamStalled)
            assert other.exchanges == []
        else:
            assert use(with_fallback(*models)) == shown
    assert records[0].error_type == "stall_timeout"


def test_the_router_falls_back_before_the_first_output(records: list[midstream.StreamRecord]) -> None:
    """In an async program, as its proxy is."""
    pytest.importorskip("litellm")
    router_of = recipe("LiteLLM's Router")["router_of"]

    async def reading(one: WireServer, other: WireServer) -> str:
        router = router_of(one.base_url, other.base_url)
        answer = await router.acompletion(
            model="first", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])

    with WireServer(SILENT) as one, WireServer(WHOLE) as other:
        assert asyncio.run(reading(one, other)) == "Hello you"
    assert [record.error_type for record in records] == ["stall_timeout", None]
