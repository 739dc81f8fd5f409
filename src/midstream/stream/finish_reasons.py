"""Finish reasons: what servers say, in the closed set of words that metrics may use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

FinishLabel: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "other", "none"]

_LABELS: dict[str, FinishLabel] = {
    "": "none",
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
}
_WORST_FIRST: tuple[FinishLabel, ...] = ("length", "content_filter", "other", "tool_calls", "stop", "none")
_FAILED = {"abort", "error"}


def finish_label(raw: str | None) -> FinishLabel:
    """The word for one raw finish reason; an empty one is none, an unknown one is other."""
    return _LABELS.get((raw or "").lower(), "other")


def stream_finish_label(reasons: Iterable[str | None]) -> FinishLabel:
    """The word for a stream of several choices: the one that needs attention most."""
    labels = {finish_label(reason) for reason in reasons}
    return next((label for label in _WORST_FIRST if label in labels), "none")


def failed_finish(raw: str) -> bool:
    """Whether the server says with this reason that it gave up."""
    return raw.lower() in _FAILED
