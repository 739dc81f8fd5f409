"""LiteLLM's SDK, which reads raw responses of the openai SDK."""

from __future__ import annotations

import os
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from support.frameworks_through import Through

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the internet for prices
litellm = pytest.importorskip("litellm")
litellm.telemetry = False


def request(base_url: str, **options: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}]
    return {
        "model": "openai/m",
        "api_base": base_url,
        "api_key": "none",
        "messages": messages,
        "stream": True,
        **options,
    }


def read(**options: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(**options))


async def read_async(**options: Any) -> str:
    return "".join(
        [chunk.choices[0].delta.content or "" async for chunk in await litellm.acompletion(**options)]
    )


@pytest.mark.parametrize("use", [read, read_async], ids=["sync", "async"])
def test_chat(through: Through, use: Any) -> None:
    """`completion` and `acompletion` are measured."""
    name = f"LiteLLM {'sync' if use is read else 'async'}"

    through.check(name, "litellm", lambda: use(**request(through.server.base_url)), "Hello you")


@pytest.mark.parametrize("use", [read, read_async], ids=["sync", "async"])
def test_client_given_to_monitor(through: Through, use: Any) -> None:
    """A monitored client may be handed to it."""
    base_url = through.server.base_url
    client = through.monitor((OpenAI if use is read else AsyncOpenAI)(api_key="none", base_url=base_url))

    name = f"LiteLLM {'sync' if use is read else 'async'}, monitored client"
    through.check(
        name, "litellm", lambda: use(**request(base_url, client=client)), "Hello you", explicit=True
    )
