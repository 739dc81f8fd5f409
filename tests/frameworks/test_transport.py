"""Packages that stream through an HTTP library and no SDK of OpenAI's: one record each, and the server's own gap."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import pytest
from benchmarks.wire import WireServer

from midstream.testing import frame
from support.frameworks_through import Through

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the internet for prices
litellm = pytest.importorskip("litellm")
litellm.telemetry = False
litellm.suppress_debug_info = True

MESSAGES = [{"role": "user", "content": "hi"}]
PROVIDERS = [
    "openai", "custom_openai", "litellm_proxy", "hosted_vllm", "deepseek", "openrouter", "groq", "together_ai",
    "fireworks_ai", "mistral",
]  # fmt: skip


def text_of(chunks: Iterator[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def text_of_async(chunks: AsyncIterator[Any]) -> str:
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])


def of_litellm(provider: str, base_url: str) -> dict[str, Any]:
    return {
        "model": f"{provider}/m", "api_base": base_url, "api_key": "none", "messages": MESSAGES, "stream": True,
    }  # fmt: skip


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_every_provider_of_litellm(through: Through, provider: str, kind: str) -> None:
    """Those that LiteLLM sends through the openai SDK, and those that it sends itself."""
    asked = of_litellm(provider, through.server.base_url)

    async def read_async() -> str:
        return await text_of_async(await litellm.acompletion(**asked))

    def read() -> Any:
        return text_of(litellm.completion(**asked)) if kind == "sync" else read_async()

    record = through.check(f"LiteLLM {provider}/ {kind}", "litellm", read, "Hello you")
    assert record.request_model.rpartition("/")[2] == "m"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_litellm_with_its_transport_of_httpx(
    through: Through, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default its async calls go over aiohttp below httpx; the other transport is observed alike."""
    monkeypatch.setattr(litellm, "disable_aiohttp_transport", True)
    litellm.in_memory_llm_clients_cache.flush_cache()
    asked = of_litellm("hosted_vllm", through.server.base_url)

    async def read_async() -> str:
        return await text_of_async(await litellm.acompletion(**asked))

    def read() -> Any:
        return text_of(litellm.completion(**asked)) if kind == "sync" else read_async()

    through.check(f"LiteLLM hosted_vllm/ {kind}, httpx below", "litellm", read, "Hello you")
    litellm.in_memory_llm_clients_cache.flush_cache()


def test_litellms_router_falls_back(through: Through) -> None:
    """The server that refuses leaves no record of a stream; the one that answers leaves its own."""
    answers = {"model": "hosted_vllm/m", "api_base": through.server.base_url, "api_key": "none"}
    refuses = {**answers, "api_base": "http://127.0.0.1:9/v1"}
    router = litellm.Router(
        model_list=[
            {"model_name": "first", "litellm_params": refuses},
            {"model_name": "second", "litellm_params": answers},
        ],
        fallbacks=[{"first": ["second"]}],
        num_retries=0,
    )

    through.check(
        "LiteLLM Router, fallback", "litellm",
        lambda: text_of(router.completion(model="first", messages=MESSAGES, stream=True)), "Hello you",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("package", ["groq", "together"])
def test_sdks_of_the_same_generator(through: Through, package: str, kind: str) -> None:
    """Groq's and Together's SDKs."""
    sdk = pytest.importorskip(package)
    made = getattr(
        sdk,
        {"groq": "Groq", "together": "Together"}[package] if kind == "sync" else f"Async{package.title()}",
    )
    client = made(api_key="none", base_url=through.server.base_url)

    async def read_async() -> str:
        return await text_of_async(
            await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        )

    def read() -> Any:
        if kind == "async":
            return read_async()
        return text_of(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))

    through.check(f"{package} {kind}", package, read, "Hello you")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_mistral(through: Through, kind: str) -> None:
    """Mistral's SDK."""
    client = pytest.importorskip("mistralai.client").Mistral(
        api_key="none", server_url=through.server.base_url.removesuffix("/v1")
    )

    async def read_async() -> str:
        events = await client.chat.stream_async(model="m", messages=MESSAGES)
        return "".join([e.data.choices[0].delta.content or "" async for e in events if e.data.choices])

    def read() -> Any:
        if kind == "async":
            return read_async()
        events = client.chat.stream(model="m", messages=MESSAGES)
        return "".join(e.data.choices[0].delta.content or "" for e in events if e.data.choices)

    through.check(f"mistralai {kind}", "mistralai", read, "Hello you")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_hugging_face(through: Through, kind: str) -> None:
    """`InferenceClient`, which is TGI's own client."""
    hub = pytest.importorskip("huggingface_hub")
    made = hub.InferenceClient if kind == "sync" else hub.AsyncInferenceClient
    client = made(
        base_url=through.server.base_url, api_key="none"
    )  # kept: it closes its streams when it goes

    async def read_async() -> str:
        return await text_of_async(await client.chat_completion(messages=MESSAGES, model="m", stream=True))

    def read() -> Any:
        if kind == "async":
            return read_async()
        return text_of(client.chat_completion(messages=MESSAGES, model="m", stream=True))

    through.check(f"huggingface_hub {kind}", "huggingface_hub", read, "Hello you")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_ollama(through: Through, kind: str) -> None:
    """Ollama's client reads JSON lines."""
    ollama = pytest.importorskip("ollama")

    def line(text: str, **fields: Any) -> str:
        message = {"role": "assistant", "content": text}
        return json.dumps({"model": "m", "message": message, "done": False, **fields}) + "\n"

    counts = {"done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 3}
    script = [
        (0.05, line("")),
        (0.1, line("Hel")),
        (0.2, line("lo")),
        (0.9, line(" you")),
        (0.9, line("", **counts)),
    ]
    with WireServer(script, content_type="application/x-ndjson") as server:
        through.server.close()
        through.server = server
        host = server.base_url.removesuffix("/v1")

        async def read_async() -> str:
            answer = await ollama.AsyncClient(host).chat(model="m", messages=MESSAGES, stream=True)
            return "".join([part.message.content or "" async for part in answer])

        def read() -> Any:
            if kind == "async":
                return read_async()
            answer = ollama.Client(host).chat(model="m", messages=MESSAGES, stream=True)
            return "".join(part.message.content or "" for part in answer)

        record = through.check(f"ollama {kind}", "ollama", read, "Hello you")
        assert (record.provider, record.finish_reasons, record.input_tokens) == ("ollama", ("stop",), 5)


def test_smolagents(through: Through) -> None:
    """An agent's model on LiteLLM."""
    smolagents = pytest.importorskip("smolagents")
    model = smolagents.LiteLLMModel(
        model_id="hosted_vllm/m", api_base=through.server.base_url, api_key="none"
    )
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]

    through.check(
        "smolagents, LiteLLMModel", "smolagents",
        lambda: "".join(delta.content or "" for delta in model.generate_stream(messages)), "Hello you",
    )  # fmt: skip


def test_adk_on_a_vllm(through: Through) -> None:
    """Google ADK with `hosted_vllm/`, the documented way to a vLLM."""
    lite_llm = pytest.importorskip("google.adk.models.lite_llm")
    requests = pytest.importorskip("google.adk.models.llm_request")
    types = pytest.importorskip("google.genai.types")
    model = lite_llm.LiteLlm(model="hosted_vllm/m", api_base=through.server.base_url, api_key="none")

    async def read() -> str:
        question = types.Content(role="user", parts=[types.Part(text="hi")])
        answers = model.generate_content_async(requests.LlmRequest(contents=[question]), stream=True)
        return "".join([a.content.parts[0].text or "" async for a in answers if a.partial and a.content])

    through.check("Google ADK, hosted_vllm/", "google-adk", read, "Hello you")


def test_httpx_sse(through: Through) -> None:
    """Hand-written code with `httpx-sse`."""
    httpx = pytest.importorskip("httpx")
    httpx_sse = pytest.importorskip("httpx_sse")

    def read() -> str:
        asked = {"model": "m", "messages": MESSAGES, "stream": True}
        where = f"{through.server.base_url}/chat/completions"
        with httpx.Client() as client, httpx_sse.connect_sse(client, "POST", where, json=asked) as source:
            events = [json.loads(event.data) for event in source.iter_sse() if event.data != "[DONE]"]
        deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)

    through.check("httpx-sse", "httpx-sse", read, "Hello you")


def test_raw_requests(through: Through) -> None:
    """Hand-written code with `requests`, line by line."""
    requests = pytest.importorskip("requests")

    def read() -> str:
        asked = {"model": "m", "messages": MESSAGES, "stream": True}
        where = f"{through.server.base_url}/chat/completions"
        with requests.Session() as session, session.post(where, json=asked, stream=True) as response:
            return text_of_lines(response.iter_lines())

    through.check("requests, iter_lines", "requests", read, "Hello you")


def test_raw_aiohttp(through: Through) -> None:
    """Hand-written code with `aiohttp`, line by line."""
    aiohttp = pytest.importorskip("aiohttp")

    async def read() -> str:
        asked = {"model": "m", "messages": MESSAGES, "stream": True}
        where = f"{through.server.base_url}/chat/completions"
        async with aiohttp.ClientSession() as session, session.post(where, json=asked) as response:
            return text_of_lines([line async for line in response.content])

    through.check("aiohttp", "aiohttp", read, "Hello you")


def text_of_lines(lines: Iterable[bytes]) -> str:
    """The text of a chat answer, as someone without an SDK reads it."""
    found = ""
    for line in lines:
        data = line.strip().removeprefix(b"data: ")
        if data and data != b"[DONE]":
            found += "".join(choice["delta"].get("content") or "" for choice in json.loads(data)["choices"])
    return found


def test_dspy_on_litellm(through: Through) -> None:
    """DSPy's engine of that name. Its own has a transport that is not observed (docs/frameworks.md)."""
    dspy = pytest.importorskip("dspy")
    model = dspy.LM(
        "hosted_vllm/m", api_base=through.server.base_url, api_key="none", cache=False, engine="litellm"
    )
    predict = dspy.streamify(dspy.Predict("question -> answer"))

    async def read() -> str:
        found = ""
        with dspy.context(lm=model, adapter=dspy.ChatAdapter()):
            try:
                async for part in predict(question="hi"):
                    found += part.choices[0].delta.content or ""
            except dspy.utils.exceptions.AdapterParseError:
                pass  # "Hello you" is not laid out as DSPy asked
        return found

    through.check("DSPy, engine litellm", "dspy", read, "Hello you")


ANTHROPIC: list[dict[str, Any]] = [
    {"type": "message_start", "message": {
        "id": "i", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1},
    }},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    *[
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}
        for part in ("Hel", "lo", " you")
    ],
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]  # fmt: skip


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_anthropic_without_a_word(through: Through, kind: str) -> None:
    """`instrument()` alone covers Anthropic's SDK now."""
    anthropic = pytest.importorskip("anthropic")
    moments = [0.05, 0.1, 0.2, 0.9, 0.9, 0.9, 0.9]
    frames = [f"event: {event['type']}\n{frame(event)}" for event in ANTHROPIC]
    script = list(zip(moments, [frames[0] + frames[1], *frames[2:]], strict=True))
    with WireServer(script) as server:
        through.server.close()
        through.server = server
        made = anthropic.Anthropic if kind == "sync" else anthropic.AsyncAnthropic
        client = made(api_key="none", base_url=server.base_url.removesuffix("/v1"))
        asked = {"model": "m", "max_tokens": 9, "messages": MESSAGES, "stream": True}

        async def read_async() -> str:
            events = await client.messages.create(**asked)
            return "".join([e.delta.text async for e in events if e.type == "content_block_delta"])

        def read() -> Any:
            if kind == "async":
                return read_async()
            return "".join(
                e.delta.text for e in client.messages.create(**asked) if e.type == "content_block_delta"
            )

        record = through.check(f"Anthropic {kind}, instrument()", "anthropic", read, "Hello you")
        assert (record.provider, record.finish_reasons, record.token_limit) == ("anthropic", ("end_turn",), 9)
