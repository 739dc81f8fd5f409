"""The server's own id of an answer: which field of which chunk it is, through every door."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from midstream.stream.chunks import read_response_id
from midstream.testing import (
    DONE,
    Collected,
    ManualClock,
    Script,
    chunk,
    collect,
    finish,
    frame,
    scripted,
    scripted_async,
    text,
)

ASK: dict[str, Any] = {"model": "m", "stream": True}
CHAT: Script = [
    (1.0, chunk(choices=[], id="", model="")),  # Azure's first chunk has the result of its filter alone
    (1.0, text("a", id="chatcmpl-1")),
    (2.0, text("b", id="chatcmpl-1")),
    (2.0, finish(id="chatcmpl-1")),
    (2.0, DONE),
]
COMPLETION: Script = [
    (
        1.0,
        frame(
            {"id": "cmpl-1", "model": "m", "choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}
        ),
    ),
    (1.0, DONE),
]
RESPONSE: Script = [
    (1.0, frame({"type": "response.created", "response": {"id": "resp_1", "model": "m"}})),
    (1.0, frame({"type": "response.output_item.added", "item": {"id": "msg_of_it", "type": "message"}})),
    (1.0, frame({"type": "response.output_text.delta", "item_id": "msg_of_it", "delta": "a"})),
    (2.0, frame({"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}})),
]
MESSAGE: Script = [
    (1.0, frame({"type": "message_start", "message": {"id": "msg_1", "model": "m"}})),
    (1.0, frame({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}})),
    (2.0, frame({"type": "message_stop"})),
]


def test_the_first_chunk_that_has_an_id_names_the_answer() -> None:
    """A relay that makes a new id for each chunk changes nothing later."""
    clock = ManualClock()
    script = [
        (1.0, text("a", id="first")),
        (1.0, text("b", id="second")),
        (1.0, finish(id="third")),
        (1.0, DONE),
    ]
    client = OpenAI(api_key="none", http_client=scripted(script, clock))
    seen = collect(client)

    list(client.chat.completions.create(messages=[], **ASK))

    assert seen.record.response_id == seen.record.to_dict()["response_id"] == "first"


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("api", "script", "found"),
    [("chat", CHAT, "chatcmpl-1"), ("completions", COMPLETION, "cmpl-1"), ("responses", RESPONSE, "resp_1")],
)
def test_openais_streams_name_their_answer(kind: str, api: str, script: Script, found: str) -> None:
    """While it is open, too; and it is no label of a metric."""
    clock, reader = ManualClock(), InMemoryMetricReader()
    client: Any = (
        OpenAI(api_key="none", http_client=scripted(script, clock))
        if kind == "sync"
        else AsyncOpenAI(api_key="none", http_client=scripted_async(script, clock))
    )
    if api == "responses" and not hasattr(client, "responses"):
        pytest.skip("this version of the SDK has no Responses API")
    seen = collect(client, clock=clock, meter_provider=MeterProvider([reader]))
    asked: dict[str, Any] = {"chat": {"messages": []}}.get(
        api, {"input" if api == "responses" else "prompt": "p"}
    )
    create = client.chat.completions if api == "chat" else getattr(client, api)

    async def read() -> set[str | None]:
        stream = create.create(**asked, **ASK)
        if kind == "sync":
            return {view.response_id for _ in stream for view in seen.streams()}
        return {view.response_id async for _ in await stream for view in seen.streams()}

    while_open = asyncio.run(read())

    assert seen.record.response_id == found
    assert found in while_open
    data = reader.get_metrics_data()
    assert data is not None
    assert found not in data.to_json()


@pytest.mark.parametrize(
    ("path", "script", "found"),
    [("/v1/chat/completions", CHAT, "chatcmpl-1"), ("/v1/messages", MESSAGE, "msg_1")],
)
def test_bytes_of_an_http_client_name_their_answer(path: str, script: Script, found: str) -> None:
    """OpenAI's protocol, and Anthropic's."""
    clock = ManualClock()
    client = scripted(script, clock)
    seen = collect(client, clock=clock)

    asked = {"model": "m", "messages": [], "stream": True}
    with client.stream("POST", f"http://server.test{path}", json=asked) as response:
        for _ in response.iter_bytes():
            pass

    assert seen.record.response_id == found


@pytest.mark.parametrize("form", ["dicts", "objects"])
def test_chunks_of_any_iterator_name_their_answer(form: str) -> None:
    parts = [{"id": "any-1", "text": "a"}, {"id": "any-1", "text": "b"}]
    seen: Collected = collect(clock=ManualClock())

    list(seen.monitor(iter([SimpleNamespace(**part) if form == "objects" else part for part in parts])))

    assert seen.record.response_id == "any-1"


class Fragile:
    """A chunk whose fields cannot be read."""

    @property
    def id(self) -> str:
        raise AttributeError("not yet")


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ({"id": "a"}, "a"),
        ({"message": {"id": "msg_1"}}, "msg_1"),
        ({"response": {"id": "resp_1"}}, "resp_1"),
        ({"responseId": "of Gemini"}, "of Gemini"),
        (SimpleNamespace(response_id="of Gemini", candidates=[]), "of Gemini"),
        ({"id": "run-5b"}, None),  # LangChain's own, of its run
        ({"id": "lc_run--5b"}, None),
        (SimpleNamespace(id="17", event="message", data="{}"), None),  # of a server-sent event
        ({"id": ""}, None),
        ({"id": 7}, None),
        ({"id": None, "message": "text"}, None),
        ({"id": "two\nlines\x1b[2J"}, "two lines\ufffd[2J"),
        ({"id": json.loads('"\\ud800"')}, "\ufffd"),
        ({"id": "x" * 1000}, "x" * 256),
        ("text", None),
        (b"bytes", None),
        (None, None),
        pytest.param(Fragile(), None, id="fragile"),
    ],
    ids=ascii,
)
def test_what_is_an_id_and_what_is_none(part: Any, found: str | None) -> None:
    """Valid text without control characters, of at most 256 characters."""
    assert read_response_id(part) == found
