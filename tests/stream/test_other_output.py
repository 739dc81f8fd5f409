"""Output that is no text: pictures, transcriptions, speech, the server's own tools; and where else usage can stand."""

from __future__ import annotations

import asyncio
import io
from importlib.metadata import version
from typing import Any

import openai
import pytest

from midstream.stream.chunks import Reading, read_any, read_chat, read_response
from midstream.stream.generic_chunks import read_foreign
from midstream.stream.usage import Usage
from midstream.testing import (
    DONE,
    ManualClock,
    Script,
    chunk,
    collect,
    finish,
    frame,
    scripted,
    scripted_async,
)
from support.harness import a_client, settled
from support.needs import needs_responses

KINDS = ["sync", "async"]
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("delta", "phase"),
    [
        ({"content": "", "images": [PICTURE]}, "text"),
        ({"content": None, "images": [PICTURE]}, "text"),
        ({"image": PICTURE}, "text"),
        ({"audio": {"transcript": "hi"}}, "text"),
        ({"content": [{"type": "text", "text": "a"}]}, "text"),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}, "reasoning"),
        ({"thinking": "hm"}, "reasoning"),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}, "reasoning"),
    ],
)
def test_delta_without_text_is_output(delta: dict[str, Any], phase: str, kind: str) -> None:
    """A gap between two pictures is a freeze as any other is."""
    script = [(1.0, chunk(delta)), (31.0, chunk(delta)), (31.1, finish()), (31.1, DONE)]
    client = a_client(kind, script, ManualClock())

    async def read() -> None:
        async for _ in await client.create():
            pass

    asyncio.run(read())

    record = client.seen.record
    assert (record.outcome.value, record.content_chunks, record.time_to_first_content_s) == (
        "completed",
        2,
        1.0,
    )
    assert (record.max_gap_s, record.max_gap_phase, record.freezes) == (30.0, phase, 1)


def made(kind: str, script: Script, clock: ManualClock) -> Any:
    if kind == "sync":
        return openai.OpenAI(api_key="none", max_retries=0, http_client=scripted(script, clock))
    return openai.AsyncOpenAI(api_key="none", max_retries=0, http_client=scripted_async(script, clock))


async def read_all(stream: Any) -> None:
    if hasattr(stream, "__aiter__"):
        async for _ in stream:
            pass
    else:
        for _ in stream:
            pass


TOKENS = {"type": "tokens", "input_tokens": 9, "output_tokens": 2, "total_tokens": 11}
HEARD: Script = [
    (0.5, frame({"type": "transcript.text.delta", "delta": "My"})),
    (8.5, frame({"type": "transcript.text.delta", "delta": " word"})),
    (9.0, frame({"type": "transcript.text.done", "text": "My word", "usage": TOKENS})),
]
DRAWN: Script = [
    (1.0, frame({"type": "image_generation.partial_image", "b64_json": "AAAA", "partial_image_index": 0})),
    (9.0, frame({"type": "image_generation.partial_image", "b64_json": "AAAA", "partial_image_index": 1})),
    (9.5, frame({"type": "image_generation.completed", "b64_json": "AAAA", "usage": TOKENS})),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.skipif(
    version("openai").startswith("1.4"), reason="it has no streams of transcriptions and pictures yet"
)
@pytest.mark.parametrize(("what", "script", "content"), [("transcription", HEARD, 2), ("picture", DRAWN, 3)])
def test_stream_of_a_transcription_or_a_picture(what: str, script: Script, content: int, kind: str) -> None:
    """Content, finish, usage and outcome, by the type of the events."""
    clock = ManualClock()
    client = made(kind, script, clock)
    seen = collect(client, clock=clock)

    async def use() -> None:
        if what == "transcription":
            file = ("a.wav", io.BytesIO(b"RIFF"))
            stream = client.audio.transcriptions.create(model="t", file=file, stream=True)
        else:
            try:
                stream = client.images.generate(model="t", prompt="p", stream=True, partial_images=2)
            except TypeError:
                pytest.skip("this version of the SDK has no streams of pictures")
        await read_all(await settled(stream))

    asyncio.run(use())

    record = seen.record
    assert (record.outcome.value, record.content_chunks, record.max_gap_s) == ("completed", content, 8.0)
    assert (record.freezes, record.output_tokens, record.usage_complete) == (1, 2, True)


def event(kind: str, **fields: Any) -> str:
    return frame({"type": kind, **fields})


@needs_responses
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tool", ["web_search_call", "file_search_call", "code_interpreter_call"])
def test_wait_for_a_tool_of_the_server_is_in_the_phase_of_tool_calls(tool: str, kind: str) -> None:
    """The model thought, called a tool, and the server worked on it for six seconds."""
    clock = ManualClock()
    item = {"type": tool, "id": "t", "status": "in_progress"}
    client = made(
        kind,
        [
            (1.0, event("response.reasoning_summary_text.delta", delta="hm")),
            (2.0, event("response.output_item.added", item=item, output_index=1)),
            (2.0, event(f"response.{tool}.in_progress")),
            (5.0, event(f"response.{tool}.searching")),
            (8.0, event("response.output_text.delta", delta="Found")),
            (
                8.0,
                event("response.completed", response={"model": "m", "status": "completed", "output": [item]}),
            ),
        ],
        clock,
    )
    seen = collect(client, clock=clock)

    async def use() -> None:
        await read_all(await settled(client.responses.create(model="m", input="p", stream=True)))

    asyncio.run(use())

    record = seen.record
    assert (record.max_gap_s, record.max_gap_phase, record.finish_reasons) == (6.0, "tool_call", ("stop",))


CHOICE = {"index": 0, "delta": {}, "finish_reason": "stop"}
COUNTS = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


@pytest.mark.parametrize(
    ("read", "given", "expected"),
    [
        (read_chat, {"choices": [CHOICE], "x_groq": {"id": "r", "usage": COUNTS}}, Usage(7, 3)),
        (read_chat, {"choices": [{**CHOICE, "usage": COUNTS}]}, Usage(7, 3)),
        (
            read_chat,
            {"choices": [CHOICE], "usage": COUNTS, "x_groq": {"usage": {"prompt_tokens": 1}}},
            Usage(7, 3),
        ),
        (read_any, {"choices": [CHOICE], "x_groq": {"usage": COUNTS}}, Usage(7, 3)),
        (read_foreign, {"choices": [CHOICE], "x_groq": {"usage": COUNTS}}, Usage(7, 3)),
    ],
)
def test_usage_stands_in_more_than_one_place(read: Any, given: Any, expected: Usage) -> None:
    """Groq has it in a field of its own, Moonshot in the choice."""
    assert read(given) == Reading(finishes=((0, "stop"),), usage=expected)


def test_error_of_groq_is_one() -> None:
    """It comes in an ordinary chunk."""
    given = {"choices": [{**CHOICE, "finish_reason": None}], "x_groq": {"error": "over capacity"}}

    reading = read_chat(given)

    assert reading.error == "error_event"


@pytest.mark.parametrize(
    ("given", "phase"),
    [
        (
            {
                "type": "response.output_item.done",
                "item": {"type": "image_generation_call", "result": "AAAA"},
            },
            "text",
        ),
        ({"type": "response.output_item.done", "item": {"type": "message", "content": ["x"]}}, None),
        ({"type": "response.output_item.added", "item": {"type": "reasoning"}}, None),
        ({"type": "response.output_item.added", "item": {"type": "function_call", "name": "f"}}, "tool_call"),
        ({"type": "response.output_item.added", "item": {"type": "function_call", "name": ""}}, None),
        ({"type": "response.output_item.added", "item": {"type": "function_call_output"}}, None),
        ({"type": "transcript.text.segment", "text": "hi"}, "text"),
        ({"type": "speech.audio.delta", "audio": "AAAA"}, "text"),
        ({"type": "response.image_generation_call.partial_image", "partial_image_b64": "AAAA"}, "text"),
        ({"type": "image_edit.partial_image", "b64_json": "AAAA"}, "text"),
        ({"type": "keepalive"}, None),
    ],
)
def test_event_is_output_if_it_carries_some(given: Any, phase: str | None) -> None:
    """By its type string, never by its class."""
    assert read_response(given).phase == phase
