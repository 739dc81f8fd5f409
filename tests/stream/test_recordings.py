"""Real servers' recorded streams, through a real client: the records must show what the recordings hold."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI, OpenAI

from midstream.lab.library import read_recordings
from midstream.lab.replay import replayer
from midstream.lab.server import serve
from midstream.testing import ManualClock, collect, scripted, scripted_async
from support.harness import Answer, settled
from support.paths import RECORDINGS

STREAMS = RECORDINGS / "streams"


@dataclass(frozen=True)
class Expected:
    """What a recording holds. Gap and first content were worked out from the file's own times, by eye and by script."""

    name: str
    max_gap_s: float
    time_to_first_content_s: float
    outcome: str
    finish_reasons: tuple[str, ...]
    input_tokens: int | None
    output_tokens: int | None
    limit_hit: bool
    chunks: int
    content_chunks: int
    error_type: str | None = None
    gap_open: bool = False
    freezes: int = 0


EXPECTED = [
    Expected("aimock_chat", 0.0508, 0.193, "completed", ('stop',), 2, 8,
             limit_hit=False, chunks=10, content_chunks=7),
    Expected("litellm_chat", 0.0314, 0.2965, "completed", ('length',), 4, 40,
             limit_hit=True, chunks=42, content_chunks=39),
    Expected("litellm_completions", 0.022, 0.3594, "completed", ('length',), 1, 40,
             limit_hit=True, chunks=42, content_chunks=40),
    Expected("litellm_responses", 0.023, 0.0661, "completed", ('stop',), 4, 15,
             limit_hit=False, chunks=22, content_chunks=14),
    Expected("llamacpp_chat", 0.0124, 0.0832, "completed", ('length',), 3, 40,
             limit_hit=True, chunks=43, content_chunks=40),
    Expected("llamacpp_completions", 0.001, 0.0332, "completed", ('length',), 1, 40,
             limit_hit=True, chunks=41, content_chunks=40),
    Expected("llamacpp_kv_overflow_0", 0.0182, 0.2239, "error", (), None, None,
             limit_hit=False, chunks=232, content_chunks=231, error_type="APIError"),
    Expected("transformers_chat", 0.0078, 2.3763, "completed", ('length',), 4, 40,
             limit_hit=True, chunks=37, content_chunks=35),
    Expected("transformers_responses", 0.0302, 0.3343, "completed", ('stop',), 4, 40,
             limit_hit=True, chunks=46, content_chunks=38),
    Expected("vllm_chat_client_abort", 0.0156, 0.0474, "no_finish", (), None, None,
             limit_hit=False, chunks=20, content_chunks=19),
    Expected("vllm_chat_continuous_usage", 0.02, 0.0498, "completed", ('length',), 13, 40,
             limit_hit=True, chunks=42, content_chunks=40),
    Expected("vllm_chat_eos_stop", 0.0701, 0.048, "completed", ('length',), 13, 1500,
             limit_hit=True, chunks=1458, content_chunks=1455),
    Expected("vllm_chat_finish_length", 0.0156, 0.0598, "completed", ('length',), 13, 5,
             limit_hit=True, chunks=7, content_chunks=5),
    Expected("vllm_chat_include_usage", 0.0357, 0.0495, "completed", ('length',), 13, 40,
             limit_hit=True, chunks=39, content_chunks=37),
    Expected("vllm_chat_n2", 0.023, 0.0471, "completed", ('length', 'length'), None, None,
             limit_hit=True, chunks=25, content_chunks=23),
    Expected("vllm_chat_plain", 0.0553, 0.1156, "completed", ('length',), None, None,
             limit_hit=True, chunks=40, content_chunks=39),
    Expected("vllm_chat_stop_string", 0.0156, 0.0532, "completed", ('stop',), None, None,
             limit_hit=False, chunks=4, content_chunks=3),
    Expected("vllm_chat_tools_required", 0.2371, 0.6126, "completed", ('tool_calls',), 234, 76,
             limit_hit=False, chunks=24, content_chunks=21),
    Expected("vllm_completions", 0.0301, 0.0461, "completed", ('length',), 2, 40,
             limit_hit=True, chunks=41, content_chunks=39),
    Expected("vllm_completions_continuous_usage", 0.0297, 0.045, "completed", ('length',), 2, 40,
             limit_hit=True, chunks=41, content_chunks=39),
    Expected("vllm_enginedeath_0", 0.1948, 0.2205, "completed", ('length',), 49, 700,
             limit_hit=True, chunks=702, content_chunks=677),
    Expected("vllm_enginedeath_6", 6.4024, 0.3687, "error", (), 49, 336,
             limit_hit=False, chunks=337, content_chunks=328, error_type="APIError", gap_open=True, freezes=1),
    Expected("vllm_preempted_0", 0.0917, 0.1436, "completed", ('length',), 49, 700,
             limit_hit=True, chunks=680, content_chunks=678),
    Expected("vllm_preempted_1", 0.7046, 0.1391, "completed", ('length',), 49, 700,
             limit_hit=True, chunks=678, content_chunks=676),
    Expected("vllm_preempted_2", 0.7048, 0.135, "completed", ('length',), 49, 700,
             limit_hit=True, chunks=674, content_chunks=672),
    Expected("vllm_preempted_3", 0.7049, 0.1337, "completed", ('length',), 49, 700,
             limit_hit=True, chunks=675, content_chunks=673),
    Expected("vllm_preempted_5", 5.0343, 0.1409, "completed", ('length',), 49, 700,
             limit_hit=True, chunks=678, content_chunks=676, freezes=1),
    Expected("vllm_responses", 0.0299, 0.0698, "completed", ('length',), 5, 30,
             limit_hit=True, chunks=37, content_chunks=29),
]  # fmt: skip
REFUSALS = {"vllm_400_prompt_too_long": 400, "vllm_404_model": 404}

KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


def request_of(name: str) -> dict[str, Any]:
    with (STREAMS / f"{name}.jsonl").open(encoding="utf-8") as lines:
        body: dict[str, Any] = json.loads(next(lines))["request"]["body"]
    extra = {key: body.pop(key) for key in ("ignore_eos", "seed") if key in body}
    return {**body, "extra_body": extra}


async def read(client: Any, operation: str, request: dict[str, Any]) -> str | None:
    resource = {
        "chat": client.chat.completions,
        "text_completion": client.completions,
        "responses": getattr(client, "responses", None),
    }[operation]
    try:
        async for _ in Answer(await settled(resource.create(**request))):
            pass
    except Exception as exc:
        return type(exc).__name__
    return None


def test_every_recording_has_its_expectation() -> None:
    """No recording is left out of the table."""
    assert {path.stem for path in STREAMS.glob("*.jsonl")} == {e.name for e in EXPECTED} | REFUSALS.keys()


@KINDS
@pytest.mark.parametrize("expected", EXPECTED, ids=lambda expected: expected.name)
def test_record_shows_what_the_recording_holds(expected: Expected, kind: str) -> None:
    """Played to a manual clock, the figures are exact to a tenth of a millisecond."""
    (recording,) = read_recordings([STREAMS / f"{expected.name}.jsonl"])
    clock = ManualClock()
    script = [(arrival.at_s, arrival.data.decode()) for arrival in recording.arrivals]
    script.append((recording.ended_at_s, ""))
    if kind == "sync":
        client: Any = OpenAI(api_key="none", http_client=scripted(script, clock))
    else:
        client = AsyncOpenAI(api_key="none", http_client=scripted_async(script, clock))
    if recording.operation == "responses" and not hasattr(client, "responses"):
        pytest.skip("this version of the SDK has no Responses API")
    seen = collect(client, clock=clock)

    raised = asyncio.run(read(client, recording.operation, request_of(expected.name)))

    record = seen.record
    assert record.max_gap_s == pytest.approx(expected.max_gap_s, abs=1e-4)
    assert record.time_to_first_content_s == pytest.approx(expected.time_to_first_content_s, abs=1e-4)
    assert (record.outcome, record.error_type, raised) == (
        expected.outcome, expected.error_type, expected.error_type,
    )  # fmt: skip
    assert record.finish_reasons == expected.finish_reasons
    assert (record.input_tokens, record.output_tokens) == (expected.input_tokens, expected.output_tokens)
    assert (record.limit_hit, record.max_gap_open, record.freezes) == (
        expected.limit_hit, expected.gap_open, expected.freezes,
    )  # fmt: skip
    assert (record.chunks, record.content_chunks) == (expected.chunks, expected.content_chunks)
    assert record.response_model in {"tiny", "tiny.gguf", "gpt-4o"}
    assert not record.buffered


@pytest.mark.alone
@KINDS
def test_recordings_over_real_sockets(kind: str) -> None:
    """Served over loopback at five times their speed and read by a real client, the same gaps come out."""
    names = [
        "vllm_preempted_0",
        "vllm_preempted_1",
        "vllm_preempted_5",
        "vllm_enginedeath_6",
        "llamacpp_kv_overflow_0",
    ]
    recordings = read_recordings([STREAMS / f"{name}.jsonl" for name in names])
    with serve(replayer(recordings, speed=5)) as base_url:
        client = (OpenAI if kind == "sync" else AsyncOpenAI)(api_key="none", base_url=base_url)
        seen = collect(client, freeze_after_s=0.6)

        async def read_all() -> list[str | None]:
            raised = [await read(client, "chat", {**request_of(name), "model": name}) for name in names]
            await settled(client.close())
            return raised

        assert asyncio.run(read_all()) == [None, None, None, "APIError", "APIError"]

    seen.flush()
    gaps = [record.max_gap_s for record in seen.records]
    assert gaps[1] == pytest.approx(0.141, abs=0.35)
    assert gaps[2] == pytest.approx(1.006, abs=0.35)
    assert gaps[3] == pytest.approx(1.280, abs=0.35)
    assert [record.freezes for record in seen.records] == [0, 0, 1, 1, 0]
    assert [str(record.outcome) for record in seen.records] == ["completed"] * 3 + ["error"] * 2


@KINDS
@pytest.mark.parametrize("name", REFUSALS)
def test_recorded_refusals_are_no_streams(kind: str, name: str) -> None:
    """A server that refuses before any stream leaves its error with the caller, and no record."""
    with serve(replayer(read_recordings([STREAMS / f"{name}.jsonl"]))) as base_url:
        client = (OpenAI if kind == "sync" else AsyncOpenAI)(api_key="none", base_url=base_url, max_retries=0)
        seen = collect(client)

        async def ask() -> Any:
            with pytest.raises(APIStatusError) as caught:
                await settled(client.chat.completions.create(**{**request_of(name), "model": name}))
            await settled(client.close())
            return caught.value.status_code

        assert asyncio.run(ask()) == REFUSALS[name]

    assert seen.records == []
