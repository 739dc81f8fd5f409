"""LangChain: `ChatOpenAI`, which reads raw responses and puts a time limit around each chunk."""

from __future__ import annotations

from typing import Any

import pytest

from support.frameworks_through import Through

langchain_openai = pytest.importorskip("langchain_openai")
WORDS = ["", "Hel", "lo", " you", "", "", ""]


def chat(base_url: str, **options: Any) -> Any:
    return langchain_openai.ChatOpenAI(model="m", api_key="none", base_url=base_url, **options)


def read(model: Any) -> str:
    return "".join(chunk.text for chunk in model.stream("hi"))


async def read_async(model: Any) -> str:
    return "".join([chunk.text async for chunk in model.astream("hi")])


@pytest.mark.parametrize("use", [read, read_async], ids=["sync", "async"])
@pytest.mark.parametrize("headers", [False, True], ids=["plain", "with headers"])
def test_chat(through: Through, use: Any, headers: bool) -> None:
    """Streams of `ChatOpenAI` are measured, those that it reads through a raw response too."""
    model = chat(through.server.base_url, include_response_headers=headers)
    name = (
        f"LangChain {use.__name__.replace('read_', '').replace('read', 'sync')}{', raw response' * headers}"
    )

    record = through.check(name, "langchain-openai", lambda: use(model), "Hello you")

    assert (record.operation, record.request_model) == ("chat", "m")


@pytest.mark.parametrize("use", [read, read_async], ids=["sync", "async"])
def test_responses(through: Through, use: Any) -> None:
    """So are those that it asks the Responses API for."""
    model = chat(through.responses.base_url, use_responses_api=True)
    name = f"LangChain {use.__name__.replace('read_', '').replace('read', 'sync')}, Responses API"

    record = through.check(name, "langchain-openai", lambda: use(model), "Hello you")

    assert record.operation == "responses"


@pytest.mark.parametrize("use", [read, read_async], ids=["sync", "async"])
def test_its_clients_given_to_monitor(through: Through, use: Any) -> None:
    """The model shows the clients that it uses, and they may be monitored one by one."""
    model = chat(through.server.base_url)
    through.monitor(model.root_client)
    through.monitor(model.root_async_client)

    through.check(
        "LangChain, root clients", "langchain-openai", lambda: use(model), "Hello you", explicit=True
    )


def test_its_own_time_limit_in_the_freeze(through: Through) -> None:
    """`stream_chunk_timeout` cancels the wait for a chunk: the record has that wait as its open gap."""
    model = chat(through.server.base_url, stream_chunk_timeout=0.5, max_retries=0)

    async def use() -> None:
        with pytest.raises(langchain_openai.StreamChunkTimeoutError):
            await read_async(model)

    record = through.check_left(use)

    assert (record.outcome, record.freezes, record.max_gap_open) == ("cancelled", 1, True)
    assert record.max_gap_s == pytest.approx(0.5, abs=0.1)
