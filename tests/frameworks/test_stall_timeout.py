"""A stall timeout seen through LiteLLM: it is LiteLLM's own `Timeout`, on every way that LiteLLM takes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.wire import WireServer

import midstream
from midstream.testing import DONE, PING, finish, role, text

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the internet for prices
litellm = pytest.importorskip("litellm")
litellm.telemetry = False

STALL_S = 0.4
STALLED = [(0.05, role()), (0.1, text("Hel")), *[(0.2 + 0.1 * number, PING) for number in range(100)]]
WHOLE = [(0.05, role()), (0.1, text("Hello")), (0.15, text(" you")), (0.2, finish()), (0.2, DONE)]
SILENT = [(0.05, role()), *[(0.2 + 0.1 * number, PING) for number in range(100)]]


@pytest.fixture
def records() -> Iterator[list[midstream.StreamRecord]]:
    kept: list[midstream.StreamRecord] = []
    midstream.instrument(stall_timeout_s=STALL_S, first_content_timeout_s=STALL_S, on_end=kept.append)
    yield kept
    midstream.uninstrument()


def request(model: str, server: WireServer) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}]
    return {
        "model": model,
        "api_base": server.base_url,
        "api_key": "none",
        "messages": messages,
        "stream": True,
    }


def read(options: dict[str, Any]) -> None:
    for _ in litellm.completion(**options, max_retries=0):
        pass


def read_async(options: dict[str, Any]) -> None:
    async def reading() -> None:
        async for _ in await litellm.acompletion(**options, max_retries=0):
            pass

    asyncio.run(reading())


@pytest.mark.parametrize("use", [read, read_async], ids=["sync", "async"])
@pytest.mark.parametrize("model", ["openai/m", "hosted_vllm/m"])
def test_it_is_a_timeout_of_litellm(model: str, use: Any, records: list[midstream.StreamRecord]) -> None:
    """Through the openai SDK, and through LiteLLM's own transports."""
    with WireServer(STALLED) as server:
        with pytest.raises(litellm.exceptions.MidStreamFallbackError, match="no output from m") as caught:
            use(request(model, server))
        assert server.exchanges[-1].over.wait(5)
    assert isinstance(caught.value.original_exception, litellm.Timeout)

    assert [record.error_type for record in records] == ["stall_timeout"]


@pytest.mark.parametrize("script", [SILENT, STALLED], ids=["before the first output", "in mid-answer"])
def test_fallbacks_of_the_router_run(script: Any, records: list[midstream.StreamRecord]) -> None:
    """Before the first output the fallback answers; in mid-answer this version of LiteLLM raises its timeout."""

    def model(name: str, server: WireServer) -> dict[str, Any]:
        params = {"model": f"openai/{name}", "api_base": server.base_url, "api_key": "none"}
        return {"model_name": name, "litellm_params": params}

    async def reading() -> str:
        router = litellm.Router(
            [model("first", stalling), model("second", whole)],
            fallbacks=[{"first": ["second"]}],
            num_retries=0,
        )
        messages = [{"role": "user", "content": "hi"}]
        answer = await router.acompletion(model="first", messages=messages, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])

    with WireServer(script) as stalling, WireServer(WHOLE) as whole:
        if script is SILENT:
            assert asyncio.run(reading()) == "Hello you"
            assert [record.error_type for record in records] == ["stall_timeout", None]
        else:
            with pytest.raises((litellm.Timeout, litellm.exceptions.MidStreamFallbackError)):
                asyncio.run(reading())
            assert [record.error_type for record in records] == ["stall_timeout"]
