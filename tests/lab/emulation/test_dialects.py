"""The dialects of OpenAI's protocol that servers speak, one small answer each, read through the real SDK."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from midstream.testing import CUT, DONE, ManualClock, Script, chunk, finish, frame, role, text, usage
from support.harness import Answer, a_client, settled


@dataclass(frozen=True)
class Dialect:
    """What a server sends, what the record must say of it, and the exception that the caller gets."""

    server: str
    does: str
    script: Script
    record: dict[str, Any]
    raises: str | None = None
    request: dict[str, Any] = field(default_factory=dict)
    operation: str = "chat"


def piece(content: str, reason: str | None = None, **fields: Any) -> str:
    """A chunk of the legacy completions API."""
    return frame(
        {
            "id": "",
            "model": "m",
            "choices": [{"index": 0, "text": content, "finish_reason": reason}],
            **fields,
        }
    )


def call(**function: Any) -> list[dict[str, Any]]:
    return [{"id": "t1", "type": "function", "function": function}]


ZEROS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def counted(output: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": 9, "completion_tokens": output, "total_tokens": 9 + output, **more}


FILTERED = {"hate": {"filtered": False, "severity": "safe"}}
DIALECTS = [
    Dialect(
        "Azure", "sends its verdict on the prompt first, verdicts on the text in between, and blanks for names",
        [(0.3, frame({"id": "", "object": "", "created": 0, "model": "", "choices": [],
                      "prompt_filter_results": [{}]})),
         (0.4, role()), (1.0, text("a")), (1.5, text("b", choices=[{"index": 0, "content_filter_results": FILTERED,
                                                                   "content_filter_offsets": {"check_offset": 4}}])),
         (4.0, text("c")), (4.0, finish()),
         (5.0, frame({"id": "", "model": "", "choices": [{"index": 0, "finish_reason": None,
                                                         "content_filter_results": FILTERED}]})), (5.0, DONE)],
        {"time_to_first_chunk_s": 0.3, "time_to_first_content_s": 1.0, "max_gap_s": 3.0, "content_chunks": 2,
         "tail_s": 1.0, "outcome": "completed", "response_model": "m"},
    ),
    Dialect(
        "Azure", "stops for its filter in the middle of an answer",
        [(1.0, text("a")), (2.0, text("b")), (2.5, finish("content_filter")), (2.5, DONE)],
        {"finish_reasons": ("content_filter",), "outcome": "completed", "max_gap_s": 1.0},
    ),
    Dialect(
        "DeepSeek", "keeps the line alive with comments, thinks first, and counts in the finish chunk",
        [(5.0, ": keep-alive\n\n"), (20.0, chunk({"role": "assistant", "content": None, "reasoning_content": ""})),
         (20.1, chunk({"content": None, "reasoning_content": "hm"})), (21.0, chunk({"reasoning_content": "so"})),
         (23.0, chunk({"content": "a", "reasoning_content": None})),
         (23.1, finish(usage=counted(3, prompt_cache_hit_tokens=4, prompt_cache_miss_tokens=5,
                                     completion_tokens_details={"reasoning_tokens": 2}))), (23.1, DONE)],
        {"time_to_first_content_s": 20.1, "max_gap_s": 2.0, "max_gap_phase": "reasoning", "freezes": 0,
         "cached_tokens": 4, "reasoning_tokens": 2, "output_tokens": 3, "usage_complete": True},
    ),
    Dialect(
        "DeepSeek", "gives up for want of resources, with a finish reason of its own",
        [(1.0, text("a")), (9.0, finish("insufficient_system_resource")), (9.0, DONE)],
        {"finish_reasons": ("insufficient_system_resource",), "outcome": "error", "max_gap_s": 8.0, "freezes": 1},
    ),
    Dialect(
        "OpenRouter", "comments while it looks for a provider, and sends reasoning twice under two names",
        [(0.2, ": OPENROUTER PROCESSING\n\n"), (2.2, ": OPENROUTER PROCESSING\n\n"),
         (3.0, chunk({"role": "assistant", "content": "", "reasoning": "hm", "reasoning_details": [{"text": "hm"}]})),
         (4.0, chunk({"role": "assistant", "content": "a"})),
         (4.0, chunk({"role": "assistant", "content": ""}, "stop", native_finish_reason="completed")),
         (4.5, chunk({"role": "assistant", "content": ""}, usage=counted(2, cost=0.0001))), (4.5, DONE)],
        {"time_to_first_chunk_s": 3.0, "time_to_first_content_s": 3.0, "content_chunks": 2, "max_gap_s": 1.0,
         "tail_s": 0.5, "output_tokens": 2, "usage_complete": True},
    ),
    Dialect(
        "OpenRouter", "loses its provider in mid-answer",
        [(1.0, text("a")), (2.0, text("b")),
         (12.0, chunk({"content": ""}, "error", error={"code": 502, "message": "x"}))],
        {"outcome": "error", "error_type": "APIError", "max_gap_s": 10.0, "max_gap_open": True, "freezes": 1},
        raises="APIError",
    ),
    Dialect(
        "Ollama", "names the role in every chunk, and repeats the finish chunk for usage",
        [(9.0, chunk({"role": "assistant", "content": "a"})), (9.5, chunk({"role": "assistant", "content": "b"})),
         (9.6, chunk({"role": "assistant", "content": ""}, "length")), (9.6, usage(9, 2)), (9.6, DONE)],
        {"time_to_first_content_s": 9.0, "max_gap_s": 0.5, "finish_reasons": ("length",), "limit_hit": True,
         "cached_tokens": None},
        request={"max_tokens": 2},
    ),
    Dialect(
        "Ollama", "thinks in a field named `reasoning`",
        [(1.0, chunk({"role": "assistant", "content": "", "reasoning": "hm"})), (3.0, text("a")), (3.0, finish())],
        {"time_to_first_content_s": 1.0, "content_chunks": 2, "max_gap_phase": "reasoning"},
    ),
    Dialect(
        "Ollama", "loses the text of an error: an empty chunk, and the end",
        [(1.0, text("a")), (8.0, chunk({"role": "assistant", "content": ""}))],
        {"outcome": "no_finish", "finish_reasons": (), "max_gap_s": 7.0, "max_gap_open": True, "freezes": 1},
    ),
    Dialect(
        "Ollama", "puts a count of zeros on every chunk of a legacy completion",
        [(1.0, piece("a", None, usage=ZEROS)), (2.0, piece("b", "", usage=ZEROS)),
         (2.0, piece("", "stop", usage=ZEROS)),
         (2.0, frame({"id": "x", "model": "m", "choices": [], "usage": counted(2)})), (2.0, DONE)],
        {"output_tokens": 2, "input_tokens": 9, "finish_reasons": ("stop",), "max_gap_s": 1.0},
        operation="text_completion",
    ),
    Dialect(
        "Gemini", "sends whole tool calls without an index, and a running count on every chunk",
        [(1.0, chunk({"role": "assistant", "content": "a"}, usage=counted(1))),
         (4.0, chunk({"tool_calls": [{"index": None, **call(name="f", arguments="{}")[0]}]}, usage=counted(7))),
         (4.0, chunk({"role": "assistant"}, "stop", usage=counted(9))), (4.0, DONE)],
        {"content_chunks": 2, "max_gap_s": 3.0, "output_tokens": 9, "finish_reasons": ("stop",),
         "usage_complete": True},
    ),
    Dialect(
        "Gemini", "spells the finish reason so that no SDK finds it",
        [(1.0, text("a")), (2.0, chunk({"content": "b"}, None, choices=[{"index": 0, "delta": {"content": "b"},
                                                                        "finishReason": "STOP"}])), (2.0, DONE)],
        {"outcome": "no_finish", "content_chunks": 2, "finish_reasons": ()},
    ),
    Dialect(
        "TGI", "has no ids, names the role in every chunk, and finishes with the last token",
        [(1.0, chunk({"role": "assistant", "content": "a"}, id="")),
         (8.0, chunk({"role": "assistant", "content": "b"}, "stop_sequence", id="")),
         (8.0, usage(9, 2, id="")), (8.0, DONE)],
        {"max_gap_s": 7.0, "freezes": 1, "finish_reasons": ("stop_sequence",), "content_chunks": 2},
    ),
    Dialect(
        "TGI", "finishes a legacy completion with `eos_token`, after empty reasons",
        [(1.0, piece("a", "")), (2.0, piece("b", "")), (2.5, piece("</s>", "eos_token", usage=counted(3))),
         (2.5, DONE)],
        {"finish_reasons": ("eos_token",), "outcome": "completed", "output_tokens": 3, "max_gap_s": 1.0},
        operation="text_completion",
    ),
    Dialect(
        "TGI", "reports overload inside a stream that began well",
        [(0.1, frame({"error": {"message": "Model is overloaded", "http_status_code": 422}})), (0.1, DONE)],
        {"outcome": "error", "error_type": "APIError", "chunks": 0, "max_gap_s": None, "time_to_first_chunk_s": None},
        raises="APIError",
    ),
    Dialect(
        "SGLang", "keeps `reasoning_content` in every chunk and counts reasoning tokens in usage itself",
        [(2.0, chunk({"role": "assistant", "content": "", "reasoning_content": None})),
         (2.0, chunk({"content": None, "reasoning_content": "hm"})),
         (3.0, chunk({"content": "a", "reasoning_content": None})),
         (3.5, chunk({"content": None, "reasoning_content": None}, "stop", matched_stop=2)),
         (3.5, usage(9, 3, reasoning_tokens=1, prompt_tokens_details=None)), (3.5, DONE)],
        {"time_to_first_content_s": 2.0, "content_chunks": 2, "max_gap_s": 1.0, "reasoning_tokens": 1,
         "cached_tokens": None, "tail_s": 0.0},
    ),
    Dialect(
        "SGLang", "holds all finish chunks back until every choice has ended",
        [(1.0, text("a")), (1.0, text("b", index=1)), (2.0, text("c")), (9.0, text("d", index=1)),
         (9.0, finish("stop")), (9.0, finish("stop", index=1)), (9.0, usage(9, 4)), (9.0, DONE)],
        {"finish_reasons": ("stop", "stop"), "max_gap_s": 7.0, "freezes": 1, "outcome": "completed"},
        request={"n": 2},
    ),
    Dialect(
        "SGLang", "aborts a request that it cannot keep",
        [(1.0, text("a")), (2.0, chunk({"content": ""}, "abort", matched_stop=None)), (2.0, DONE)],
        {"outcome": "error", "error_type": "abort", "finish_reasons": ("abort",)},
    ),
    Dialect(
        "SGLang", "refuses for a full queue under a status of 200",
        [(0.5, frame({"error": {"object": "error", "message": "The request queue is full.", "code": 503}})),
         (0.5, DONE)],
        {"outcome": "error", "error_type": "APIError", "chunks": 0},
        raises="APIError",
    ),
    Dialect(
        "llama.cpp", "tells how far it has read the prompt, in chunks with a role and no text",
        [(0.5, chunk({"role": "assistant", "content": None}, prompt_progress={"total": 90, "processed": 30})),
         (8.0, chunk({"role": "assistant", "content": None}, prompt_progress={"total": 90, "processed": 90})),
         (9.0, text("a", timings={"predicted_n": 1})), (9.5, text("b")), (9.5, finish()), (9.5, usage(9, 2)),
         (9.5, DONE)],
        {"time_to_first_chunk_s": 0.5, "time_to_first_content_s": 9.0, "max_gap_s": 0.5, "freezes": 0},
    ),
    Dialect(
        "llama.cpp", "pings with an empty comment, fails with an error event, and sends no end mark",
        [(1.0, text("a")), (2.0, text("b")), (5.0, ":\n\n"),
         (9.0, frame({"error": {"code": 500, "message": "kv full"}}))],
        {"outcome": "error", "error_type": "APIError", "max_gap_s": 7.0, "max_gap_open": True},
        raises="APIError",
    ),
    Dialect(
        "TensorRT-LLM", "fills empty strings in, and finishes with the last text",
        [(1.0, chunk({"role": "assistant", "content": "", "reasoning_content": ""})),
         (1.0, chunk({"content": "a", "reasoning_content": ""}, avg_decoded_tokens_per_iter=1.0)),
         (2.0, chunk({"content": "", "reasoning_content": ""})),
         (7.0, chunk({"content": "b", "reasoning_content": ""}, "length", stop_reason=None)),
         (7.0, usage(9, 2, prompt_tokens_details={"cached_tokens": 8})), (7.0, DONE)],
        {"time_to_first_content_s": 1.0, "content_chunks": 2, "max_gap_s": 6.0, "freezes": 1, "cached_tokens": 8,
         "finish_reasons": ("length",)},
    ),
    Dialect(
        "TensorRT-LLM", "breaks the connection when it fails",
        [(1.0, text("a")), (2.0, text("b")), (4.0, CUT)],
        {"outcome": "error", "error_type": "APIConnectionError", "max_gap_s": 2.0, "max_gap_open": True},
        raises="APIConnectionError|ReadError",
    ),
    Dialect(
        "LiteLLM's proxy", "pings while its upstream thinks, and fails over to another one in mid-answer",
        [(5.0, ": ping\n\n"), (9.0, chunk({"role": "assistant", "content": "a"})), (9.5, text("b")),
         (30.0, chunk({"role": "assistant", "content": "c"})), (30.5, finish()), (30.5, usage(9, 3)), (30.5, DONE)],
        {"time_to_first_content_s": 9.0, "max_gap_s": 20.5, "freezes": 1, "outcome": "completed", "output_tokens": 3},
    ),
    Dialect(
        "LiteLLM's proxy", "reports what its upstream said",
        [(1.0, text("a")), (2.0, frame({"error": {"message": "upstream", "type": "None", "code": "500"}}))],
        {"outcome": "error", "error_type": "APIError"},
        raises="APIError",
    ),
    Dialect(
        "vLLM", "counts on every chunk, and finishes with the last text",
        [(1.0, chunk({"role": "assistant", "content": ""}, usage=counted(0))), (1.0, text("a", usage=counted(1))),
         (13.0, chunk({"content": "b"}, "stop", stop_reason=2, usage=counted(2))), (13.0, usage(9, 2)), (13.0, DONE)],
        {"max_gap_s": 12.0, "freezes": 1, "output_tokens": 2, "usage_complete": True, "finish_reasons": ("stop",)},
    ),
    Dialect(
        "vLLM", "dies in mid-answer, and still sends its end mark",
        [(1.0, text("a")), (2.0, text("b")), (3.0, frame({"error": {"message": "EngineCore", "code": 500}})),
         (3.0, DONE)],
        {"outcome": "error", "error_type": "APIError", "max_gap_s": 1.0},
        raises="APIError",
    ),
    Dialect(
        "vLLM", "names the roles of all choices before the second one is read",
        [(1.0, role()), (1.0, chunk({"role": "assistant", "content": ""}, index=1)), (1.0, text("a")),
         (3.0, text("b", index=1)), (3.0, finish()), (3.0, finish(index=1)), (3.0, DONE)],
        {"content_chunks": 2, "max_gap_s": 2.0, "finish_reasons": ("stop", "stop")},
        request={"n": 2},
    ),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"{dialect.server} {dialect.does}")
def test_record_is_right_in_every_dialect(dialect: Dialect, kind: str) -> None:
    """Whatever a server makes of the protocol, the figures are those of the answer."""
    client = a_client(kind, dialect.script, ManualClock())

    raised = asyncio.run(read(client, dialect))

    record = client.seen.record
    assert {name: getattr(record, name) for name in dialect.record} == {
        name: pytest.approx(value) if isinstance(value, float) else value
        for name, value in dialect.record.items()
    }
    assert raised is None if dialect.raises is None else raised in dialect.raises.split("|")


async def read(client: Any, dialect: Dialect) -> str | None:
    try:
        if dialect.operation == "chat":
            stream = await client.create(**dialect.request)
        else:
            stream = Answer(await settled(client.sdk.completions.create(model="m", prompt="hi", stream=True)))
        async for _ in stream:
            pass
    except Exception as exc:
        return type(exc).__name__
    return None
