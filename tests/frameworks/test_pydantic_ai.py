"""Pydantic AI: its chat and Responses models."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI

from support.frameworks_through import Through

pydantic_ai = pytest.importorskip("pydantic_ai")
models = pytest.importorskip("pydantic_ai.models.openai")
providers = pytest.importorskip("pydantic_ai.providers.openai")


async def read(model: Any) -> str:
    async with pydantic_ai.Agent(model).run_stream("hi") as run:
        return "".join([text async for text in run.stream_text(delta=True)])


def test_chat(through: Through) -> None:
    """Its chat model is measured."""
    provider = providers.OpenAIProvider(base_url=through.server.base_url, api_key="none")
    model = models.OpenAIChatModel("m", provider=provider)

    through.check("Pydantic AI, chat", "pydantic-ai-slim", lambda: read(model), "Hello you")


def test_client_given_to_monitor(through: Through) -> None:
    """A monitored client may be handed to its provider."""
    client = through.monitor(AsyncOpenAI(api_key="none", base_url=through.server.base_url))
    model = models.OpenAIChatModel("m", provider=providers.OpenAIProvider(openai_client=client))

    name = "Pydantic AI, monitored client"
    through.check(name, "pydantic-ai-slim", lambda: read(model), "Hello you", explicit=True)


def test_left_in_the_freeze(through: Through) -> None:
    """Whoever leaves its context manager while the stream is frozen leaves a record."""
    provider = providers.OpenAIProvider(base_url=through.server.base_url, api_key="none")
    model = models.OpenAIChatModel("m", provider=provider)

    async def use() -> None:
        async with pydantic_ai.Agent(model).run_stream("hi") as run:
            async for _ in run.stream_text(delta=True):
                break

    assert through.check_left(use).outcome in {"left_early", "cancelled", "completed"}
