"""Google's Agent Development Kit: an `LlmAgent` whose model is LiteLLM's."""

from __future__ import annotations

import os

import pytest

from support.frameworks_through import Through

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the internet for prices
adk_agents = pytest.importorskip("google.adk.agents")
lite_llm = pytest.importorskip("google.adk.models.lite_llm")
run_config = pytest.importorskip("google.adk.agents.run_config")
runners = pytest.importorskip("google.adk.runners")
types = pytest.importorskip("google.genai.types")


async def read(base_url: str) -> list[tuple[bool | None, str]]:
    model = lite_llm.LiteLlm(model="openai/m", api_base=base_url, api_key="none")
    runner = runners.InMemoryRunner(agent=adk_agents.LlmAgent(name="a", model=model), app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    streaming = run_config.RunConfig(streaming_mode=run_config.StreamingMode.SSE)
    question = types.Content(role="user", parts=[types.Part(text="hi")])
    events = runner.run_async(user_id="u", session_id=session.id, new_message=question, run_config=streaming)
    return [(event.partial, event.content.parts[0].text) async for event in events]


def test_agent(through: Through) -> None:
    """An agent that streams is measured, and its events are as before."""
    told = [(True, "Hel"), (True, "lo"), (True, " you"), (False, "Hello you")]

    through.check(
        "Google ADK, LlmAgent on LiteLLM", "google-adk", lambda: read(through.server.base_url), told
    )
