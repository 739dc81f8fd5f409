"""Finish reasons: every server's words, in the closed set that metrics may use."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.stream.finish_reasons import FinishLabel, finish_label, is_failure_reason, stream_finish_label


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
    ("raw", "failed"), [("abort", True), ("ERROR", True), ("stop", False), ("length", False), ("", False)]
)
def test_a_server_may_say_that_it_gave_up(raw: str, failed: bool) -> None:
    """An abort under the name of a finish reason is a failure all the same."""
    assert is_failure_reason(raw) is failed
