"""LlamaIndex: its `OpenAI` model, completing and chatting."""

from __future__ import annotations

from typing import Any

import pytest
from openai import OpenAI

from support.frameworks_through import Through

llama_index = pytest.importorskip("llama_index.llms.openai")


def model(base_url: str, **options: Any) -> Any:
    return llama_index.OpenAI(model="gpt-4o", api_key="none", api_base=base_url, **options)


def read(llm: Any) -> str:
    return "".join(chunk.delta or "" for chunk in llm.stream_complete("hi"))


async def read_async(llm: Any) -> str:
    return "".join([chunk.delta or "" async for chunk in await llm.astream_complete("hi")])


@pytest.mark.parametrize("use", [read, read_async], ids=["sync", "async"])
def test_complete(through: Through, use: Any) -> None:
    """`stream_complete` and `astream_complete` are measured."""
    llm = model(through.server.base_url)
    name = f"LlamaIndex {'sync' if use is read else 'async'}"

    record = through.check(name, "llama-index-llms-openai", lambda: use(llm), "Hello you")

    assert record.request_model == "gpt-4o"


def test_client_given_to_monitor(through: Through) -> None:
    """A monitored client may be handed to it."""
    base_url = through.server.base_url
    llm = model(base_url, openai_client=through.monitor(OpenAI(api_key="none", base_url=base_url)))

    name = "LlamaIndex, monitored client"
    through.check(name, "llama-index-llms-openai", lambda: read(llm), "Hello you", explicit=True)
