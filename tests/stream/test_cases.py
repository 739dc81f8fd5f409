"""What servers really send, as small scripts, with the value that the record must show. Sync and async alike."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from midstream.testing import CUT, DONE, SILENCE, ManualClock, Script, chunk, finish, frame, role, text, usage
from support.harness import a_client


@dataclass(frozen=True)
class Case:
    """A server's behaviour, what the caller gets, and what the record says of it."""

    says: str
    script: Script
    record: dict[str, Any]
    raises: str | None = None
    request: dict[str, Any] = field(default_factory=dict)
    freeze_seen_at_s: float = 5.0


def tool(arguments: str, **function: str) -> str:
    call = {"index": 0, "function": {"arguments": arguments, **function}}
    return chunk({"tool_calls": [{**call, **({"id": "t1"} if function else {})}]})


PINGS: Script = [(2.0 * n + 1, frame({"type": "ping"})) for n in range(1, 15)]
TICKS: Script = [(0.2 * n, text("x")) for n in range(1, 21)]
PLAIN: Script = [(1, text("a")), (2, text("b"))]

CASES = [
    Case(
        "keep-alive comments before the first token are not chunks",
        [(0.2, ": OPENROUTER PROCESSING\n\n"), (2.2, ": OPENROUTER PROCESSING\n\n"), (3.0, text("a")), (3.1, text("b")),
         (3.1, finish()), (3.1, DONE)],
        {"chunks": 3, "time_to_first_chunk_s": 3.0, "time_to_first_content_s": 3.0, "max_gap_s": 0.1,
         "outcome": "completed", "finish_reasons": ("stop",)},
    ),
    Case(
        "a ping after an id kills the stream inside the SDK",
        [(1, "id: 1\n" + text("a")), (16, ": ping\n\n"), (17, text("b"))],
        {"chunks": 1, "outcome": "error", "error_type": "JSONDecodeError", "max_gap_s": 15.0, "max_gap_open": True,
         "freezes": 1},
        raises="JSONDecodeError",
    ),
    Case(
        "a control-only frame first",
        [(1, "retry: 3000\n\n"), (2, text("a"))],
        {"chunks": 0, "outcome": "error", "time_to_first_chunk_s": None, "time_to_first_content_s": None,
         "max_gap_s": None},
        raises="JSONDecodeError",
    ),
    Case(
        "a keep-alive disguised as data",
        [(1, text("a")), (14, "data: : keepalive\n\n")],
        {"chunks": 1, "outcome": "error", "error_type": "JSONDecodeError", "max_gap_s": 13.0, "max_gap_open": True},
        raises="JSONDecodeError",
    ),
    Case(
        "ping events look like chunks and do not end a silence",
        [(0.2, text("a")), *PINGS, (30.2, text("b")), (30.3, finish()), (30.3, DONE)],
        {"max_gap_s": 30.0, "max_gap_at_s": 0.2, "content_chunks": 2, "chunks": 17, "freezes": 1, "frozen_s": 30.0,
         "outcome": "completed"},
    ),
    Case(
        "an error in mid-stream that carries choices and a finish reason",
        [(1, text("a")), (2, chunk({"content": ""}, "error", error={"code": 502, "message": "gone"}))],
        {"chunks": 1, "outcome": "error", "error_type": "APIError", "finish_reasons": ()},
        raises="APIError",
    ),
    Case(
        "an error that is a plain string",
        [(1, text("a")), (2, frame({"error": "boom"}))],
        {"outcome": "error", "error_type": "APIError"},
        raises="APIError",
    ),
    Case(
        "an error in a field that no SSE client knows",
        [(1, text("a")), (2, 'error: {"code":400,"message":"too long"}\n\n'), (2, DONE)],
        {"outcome": "no_finish", "finish_reasons": (), "chunks": 1},
    ),
    Case(
        "an error event with a flat body is yielded, not raised",
        [(1, text("a")), (2, "event: error\n" + frame({"message": "boom", "code": 500}))],
        {"outcome": "error", "error_type": "error_event", "chunks": 2, "content_chunks": 1},
    ),
    Case(
        "a clean end in the middle of an answer",
        PLAIN,
        {"outcome": "no_finish", "finish_reasons": (), "max_gap_s": 1.0, "content_chunks": 2},
    ),
    Case(
        "a server that never sends a finish reason",
        [*PLAIN, (2, chunk({}, None)), (2, DONE)],
        {"outcome": "no_finish", "finish_reasons": ()},
    ),
    Case(
        "silence until the read timeout",
        [*PLAIN, (12, SILENCE)],
        {"outcome": "timeout", "error_type": "timeout", "max_gap_s": 10.0, "max_gap_open": True, "freezes": 1},
        raises="APITimeoutError|ReadTimeout",
    ),
    Case(
        "an empty finish reason on every chunk is none",
        [(1, chunk({"content": "a"}, "")), (2, chunk({"content": "b"}, "")), (3, finish()), (5, usage(1, 2))],
        {"outcome": "completed", "finish_reasons": ("stop",), "max_gap_s": 1.0, "tail_s": 2.0},
    ),
    Case(
        "the last text rides in the finish chunk",
        [(1, text("a")), (4, chunk({"content": "b"}, "length")), (4, DONE)],
        {"max_gap_s": 3.0, "content_chunks": 2, "finish_reasons": ("length",), "outcome": "completed"},
    ),
    Case(
        "two finish chunks, and usage twice",
        [(1, text("a")), (2, finish()), (2, finish("stop", usage={"prompt_tokens": 12, "completion_tokens": 5})),
         (2, usage(12, 5)), (2, DONE)],
        {"finish_reasons": ("stop",), "input_tokens": 12, "output_tokens": 5, "usage_complete": True},
    ),
    Case(
        "cumulative usage in every chunk",
        [(n, text("x", usage={"prompt_tokens": 10, "completion_tokens": n})) for n in (1, 4, 5, 99)],
        {"input_tokens": 10, "output_tokens": 99, "usage_complete": False},
    ),
    Case(
        "a count without bound in every chunk is unknown",
        [(n, text("x", usage={"prompt_tokens": 2**53, "completion_tokens": 10**400})) for n in (1, 2, 9)],
        {"input_tokens": 2**53, "output_tokens": None, "chunks": 3, "content_chunks": 3, "max_gap_s": 7.0,
         "freezes": 1},
    ),
    Case(
        "a count of one more than 2**53 is unknown",
        [(1, text("a", usage={"prompt_tokens": 2**53 + 1, "completion_tokens": 5}))],
        {"input_tokens": None, "output_tokens": 5},
    ),
    Case(
        "a chunk without usage after usage, then the connection dies",
        [(1, text("a", usage={"prompt_tokens": 10, "completion_tokens": 5})), (2, text("b")), (3, CUT)],
        {"input_tokens": 10, "output_tokens": 5, "usage_complete": False, "outcome": "error",
         "error_type": "APIConnectionError"},
        raises="APIConnectionError|ReadError",
    ),
    Case(
        "a usage chunk without choices",
        [*PLAIN, (2, finish()), (2, frame({"id": "x", "usage": {"prompt_tokens": 3, "completion_tokens": 2}}))],
        {"input_tokens": 3, "output_tokens": 2, "usage_complete": True},
    ),
    Case(
        "junk after usage",
        [(1, text("a")), (1, finish()), (1, usage(20, 859)), (1, frame({"choices": [], "cost": "0"})), (1, DONE)],
        {"input_tokens": 20, "output_tokens": 859, "content_chunks": 1, "max_gap_s": None},
    ),
    Case(
        "Azure's first frame has no choices and no names",
        [(0.2, frame({"id": "", "object": "", "model": "", "choices": [], "prompt_filter_results": []})), (0.3, role()),
         (2.0, text("Hi")), (2.0, finish()), (2.0, DONE)],
        {"time_to_first_chunk_s": 0.2, "time_to_first_content_s": 2.0, "chunks": 4, "content_chunks": 1,
         "response_model": "m"},
    ),
    Case(
        "Azure's filter annotations have no delta, and come after the finish too",
        [(1, text("a")), (2, frame({"id": "", "choices": [{"index": 0, "finish_reason": None}]})), (3, text("b")),
         (3, finish()), (4.5, frame({"id": "", "choices": [{"index": 0, "finish_reason": None}]})), (4.5, DONE)],
        {"max_gap_s": 2.0, "tail_s": 1.5, "content_chunks": 2, "outcome": "completed"},
    ),
    Case(
        "the role at once, the first token after a long prefill",
        [(0.05, role()), (31.0, text("a")), (31.1, text("b")), (31.1, finish())],
        {"time_to_first_chunk_s": 0.05, "time_to_first_content_s": 31.0, "max_gap_s": 0.1, "freezes": 0},
    ),
    Case(
        "empty deltas while the prompt is still being read",
        [(0.1, role()), (1, text("")), (2, text("")), (3, text("")), (4, text("a")), (4, finish())],
        {"time_to_first_content_s": 4.0, "content_chunks": 1},
    ),
    Case(
        "reasoning under either name, or both, is content once",
        [(1, chunk({"reasoning": "We"})), (2, chunk({"reasoning_content": "We"})),
         (4, chunk({"reasoning": "We", "reasoning_content": "We"})), (5, text("a")), (5, finish())],
        {"content_chunks": 4, "max_gap_s": 2.0, "max_gap_phase": "reasoning", "time_to_first_content_s": 1.0},
    ),
    Case(
        "tool-call arguments withheld, then one big frame",
        [(1, tool("", name="write_file")), (33, tool("x" * 17_000)), (33, finish("tool_calls"))],
        {"max_gap_s": 32.0, "max_gap_phase": "tool_call", "freezes": 1, "finish_reasons": ("tool_calls",)},
    ),
    Case(
        "refusals, function calls and audio are content",
        [(1, chunk({"refusal": "no"})), (2, chunk({"function_call": {"name": "f", "arguments": ""}})),
         (4, chunk({"audio": {"data": "AAA="}})), (4, finish())],
        {"content_chunks": 3, "max_gap_s": 2.0, "time_to_first_content_s": 1.0},
    ),
    Case(
        "one chunk is not one token",
        [*TICKS, (4, finish()), (4, usage(9, 240))],
        {"content_chunks": 20, "output_tokens": 240, "buffered": False},
    ),
    Case(
        "a proxy that buffers lets everything go at once",
        [(8.0, text("x"))] * 200 + [(8.0, finish()), (8.0, DONE)],
        {"time_to_first_content_s": 8.0, "max_gap_s": 0.0, "buffered": True},
    ),
    Case(
        "line separators inside the JSON",
        [(1, text("x\u2028y\u0085z")), (2, text("b")), (2, finish())],
        {"content_chunks": 2, "outcome": "completed"},
    ),
    Case(
        "a byte-order mark costs the SDK the first frame",
        [(1, "\ufeff" + text("a")), (3, text("b")), (3, finish())],
        {"time_to_first_content_s": 3.0, "content_chunks": 1},
    ),
    Case(
        "the last frame without its blank line is lost",
        [(1, text("a")), (2, finish().rstrip("\n"))],
        {"outcome": "no_finish", "finish_reasons": ()},
    ),
    Case(
        "a server that lingers after the finish",
        [*PLAIN, (2, finish()), (62, "")],
        {"tail_s": 60.0, "max_gap_s": 1.0, "max_gap_open": False, "freezes": 0, "outcome": "completed"},
    ),
    Case(
        "frames after the end are not read",
        [*PLAIN, (2, finish()), (2, DONE), (2, text("c"))],
        {"chunks": 3, "content_chunks": 2},
    ),
    Case(
        "chunks that are None, a list, a number or a string",
        [(1, "data: null\n\n"), (1, "data: []\n\n"), (1, "data: 7\n\n"), (1, 'data: "x"\n\n'), (2, text("a")),
         (3, text("b")), (3, finish())],
        {"chunks": 7, "content_chunks": 2, "max_gap_s": 1.0, "outcome": "completed"},
    ),
    Case(
        "choices and usage of the wrong type",
        [(1, frame({"choices": None})), (1, frame({"choices": "x", "usage": "lots"})),
         (1, frame({"choices": [None, 3]})),
         (1, frame({"choices": [{"delta": "x", "finish_reason": 3}], "usage": {"prompt_tokens": "3"}})),
         (1, frame({"choices": [{"delta": {"tool_calls": "x"}}], "usage": {"completion_tokens": -3}})),
         (2, text("a")), (3, text("b", usage={"completion_tokens": True, "prompt_tokens": 1.5}))],
        {"content_chunks": 2, "input_tokens": None, "output_tokens": None, "max_gap_s": 1.0, "outcome": "no_finish"},
    ),
    Case(
        "tool calls without an index, a name or arguments",
        [(1, chunk({"tool_calls": [{"function": {"arguments": None, "name": None}}]})),
         (2, chunk({"tool_calls": [{"index": None, "id": "t", "function": None}]})), (4, tool("{}")), (4, finish())],
        {"content_chunks": 2, "max_gap_s": 2.0},
    ),
    Case(
        "a chunk of 1.5 MB",
        [(1, text("x" * 1_500_000)), (2, text("b")), (2, finish())],
        {"content_chunks": 2, "max_gap_s": 1.0},
    ),
    Case(
        "metadata flows while the text stands still",
        [(1, text("a")), *[(1 + 13 * n, chunk({})) for n in range(1, 10)], (131, text("b")), (131, finish())],
        {"max_gap_s": 130.0, "freezes": 1},
    ),
    Case(
        "slow is told from frozen by number and by length",
        [(5.5 * n, text("x")) for n in range(21)],
        {"freezes": 20, "frozen_s": 110.0, "max_gap_s": 5.5},
    ),
    Case(
        "a silence before the finish is a freeze like any other",
        [*PLAIN, (12, finish()), (12, DONE)],
        {"max_gap_s": 10.0, "max_gap_open": False, "freezes": 1, "tail_s": 0.0},
    ),
    Case(
        "the limit is hit whatever the finish reason says",
        [(1, tool("{", name="f")), (2, tool("}")), (2, finish("tool_calls")), (2, usage(10, 300))],
        {"finish_reasons": ("tool_calls",), "token_limit": 300, "limit_hit": True},
        request={"max_tokens": 300},
    ),
    Case(
        "length without a limit is the server's own",
        [*PLAIN, (2, finish("length")), (2, usage(32638, 130))],
        {"finish_reasons": ("length",), "token_limit": None, "limit_hit": False},
    ),
    Case(
        "length short of the limit is the context's",
        [*PLAIN, (2, finish("length")), (2, usage(2000, 48))],
        {"finish_reasons": ("length",), "token_limit": 512, "limit_hit": False},
        request={"max_tokens": 512},
    ),
    Case(
        "max_completion_tokens wins over max_tokens",
        [*PLAIN, (2, finish()), (2, usage(1, 50))],
        {"token_limit": 50, "limit_hit": True},
        request={"max_tokens": 100, "extra_body": {"max_completion_tokens": 50}},  # old SDKs do not know it
    ),
    Case(
        "a limit of -1 is none",
        [*PLAIN, (2, finish()), (2, usage(1, 50))],
        {"token_limit": None, "limit_hit": False},
        request={"max_tokens": -1},
    ),
    Case(
        "a limit in extra_body counts",
        [*PLAIN, (2, finish()), (2, usage(1, 50))],
        {"token_limit": 50, "limit_hit": True},
        request={"extra_body": {"max_tokens": 50}},
    ),
    Case(
        "two choices finish one after the other, and the second one's silence is no tail",
        [(1, text("a")), (1, text("b", index=1)), (2, finish("stop")), (9, text("c", index=1)),
         (9, finish("length", index=1)), (10, usage(5, 9))],
        {"finish_reasons": ("stop", "length"), "max_gap_s": 8.0, "freezes": 1, "tail_s": 1.0, "outcome": "completed"},
        request={"n": 2},
    ),
    Case(
        "a choice that speaks up only after the first one's finish",
        [(1, text("a")), (1, finish("stop")), (8, text("b", index=1)), (8, finish("stop", index=1))],
        {"finish_reasons": ("stop", "stop"), "max_gap_s": 7.0, "freezes": 1, "tail_s": 0.0},
        request={"n": 2},
        freeze_seen_at_s=7.0,  # until then it might have been the tail
    ),
    Case(
        "a cut after one choice of two is no success",
        [(1, text("a")), (1, text("b", index=1)), (2, finish("stop"))],
        {"outcome": "no_finish", "finish_reasons": ("stop", None)},
        request={"n": 2},
    ),
    Case(
        "usage of several choices is a sum, and reaches the limit together or by word",
        [(1, text("a")), (1, text("b", index=1)), (2, finish("length")), (2, finish("length", index=1)),
         (2, usage(5, 24))],
        {"token_limit": 12, "limit_hit": True},
        request={"n": 2, "max_tokens": 12},
    ),
    Case(
        "usage of several choices beyond one choice's limit is not a hit",
        [(1, text("a")), (1, text("b", index=1)), (2, finish("stop")), (2, finish("stop", index=1)), (2, usage(5, 14))],
        {"token_limit": 12, "limit_hit": False},
        request={"n": 2, "max_tokens": 12},
    ),
    Case(
        "abort is a failure, whoever says it",
        [*PLAIN, (2, finish("abort"))],
        {"outcome": "error", "error_type": "abort", "finish_reasons": ("abort",)},
    ),
    Case(
        "details of usage are reported or absent, never 0 by guess",
        [*PLAIN, (2, finish()), (2, usage(9, 8, prompt_tokens_details={"cached_tokens": 4},
                                          completion_tokens_details={"reasoning_tokens": 0}))],
        {"cached_tokens": 4, "reasoning_tokens": 0},
    ),
    Case(
        "usage of zeros on every chunk is a placeholder",
        [(1, text("a", usage={"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})), (2, finish())],
        {"input_tokens": None, "output_tokens": None, "usage_complete": False},
    ),
    Case(
        "SGLang's reasoning tokens stand in usage itself",
        [*PLAIN, (2, finish()), (2, usage(9, 8, reasoning_tokens=5, prompt_tokens_details=None))],
        {"reasoning_tokens": 5, "cached_tokens": None},
    ),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_record_shows_what_the_server_did(case: Case, kind: str) -> None:
    """The record shows what happened, the caller gets what the SDK gives, and freezes were seen as they happened."""
    clock = ManualClock()
    client = a_client(kind, case.script, clock)

    raised = asyncio.run(read_to_the_end(client, case.request))

    record = client.seen.record
    shown = {name: getattr(record, name) for name in case.record}
    assert shown == {
        name: pytest.approx(value) if isinstance(value, float) else value
        for name, value in case.record.items()
    }
    assert (raised is None) == (case.raises is None)
    assert raised is None or raised in str(case.raises).split("|")
    assert len(client.seen.freezes) == record.freezes
    assert all(freeze.gap_s == pytest.approx(case.freeze_seen_at_s) for freeze in client.seen.freezes)


async def read_to_the_end(client: Any, request: dict[str, Any]) -> str | None:
    try:
        async for _ in await client.create(**request):
            pass
    except Exception as exc:
        return type(exc).__name__
    return None
