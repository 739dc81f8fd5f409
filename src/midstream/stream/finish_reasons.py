"""Finish reasons: the words that servers use, mapped to the closed set that metrics have.

The vocabulary is that of the field: OpenAI, Anthropic, Mistral, Cohere, Bedrock, Gemini and Vertex, DeepSeek, Zhipu,
Ollama, vLLM, SGLang, TGI. Case, hyphens and enum prefixes (`FINISH_REASON_STOP`, `FinishReason.STOP`, `toolCalls`)
make no difference. A word that is in no list is a failure if one of its parts means one (`network_error`), and else
`other`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, TypeAlias

FinishLabel: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "other", "none"]

_WORDS: dict[FinishLabel, tuple[str, ...]] = {
    "stop": (
        *(
            "stop",
            "stopped",
            "eos",
            "eos_token",
            "eos_token_id",
            "eot",
            "eot_id",
            "end",
            "end_turn",
            "end_of_turn",
        ),
        *("stop_sequence", "stop_token", "stop_string", "stop_str", "stop_id", "complete", "completed"),
        *("finish", "finished", "done"),
    ),
    "length": (
        *("length", "max_length", "max_tokens", "max_token", "max_output_tokens", "max_new_tokens"),
        *("max_completion_tokens", "token_limit", "tokens_limit", "limit", "truncated", "model_length"),
        *("model_context_window_exceeded", "context_window_exceeded", "context_length_exceeded"),
        *("max_context_length", "context_length", "context_limit", "max_model_len", "error_limit"),
        *("max_tokens_exceeded", "max_tokens_reached"),
    ),
    "tool_calls": ("tool_calls", "tool_call", "tool_use", "tool_uses", "function_call", "function_calls"),
    "content_filter": (
        *("content_filter", "content_filtered", "content_policy", "content_policy_violation", "guardrail"),
        *("guardrail_intervened", "guardrails", "moderation", "flagged", "blocked", "blocklist", "safety"),
        *("sensitive", "refusal", "recitation", "prohibited_content", "spii", "language", "model_armor"),
        *("image_safety", "image_recitation", "image_prohibited_content", "error_toxic"),
    ),
}
_LABELS = {word: label for label, words in _WORDS.items() for word in words}

_FAILURES = {
    *(
        "error",
        "errors",
        "errored",
        "err",
        "fail",
        "failed",
        "failure",
        "fault",
        "exception",
        "crash",
        "crashed",
    ),
    *("abort", "aborted", "cancel", "cancelled", "canceled", "interrupted", "killed", "terminated"),
    *("timeout", "timedout", "deadline", "expired", "insufficient", "unavailable", "overloaded", "overload"),
    *("rejected", "disconnect", "disconnected", "dropped", "oom", "malformed", "invalid", "unexpected"),
    *("rate", "quota", "missing", "exhausted", "preempted", "evicted"),
}
"""A reason with one of these words in it says that the server gave up."""
_FAILED_PHRASES = {
    "timed_out",
    "time_out",
    "time_limit",
    "too_many_tool_calls",
    "no_image",
    "image_other",
    "out_of_memory",
}

_WORST_FIRST: tuple[FinishLabel, ...] = ("length", "content_filter", "other", "tool_calls", "stop", "none")


def finish_label(raw: str | None) -> FinishLabel:
    """The label for one raw finish reason; an empty one is `none`, an unknown one is `other`.

    finish_label("FINISH_REASON_MAX_TOKENS")   # 'length'
    """
    if not raw:
        return "none"
    return _LABELS.get(_normal(raw), "other")


def stream_finish_label(reasons: Iterable[str | None]) -> FinishLabel:
    """The label for a stream of several choices: the one that needs attention most."""
    labels = {finish_label(reason) for reason in reasons}
    return next((label for label in _WORST_FIRST if label in labels), "none")


def is_failure_reason(raw: str) -> bool:
    """Whether this finish reason means that the server gave up: the answer is not what the model would have written."""
    reason = _normal(raw)
    if reason in _LABELS:
        return False
    return reason in _FAILED_PHRASES or not _FAILURES.isdisjoint(reason.split("_"))


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS = re.compile(r"[^a-z0-9]+")


@lru_cache(maxsize=512)
def _normal(raw: str) -> str:
    word = raw[:256].rpartition(".")[2]
    word = _SEPARATORS.sub("_", _CAMEL.sub("_", word).lower()).strip("_")
    return word.removeprefix("finish_reason_").removeprefix("stop_reason_")
