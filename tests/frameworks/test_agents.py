"""The OpenAI Agents SDK, whose Responses model reads an async streaming response."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI

from support.frameworks_through import Through

agents = pytest.importorskip("agents")
agents.set_tracing_disabled(True)


def client(base_url: str) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="none", base_url=base_url)


async def read(model: Any) -> str:
    agent = agents.Agent(name="a", instructions="be brief", model=model)
    run = agents.Runner.run_streamed(agent, "hi")
    async for _ in run.stream_events():
        pass
    return str(run.final_output)


def test_chat_completions(through: Through) -> None:
    """Its chat model is measured."""
    model = agents.OpenAIChatCompletionsModel("m", client(through.server.base_url))

    through.check("OpenAI Agents, chat", "openai-agents", lambda: read(model), "Hello you")


def test_responses(through: Through) -> None:
    """So is its Responses model, where other instrumentations lose the stream."""
    model = agents.OpenAIResponsesModel("m", client(through.responses.base_url))

    record = through.check("OpenAI Agents, Responses API", "openai-agents", lambda: read(model), "Hello you")

    assert record.operation == "responses"


def test_client_given_to_monitor(through: Through) -> None:
    """A monitored client may be handed to it."""
    model = agents.OpenAIResponsesModel("m", through.monitor(client(through.responses.base_url)))

    name = "OpenAI Agents, monitored client"
    through.check(name, "openai-agents", lambda: read(model), "Hello you", explicit=True)
