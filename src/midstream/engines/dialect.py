"""How an engine speaks OpenAI's protocol: a table of what differs between engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from midstream.engines.faults import Faults


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
    continues: bool = False
    """Whether a chat with `continue_final_message`, and `add_generation_prompt` off, continues its last message."""
    known_fields: frozenset[str] = frozenset()
    """The fields that a request may have, where others are refused; empty: others are ignored."""
    streamed_refusals: frozenset[int] = frozenset()
    """Refusals of these statuses come in the stream, under HTTP 200."""
    on_failure: Literal["event", "event and done", "break"] = "event and done"
    """How a stream ends that fails midway."""
    keep_alive: bytes = b""
    keep_alive_s: float | None = None
    """A comment that is sent when nothing else was for so long; None is never."""
    responses: bool = True
    """Whether there is /v1/responses."""
    model_card: Callable[[str, int], Mapping[str, Any]] = lambda _model, _context: {}
    """What the list of models holds beside OpenAI's fields, from the model's name and its context in tokens."""
    unknown_path: Literal["detail", "empty", "error"] = "detail"
    """How a path that does not exist is answered: FastAPI's `detail`, nothing, or an error with status 404."""
    failure: str = "EngineCore encountered an issue."
    """The message when the engine gives up a request."""


UVICORN_HEADERS: Mapping[str, str] = {"server": "uvicorn", "content-type": "text/event-stream; charset=utf-8"}
"""Of engines whose server is uvicorn."""
