"""How each engine speaks OpenAI's protocol, as a table of what differs. Each row names the version it follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from midstream.lab.emulation import faults
from midstream.lab.emulation.faults import Faults


@dataclass(frozen=True, slots=True)
class Dialect:
    """One engine's wire format."""

    version: str
    owner: str
    """`owned_by` in the list of models."""
    faults: Faults
    context: Callable[[Any], int | None]
    """The flag that limits prompt and answer together; None when it was left out."""
    headers_at: Literal["queued", "started", "first token"] = "queued"
    """When status and headers go out."""
    headers: Mapping[str, str] = field(default_factory=dict)
    model: Literal["checked", "echoed", "own"] = "own"
    """What becomes of the model that a request names."""
    role: Literal["alone", "first", "every"] = "alone"
    """Whether `role` has a chunk of its own, comes with the first token, or in every chunk."""
    role_content: str | None = ""
    finish_alone: bool = False
    """Whether the finish reason has a chunk of its own, or is in that of the last token."""
    finish_last: bool = False
    """Whether with n > 1 all finish reasons come after all choices have ended."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    text_reasons: Mapping[str, str] = field(default_factory=dict)
    """Finish reasons that go by other names, in chats and in completions."""
    no_reason: str | None = None
    """What stands for no finish reason in the chunks of completions."""
    continuous: Literal["never", "with include_usage", "alone"] = "never"
    """Whether every chunk may carry usage, and what must be asked for it besides continuous_usage_stats."""
    usage_by_default: bool = False
    """Whether stream_options without include_usage mean that it is wanted."""
    text_usage: Literal["asked", "last chunk", "last chunk if asked"] = "asked"
    """Where the usage of streamed completions goes: a chunk of its own if asked for, or the last chunk."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """What usage holds beside the three counts."""
    chunk: Mapping[str, Any] = field(default_factory=dict)
    choice: Mapping[str, Any] = field(default_factory=dict)
    text_choice: Mapping[str, Any] = field(default_factory=dict)
    last_choice: Mapping[str, Any] = field(default_factory=dict)
    """What chunks and choices hold beside what OpenAI's have; the last one only where there is a finish reason."""
    ids: bool = True
    """Whether chunks have an id."""
    chat_id: str = "chatcmpl-"
    text_id: str = "cmpl-"
    """What ids begin with."""
    delta: Mapping[str, Any] = field(default_factory=dict)
    """What every delta of a chat holds, whatever else."""
    merges: bool = False
    """Whether tokens that a slow reader has not taken come in one chunk."""
    tool_call: Literal["name", "whole"] = "name"
    """What is held back of a tool call: all before its name is known, or the whole call."""
    tool_reason: str = "tool_calls"
    choices: bool = True
    """Whether n > 1 is honoured."""
    text_limit: int | None = None
    """max_tokens of completions that send none."""
    strict: bool = False
    """Whether fields that it does not know are refused."""
    streamed_refusals: frozenset[int] = frozenset()
    """Refusals of these statuses come in the stream, under HTTP 200."""
    on_failure: Literal["event", "event and done", "break"] = "event and done"
    """How a stream ends that fails midway."""
    keep_alive: bytes = b""
    keep_alive_s: float | None = None
    """A comment that is sent when nothing else was for so long; None is never."""
    responses: bool = True
    """Whether there is /v1/responses."""


_UVICORN = {"server": "uvicorn", "content-type": "text/event-stream; charset=utf-8"}

_VLLM = Dialect(
    version="0.33.0",
    owner="vllm",
    faults=faults.VLLM,
    context=lambda flags: flags.max_model_len,
    headers=_UVICORN,
    model="checked",
    continuous="with include_usage",
    choice={"logprobs": None, "token_ids": None},
    text_choice={"logprobs": None, "stop_reason": None, "prompt_token_ids": None, "token_ids": None},
    last_choice={"stop_reason": None},
    merges=True,
    text_limit=16,
    keep_alive=b": keep-alive\n\n",
)

_SGLANG = Dialect(
    version="0.5.23",
    owner="sglang",
    faults=faults.SGLANG,
    context=lambda flags: flags.context_length,
    headers_at="first token",
    headers=_UVICORN,
    model="echoed",
    finish_alone=True,
    finish_last=True,
    continuous="alone",
    usage={"prompt_tokens_details": None, "reasoning_tokens": 0},
    choice={"logprobs": None, "matched_stop": None},
    text_choice={"logprobs": None, "matched_stop": None},
    chat_id="",
    text_id="",
    delta={"reasoning_content": None, "tool_calls": None},
    merges=True,
    text_limit=16,
    streamed_refusals=frozenset({503}),
)

_TGI = Dialect(
    version="3.3.7",
    owner="tgi",
    faults=faults.TGI,
    context=lambda flags: flags.max_total_tokens,
    headers={"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"},
    role="every",
    text_reasons={"stop": "eos_token"},
    no_reason="",
    text_usage="last chunk",
    chunk={"system_fingerprint": "3.3.7-native"},
    choice={"logprobs": None},
    text_choice={"logprobs": None},
    ids=False,
    tool_reason="stop",
    choices=False,
    streamed_refusals=frozenset({400, 422, 429}),
    keep_alive=b":\n\n",
    keep_alive_s=15.0,
    responses=False,
)

_TRTLLM = Dialect(
    version="1.2",
    owner="tensorrt_llm",
    faults=faults.TRTLLM,
    context=lambda flags: flags.max_seq_len,
    headers=_UVICORN,
    continuous="with include_usage",
    usage_by_default=True,
    usage={"prompt_tokens_details": {"cached_tokens": 0}},
    choice={"logprobs": None},
    text_choice={"logprobs": None},
    last_choice={"stop_reason": None, "avg_decoded_tokens_per_iter": 1.0},
    delta={"reasoning_content": ""},
    tool_call="whole",
    strict=True,
    on_failure="break",
)

_LLAMACPP = Dialect(
    version="b0-unknown",
    owner="llamacpp",
    faults=faults.LLAMACPP,
    context=lambda flags: None,
    headers_at="started",
    headers={"server": "llama.cpp", "content-type": "text/event-stream", "x-accel-buffering": "no"},
    role_content=None,
    finish_alone=True,
    text_usage="last chunk if asked",
    usage={"prompt_tokens_details": {"cached_tokens": 0}},
    chunk={"system_fingerprint": "b0-unknown"},
    text_choice={"logprobs": None},
    text_id="chatcmpl-",
    on_failure="event",
    keep_alive=b":\n\n",
    keep_alive_s=30.0,
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "vllm": _VLLM,
        "sglang": _SGLANG,
        "tgi": _TGI,
        "tgi-2.4": _TGI,
        "trtllm": _TRTLLM,
        "trtllm-max-utilization": _TRTLLM,
        "llamacpp": _LLAMACPP,
    }
)
"""The dialect of every engine, by the names of `midstream.lab.admission.ENGINES`."""
