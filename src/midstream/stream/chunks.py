"""What a chunk says: does it carry output, of which kind, did a choice finish, what was used, did it fail.

Chunks are read by shape and never by class: servers send fields that no SDK type knows, leave out fields that every
type promises, and the SDK builds unknown events as whatever class comes first. Nothing here keeps a chunk or its text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from midstream.stream.model import MAX_COUNT, Phase


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as one chunk reported them; None where it reported none."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What one chunk said. `choices` are the indices that carried output, `finishes` the raw reasons by index."""

    phase: Phase | None = None
    choices: tuple[int, ...] = ()
    finishes: tuple[tuple[int, str], ...] = ()
    usage: Usage | None = None
    error: str | None = None


Reader: TypeAlias = Callable[[Any], Reading]

NOTHING = Reading()
TEXT = Reading("text", (0,))
REASONING = Reading("reasoning", (0,))
TOOL_CALL = Reading("tool_call", (0,))
_PLAIN: dict[Phase, Reading] = {"text": TEXT, "reasoning": REASONING, "tool_call": TOOL_CALL}

ERROR_EVENT = "error_event"
"""The error type of a failure that the server sent as an event and the SDK yielded instead of raising."""


def reader_for(operation: str) -> Reader:
    """The reader for the chunks of one operation; the general one where the operation has no shape of its own."""
    return _READERS.get(operation, read_any)


def read_chat(chunk: Any) -> Reading:
    """Read a `chat.completion.chunk`. The common chunk, one choice with plain text, allocates nothing."""
    try:
        (choice,) = chunk.choices
        if choice.finish_reason is None and chunk.usage is None and choice.index == 0:
            delta = choice.delta
            if delta.content:
                return TEXT
            extra = delta.__pydantic_extra__
            if extra and not delta.tool_calls and not delta.refusal:
                thought = extra.get("reasoning_content") or extra.get("reasoning")
                if thought.__class__ is str and thought:
                    return REASONING
    except (AttributeError, TypeError, ValueError):
        pass
    return _read_choices(chunk)


def read_completion(chunk: Any) -> Reading:
    """Read a chunk of the legacy completions API, whose text stands in the choice itself."""
    try:
        (choice,) = chunk.choices
        if choice.finish_reason is None and chunk.usage is None and choice.index == 0 and choice.text:
            return TEXT
    except (AttributeError, TypeError, ValueError):
        pass
    return _read_choices(chunk)


def read_response(event: Any) -> Reading:
    """Read an event of the Responses API by its `type` string."""
    kind = _get(event, "type")
    if not isinstance(kind, str):
        return NOTHING
    if kind.endswith(".delta"):
        return _PLAIN[_phase_of(kind)] if _get(event, "delta") else NOTHING
    if kind in _TERMINAL:
        return _read_terminal(kind, _get(event, "response"))
    if kind == "error":
        return Reading(error=ERROR_EVENT)
    if kind == "response.output_item.added":
        # The start of a call carries its name: tokens were made, and the silence after it is inside the answer.
        item = _get(event, "item")
        return TOOL_CALL if _is_call(item) and _get(item, "name") else NOTHING
    if kind.endswith(".partial_image"):
        return TEXT if _get(event, "partial_image_b64") else NOTHING
    return NOTHING


def read_any(chunk: Any) -> Reading:
    """Read a chunk of unknown origin by whichever known shape it has."""
    if _get(chunk, "choices") is not None or _get(chunk, "usage") is not None:
        return _read_choices(chunk)
    reading = read_response(chunk)
    return reading if reading is not NOTHING else _read_choices(chunk)


def read_model(chunk: Any) -> str | None:
    """The model that answers, if this chunk names one."""
    model = _get(chunk, "model") or _get(_get(chunk, "response"), "model")
    return model if isinstance(model, str) and model else None


def read_usage(usage: Any) -> Usage | None:
    """Token counts under the names of either API; None if nothing countable was reported.

    Only integers from 0 to MAX_COUNT count; others are unknown.
    An object of zeros is a placeholder (Ollama puts one on every chunk).
    """
    if usage is None:
        return None
    prompt = _count(usage, "prompt_tokens", "input_tokens")
    output = _count(usage, "completion_tokens", "output_tokens")
    if not prompt and not output:
        return None
    prompt_details = _first(usage, "prompt_tokens_details", "input_tokens_details")
    output_details = _first(usage, "completion_tokens_details", "output_tokens_details")
    cached = _count(prompt_details, "cached_tokens")
    reasoning = _count(output_details, "reasoning_tokens")
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        cached_tokens=cached if cached is not None else _count(usage, "prompt_cache_hit_tokens"),
        reasoning_tokens=reasoning if reasoning is not None else _count(usage, "reasoning_tokens"),
    )


def _read_choices(chunk: Any) -> Reading:
    usage = read_usage(_get(chunk, "usage"))
    choices = _get(chunk, "choices")
    if not isinstance(choices, list | tuple):
        return Reading(usage=usage, error=_error_of(chunk)) if chunk is not None else NOTHING
    phase: Phase | None = None
    carried: list[int] = []
    finishes: list[tuple[int, str]] = []
    for position, choice in enumerate(choices):
        index = _get(choice, "index")
        if index.__class__ is not int:
            index = position
        said = _phase_in(choice)
        if said is not None:
            phase = phase or said
            carried.append(index)
        reason = _get(choice, "finish_reason")
        if isinstance(reason, str) and reason:
            finishes.append((index, reason))
    error = None if phase or finishes else _error_of(chunk)
    if usage is None and not finishes and error is None and carried in ([], [0]):
        return NOTHING if phase is None else _PLAIN[phase]
    return Reading(phase, tuple(carried), tuple(finishes), usage, error)


def _phase_in(choice: Any) -> Phase | None:
    if _said(_get(choice, "text")):
        return "text"
    delta = _get(choice, "delta")
    if delta is None:
        return None
    if _said(_get(delta, "content")) or _said(_get(delta, "refusal")):
        return "text"
    if any(_is_call_delta(call) for call in _items(_get(delta, "tool_calls"))) or _is_function(
        _get(delta, "function_call")
    ):
        return "tool_call"
    if any(_said(_get(delta, name)) for name in ("reasoning_content", "reasoning", "reasoning_details")):
        return "reasoning"
    audio = _get(delta, "audio")
    if _said(_get(audio, "data")) or _said(_get(audio, "transcript")):
        return "text"
    return None


def _said(value: Any) -> bool:
    """Output is a non-empty string, or a non-empty list of parts (some servers send typed parts)."""
    return isinstance(value, str | list) and bool(value)


def _is_call_delta(call: Any) -> bool:
    return (
        _said(_get(call, "id")) or _is_function(_get(call, "function")) or _is_function(_get(call, "custom"))
    )


def _is_function(function: Any) -> bool:
    return any(_said(_get(function, name)) for name in ("name", "arguments", "input"))


def _is_call(item: Any) -> bool:
    kind = _get(item, "type")
    return kind in {"function_call", "custom_tool_call", "mcp_call"}


def _error_of(chunk: Any) -> str | None:
    """A chunk that is an error: one with an `error` field, or a bare body of `message` and `code`."""
    if _get(chunk, "error") or _get(chunk, "event") == "error":  # old SDKs wrap an event of any name
        return ERROR_EVENT
    if _get(chunk, "choices") is None and _get(chunk, "message") and _get(chunk, "code") is not None:
        return ERROR_EVENT
    return None


_TERMINAL = {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}


def _read_terminal(kind: str, response: Any) -> Reading:
    """The Responses API has no finish reason: it is told from the terminal event, in the words of the other APIs."""
    usage = read_usage(_get(response, "usage"))
    if kind == "response.failed" or _get(response, "status") == "failed":
        return Reading(usage=usage, error="response.failed")
    reason = _get(_get(response, "incomplete_details"), "reason")
    if reason == "max_output_tokens":
        reason = "length"
    if not (isinstance(reason, str) and reason):
        called = any(_is_call(item) for item in _items(_get(response, "output")))
        reason = {"response.completed": "tool_calls" if called else "stop"}.get(
            kind, kind.removeprefix("response.")
        )
    return Reading(finishes=((0, reason),), usage=usage)


def _phase_of(kind: str) -> Phase:
    if "reasoning" in kind:
        return "reasoning"
    return "tool_call" if "_call" in kind else "text"


def _get(owner: Any, name: str) -> Any:
    """A field of a model, a plain object or a mapping; None where there is none."""
    if isinstance(owner, dict):
        return owner.get(name)
    return getattr(owner, name, None)


def _first(owner: Any, *names: str) -> Any:
    return next((value for name in names if (value := _get(owner, name)) is not None), None)


def _count(owner: Any, *names: str) -> int | None:
    for name in names:
        value = _get(owner, name)
        if value.__class__ is int and 0 <= value <= MAX_COUNT:
            return int(value)
    return None


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_READERS: dict[str, Reader] = {
    "chat": read_chat,
    "text_completion": read_completion,
    "responses": read_response,
    "fetch_response": read_response,
}
