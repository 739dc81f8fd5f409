"""Finish reasons: every server's words, in the closed set that metrics may use."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.stream.finish_reasons import FinishLabel, finish_label, is_failure_reason, stream_finish_label

FAILURES = [
    "abort", "aborted", "ERROR", "error", "insufficient_system_resource", "network_error", "timeout", "TIMED_OUT",
    "cancelled", "canceled", "USER_CANCEL", "internal_error", "server_error", "overloaded", "service-unavailable",
    "rate_limit", "failed", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS",
    "malformed_model_output", "NO_IMAGE", "MISSING_THOUGHT_SIGNATURE", "networkError", "engine_error", "time_limit",
]  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "label"),
    [
        (None, "none"),
        ("", "none"),
        ("stop", "stop"),
        ("eos", "stop"),
        ("eos_token", "stop"),
        ("stop_sequence", "stop"),
        ("end_turn", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("max_output_tokens", "length"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("tool_use", "tool_calls"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
        ("abort", "other"),
        ("error", "other"),
        ("repetition", "other"),
        ("pause_turn", "other"),
        ("load", "other"),
        ("unknown", "other"),
        ("FINISH_REASON_UNSPECIFIED", "other"),
        ("FINISH_REASON_STOP", "stop"),
        ("FinishReason.STOP", "stop"),
        ("stopSequence", "stop"),
        ("COMPLETE", "stop"),
        ("model_length", "length"),
        ("model_context_window_exceeded", "length"),
        ("ERROR_LIMIT", "length"),
        ("max-tokens", "length"),
        ("maxTokens", "length"),
        ("toolUse", "tool_calls"),
        ("tool-calls", "tool_calls"),
        ("sensitive", "content_filter"),
        ("content_filtered", "content_filter"),
        ("contentFilter", "content_filter"),
        ("guardrail_intervened", "content_filter"),
        ("refusal", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("SPII", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("ERROR_TOXIC", "content_filter"),
        ("insufficient_system_resource", "other"),
        ("network_error", "other"),
    ],
)
def test_a_raw_reason_has_one_word(raw: str | None, label: FinishLabel) -> None:
    """Servers differ in their words and in their case; the metrics do not."""
    assert finish_label(raw) == label


@given(st.none() | st.text())
def test_no_reason_leaves_the_closed_set(raw: str | None) -> None:
    """Whatever a server sends, it cannot make a new time series."""
    assert finish_label(raw) in get_args(FinishLabel)


@pytest.mark.parametrize(
    ("reasons", "label"),
    [
        ((), "none"),
        ((None, None), "none"),
        (("stop", None), "stop"),
        (("stop", "tool_calls"), "tool_calls"),
        (("tool_calls", "abort"), "other"),
        (("abort", "content_filter"), "content_filter"),
        (("content_filter", "stop", "length"), "length"),
    ],
)
def test_several_choices_have_the_word_that_needs_attention_most(
    reasons: tuple[str | None, ...], label: FinishLabel
) -> None:
    """One truncated choice among many good ones is what an alert must see."""
    assert stream_finish_label(reasons) == label


@pytest.mark.parametrize(
    ("raw", "failed"),
    [
        *((raw, True) for raw in FAILURES),
        *((raw, False) for raw in ("stop", "length", "", "repetition", "pause_turn", "sensitive", "unknown")),
        *((raw, False) for raw in ("ERROR_LIMIT", "ERROR_TOXIC", "model_length", "content_filter", "load")),
    ],
)
def test_a_server_may_say_that_it_gave_up(raw: str, failed: bool) -> None:
    """An abort under the name of a finish reason is a failure all the same."""
    assert is_failure_reason(raw) is failed
