"""Gateways that send a finish reason on every chunk, and answers that go on after one: the last reason counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from midstream.testing import (
    CUT,
    DONE,
    SILENCE,
    ManualClock,
    Script,
    chunk,
    collect,
    finish,
    frame,
    scripted,
    scripted_async,
    text,
    usage,
)
from support.harness import a_client
from support.needs import needs_responses

KINDS = ["sync", "async"]


def ending(delta: dict[str, Any], reason: str = "stop", index: int = 0) -> str:
    return chunk({}, choices=[{"index": index, "delta": delta, "finish_reason": reason}])


def called(arguments: str, **function: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "id": "t", "function": {"arguments": arguments, **function}}]}


@dataclass(frozen=True)
class Case:
    what: str
    script: Script
    record: dict[str, Any]
    raises: bool = False


CASES = [
    Case(
        "a finish reason on every chunk",
        [(0.2, ending({"content": "Once"})), (30.2, ending({"content": " upon"})),
         (30.3, ending({"content": " a"}, "length")), (30.3, DONE)],
        {"max_gap_s": 30.0, "max_gap_at_s": 0.2, "freezes": 1, "tail_s": 0.0, "finish_reasons": ("length",),
         "outcome": "completed", "frozen_s": 30.0},
    ),
    Case(
        "a bare finish reason before the answer goes on",
        [(1, text("a")), (2, text("b")), (3, finish()), (33, text("c")), (34, finish("length")), (36, DONE)],
        {"max_gap_s": 31.0, "max_gap_at_s": 2.0, "freezes": 1, "tail_s": 2.0, "finish_reasons": ("length",)},
    ),
    Case(
        "a bare finish reason that itself came after a freeze",
        [(1, text("a")), (2, text("b")), (12, finish()), (42, text("c")), (42, finish()), (42, DONE)],
        {"max_gap_s": 30.0, "freezes": 2, "frozen_s": 40.0, "finish_reasons": ("stop",)},
    ),
    Case(
        "reasoning ends with a reason of its own, and the text follows",
        [(1, chunk({"reasoning_content": "hm"})), (2, ending({"reasoning_content": "so"})), (12, text("a")),
         (13, finish("stop")), (13, DONE)],
        {"max_gap_s": 10.0, "max_gap_phase": "reasoning", "freezes": 1, "content_chunks": 3},
    ),
    Case(
        "a tool call with a reason on each of its pieces",
        [(1, ending(called("", name="f"), "tool_calls")), (11, ending(called("{"), "tool_calls")),
         (12, ending(called("}"), "tool_calls")), (12, DONE)],
        {"max_gap_s": 10.0, "max_gap_phase": "tool_call", "finish_reasons": ("tool_calls",), "tail_s": 0.0},
    ),
    Case(
        "two choices that both finish on every chunk",
        [(1, ending({"content": "a"}, index=0)), (2, ending({"content": "b"}, index=1)),
         (12, ending({"content": "c"}, "length", index=1)), (13, ending({"content": "d"}, index=0)), (13, DONE)],
        {"max_gap_s": 10.0, "finish_reasons": ("stop", "length"), "freezes": 1, "outcome": "completed"},
    ),
    Case(
        "a failure that was taken back",
        [(1, ending({"content": "a"}, "abort")), (2, ending({"content": "b"}, "stop")), (2, DONE)],
        {"outcome": "completed", "finish_reasons": ("stop",), "error_type": None},
    ),
    Case(
        "a failure at the end of an answer with a reason on every chunk",
        [(1, ending({"content": "a"})), (2, ending({"content": "b"}, "network_error")), (2, DONE)],
        {"outcome": "error", "error_type": "network_error", "finish_reasons": ("network_error",)},
    ),
    Case(
        "two bare reasons: the last one counts",
        [(1, text("a")), (2, finish("tool_calls")), (2, finish("stop")), (2, DONE)],
        {"finish_reasons": ("stop",), "outcome": "completed"},
    ),
    Case(
        "usage at the end, after a wait that is the tail",
        [(1, ending({"content": "a"})), (2, ending({"content": "b"})), (2.5, ending({"content": "c"})),
         (6, usage(3, 3)), (7, DONE)],
        {"max_gap_s": 1.0, "tail_s": 4.5, "freezes": 0, "usage_complete": True},
    ),
    Case(
        "silence until the read timeout, after reasons that were none",
        [(1, ending({"content": "a"})), (2, ending({"content": "b"})), (22, SILENCE)],
        {"max_gap_s": 20.0, "max_gap_open": True, "freezes": 1, "outcome": "timeout"},
        raises=True,
    ),
    Case(
        "a connection that breaks after reasons that were none",
        [(1, ending({"content": "a"})), (2, ending({"content": "b"})), (22, CUT)],
        {"max_gap_s": 20.0, "max_gap_open": True, "freezes": 1, "outcome": "error"},
        raises=True,
    ),
    Case(
        "an ordinary answer: the wait after its finish reason is the tail",
        [(1, text("a")), (2, ending({"content": "b"})), (12, usage(1, 2)), (22, DONE)],
        {"max_gap_s": 1.0, "tail_s": 20.0, "freezes": 0, "outcome": "completed"},
    ),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_output_after_a_finish_reason_reopens_the_answer(case: Case, kind: str) -> None:
    """Chat, with every phase, several choices, and every end."""
    client = a_client(kind, case.script, ManualClock())

    async def read() -> None:
        async for _ in await client.create():
            pass

    if case.raises:
        with pytest.raises(Exception, match=r".*"):
            asyncio.run(read())
    else:
        asyncio.run(read())

    record = client.seen.record
    expected = {
        name: pytest.approx(value) if isinstance(value, float) else value
        for name, value in case.record.items()
    }
    assert {name: getattr(record, name) for name in case.record} == expected


def test_freeze_of_such_an_answer_is_reported_while_it_lasts() -> None:
    """Once a finish reason was not the end, the next ones do not hide a freeze until it is over."""
    clock = ManualClock()
    script = [
        (1, ending({"content": "a"})),
        (2, ending({"content": "b"})),
        (32, ending({"content": "c"})),
        (32, DONE),
    ]
    frozen_at: list[float] = []
    client = a_client("sync", script, clock, on_freeze=lambda _: frozen_at.append(clock()))

    async def read() -> None:
        async for _ in await client.create():
            pass

    asyncio.run(read())

    assert frozen_at == [7.0]


def completion(words: str, reason: str | None = "stop") -> str:
    return frame({"id": "c", "model": "m", "choices": [{"index": 0, "text": words, "finish_reason": reason}]})


def delta(words: str) -> str:
    return frame({"type": "response.output_text.delta", "delta": words})


COMPLETED = frame(
    {"type": "response.completed", "response": {"model": "m", "status": "completed", "output": []}}
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("api", "script"),
    [
        (
            "completions",
            [(1, completion("a")), (11, completion("b")), (12, completion("c", "length")), (12, DONE)],
        ),
        pytest.param(
            "responses",
            [(1, delta("a")), (1, COMPLETED), (11, delta("b")), (12, delta("c")), (12, COMPLETED)],
            marks=needs_responses,
        ),
    ],
)
def test_other_apis_alike(api: str, script: Script, kind: str) -> None:
    """Legacy completions, and events of the Responses API after a terminal one."""
    openai = pytest.importorskip("openai")
    clock = ManualClock()

    async def read() -> Any:
        if kind == "sync":
            sdk: Any = openai.OpenAI(api_key="none", max_retries=0, http_client=scripted(script, clock))
        else:
            sdk = openai.AsyncOpenAI(api_key="none", max_retries=0, http_client=scripted_async(script, clock))
        seen = collect(sdk, clock=clock)
        if api == "completions":
            made = sdk.completions.create(model="m", prompt="p", stream=True)
        else:
            made = sdk.responses.create(model="m", input="p", stream=True)
        if kind == "sync":
            for _ in made:
                pass
        else:
            async for _ in await made:
                pass
        return seen.record

    record = asyncio.run(read())
    assert (record.max_gap_s, record.freezes, record.tail_s, record.outcome) == (10.0, 1, 0.0, "completed")
