"""Reads chunks: whether one carries output, of which kind, whether a choice finished, what was used, and failures.

Chunks are read by shape and never by class: servers send fields that no SDK type has, leave out fields that every type
promises, and the SDK builds unknown events as an instance of any class. Nothing here keeps a chunk or its text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from midstream._support.sanitize import plain_name
from midstream.stream.model import Phase
from midstream.stream.usage import Usage, field_of, read_usage


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read from one chunk. `choices` are the indices with output, `finishes` the raw reasons by index."""

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
            content = delta.content
            if content:
                return TEXT if content.__class__ is str else _read_choices(chunk)
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
    """Read an event of the Responses API, or of a transcription, image or speech stream, by its `type` string."""
    kind = field_of(event, "type")
    if not isinstance(kind, str):
        return NOTHING
    if kind.endswith(".delta"):
        return _PLAIN[_phase_of(kind)] if field_of(event, "delta") or field_of(event, "audio") else NOTHING
    if kind in _TERMINAL:
        return _read_terminal(kind, field_of(event, "response"))
    if kind == "error":
        return Reading(error=ERROR_EVENT)
    if kind == "response.output_item.added":
        return TOOL_CALL if _starts_call(field_of(event, "item")) else NOTHING
    if kind == "response.output_item.done":
        # A picture that is not streamed in parts arrives in the item itself.
        item = field_of(event, "item")
        return (
            TEXT
            if field_of(item, "type") == "image_generation_call" and field_of(item, "result")
            else NOTHING
        )
    if kind.endswith(".partial_image"):
        return TEXT if field_of(event, "partial_image_b64") or field_of(event, "b64_json") else NOTHING
    if kind == "transcript.text.segment":
        return TEXT if field_of(event, "text") else NOTHING
    if kind in _MEDIA_DONE:
        return _read_media_done(event)
    return NOTHING


def read_any(chunk: Any) -> Reading:
    """Read a chunk of unknown origin by whichever known shape it has."""
    if field_of(chunk, "choices") is not None:
        return _read_choices(chunk)
    if field_of(chunk, "usage") is not None and not isinstance(field_of(chunk, "type"), str):
        return _read_choices(chunk)
    reading = read_response(chunk)
    return reading if reading is not NOTHING else _read_choices(chunk)


def read_model(chunk: Any) -> str | None:
    """The model that answers, if this chunk names one."""
    whole = field_of(chunk, "response") or field_of(chunk, "message")
    return plain_name(field_of(chunk, "model") or field_of(whole, "model")) or None


def read_response_id(chunk: Any) -> str | None:
    """The server's own id of the answer, if this chunk has it: as its `id`, or in the `response` or `message` in it.

    Not the id of a run, which LangChain gives its messages, nor that of a server-sent event, which has `data` as well.
    """
    found = field_of(chunk, "id")
    if found is None:
        found = field_of(field_of(chunk, "response") or field_of(chunk, "message"), "id")
    elif field_of(chunk, "data") is not None:
        return None
    if found is None:  # Gemini's
        found = field_of(chunk, "responseId") or field_of(chunk, "response_id")
    name = plain_name(found)
    return None if name.startswith(_RUNS) else name or None


_RUNS = ("run-", "lc_run-")


def _read_choices(chunk: Any) -> Reading:
    groq = field_of(chunk, "x_groq")
    usage = read_usage(field_of(chunk, "usage")) or read_usage(field_of(groq, "usage"))
    choices = field_of(chunk, "choices")
    if not isinstance(choices, list | tuple):
        return Reading(usage=usage, error=_error_of(chunk)) if chunk is not None else NOTHING
    phase: Phase | None = None
    carried: list[int] = []
    finishes: list[tuple[int, str]] = []
    for position, choice in enumerate(choices):
        index = field_of(choice, "index")
        if index.__class__ is not int:
            index = position
        output = _phase_in(choice)
        if output is not None:
            phase = phase or output
            carried.append(index)
        reason = plain_name(field_of(choice, "finish_reason"))
        if reason:
            finishes.append((index, reason))
        if usage is None:  # Moonshot counts inside the choice
            usage = read_usage(field_of(choice, "usage"))
    error = None if phase or finishes else _error_of(chunk)
    if error is None and field_of(groq, "error"):
        error = ERROR_EVENT
    if usage is None and not finishes and error is None and carried in ([], [0]):
        return NOTHING if phase is None else _PLAIN[phase]
    return Reading(phase, tuple(carried), tuple(finishes), usage, error)


_REASONING_FIELDS = (
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "reasoning_text",
    "thinking",
    "thinking_blocks",
)
_MEDIA_FIELDS = ("images", "image", "videos", "video")


def _phase_in(choice: Any) -> Phase | None:
    if _is_output(field_of(choice, "text")):
        return "text"
    delta = field_of(choice, "delta")
    if delta is None:
        return None
    content = field_of(delta, "content")
    if _is_output(content):
        return "reasoning" if isinstance(content, list) and all(map(_is_thinking, content)) else "text"
    if _is_output(field_of(delta, "refusal")):
        return "text"
    if any(_is_call_delta(call) for call in _items(field_of(delta, "tool_calls"))) or _is_function(
        field_of(delta, "function_call")
    ):
        return "tool_call"
    if any(_is_output(field_of(delta, name)) for name in _REASONING_FIELDS):
        return "reasoning"
    audio = field_of(delta, "audio")
    if _is_output(field_of(audio, "data")) or _is_output(field_of(audio, "transcript")):
        return "text"
    if any(field_of(delta, name) for name in _MEDIA_FIELDS):
        return "text"
    return None


def _is_output(value: Any) -> bool:
    """Output is a non-empty string, or a non-empty list of parts (some servers send typed parts)."""
    return isinstance(value, str | list) and bool(value)


def _is_thinking(part: Any) -> bool:
    return field_of(part, "type") in {"thinking", "reasoning"}


def _is_call_delta(call: Any) -> bool:
    return (
        _is_output(field_of(call, "id"))
        or _is_function(field_of(call, "function"))
        or _is_function(field_of(call, "custom"))
    )


def _is_function(function: Any) -> bool:
    return any(_is_output(field_of(function, name)) for name in ("name", "arguments", "input"))


_NAMED_CALLS = {"function_call", "custom_tool_call", "mcp_call"}
_CALLS_FOR_THE_CLIENT = {*_NAMED_CALLS, "computer_call", "local_shell_call", "shell_call", "apply_patch_call"}


def _is_call(item: Any) -> bool:
    return field_of(item, "type") in _CALLS_FOR_THE_CLIENT


def _starts_call(item: Any) -> bool:
    """Whether this output item is a tool call: tokens were made for it, and what follows is the wait for the tool.

    The server's own tools (web search, code interpreter) have no name, only a type.
    """
    kind = field_of(item, "type")
    if kind in _NAMED_CALLS:
        return bool(field_of(item, "name"))
    return isinstance(kind, str) and kind.endswith("_call")


def _error_of(chunk: Any) -> str | None:
    """A chunk that is an error: one with an `error` field, or a bare body of `message` and `code`."""
    if field_of(chunk, "error") or field_of(chunk, "event") == "error":  # old SDKs wrap an event of any name
        return ERROR_EVENT
    if (
        field_of(chunk, "choices") is None
        and field_of(chunk, "message")
        and field_of(chunk, "code") is not None
    ):
        return ERROR_EVENT
    return None


_TERMINAL = {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}


def _read_terminal(kind: str, response: Any) -> Reading:
    """The Responses API has no finish reason: the terminal event stands for one, in the words of the other APIs."""
    usage = read_usage(field_of(response, "usage"))
    if kind == "response.failed" or field_of(response, "status") == "failed":
        return Reading(usage=usage, error="response.failed")
    reason = plain_name(field_of(field_of(response, "incomplete_details"), "reason"))
    if reason == "max_output_tokens":
        reason = "length"
    if not reason:
        called = any(_is_call(item) for item in _items(field_of(response, "output")))
        reason = {"response.completed": "tool_calls" if called else "stop"}.get(
            kind, kind.removeprefix("response.")
        )
    return Reading(finishes=((0, reason),), usage=usage)


_MEDIA_DONE = {
    *("transcript.text.done", "speech.audio.done"),
    *("image_generation.completed", "image_edit.completed"),
}


def _read_media_done(event: Any) -> Reading:
    """The last event of a transcription, of speech or of a picture; that of a picture carries it."""
    usage = read_usage(field_of(event, "usage"))
    if field_of(event, "b64_json"):
        return Reading("text", (0,), ((0, "stop"),), usage)
    return Reading(finishes=((0, "stop"),), usage=usage)


def _phase_of(kind: str) -> Phase:
    if "reasoning" in kind:
        return "reasoning"
    return "tool_call" if "_call" in kind else "text"


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_READERS: dict[str, Reader] = {
    "chat": read_chat,
    "text_completion": read_completion,
    "responses": read_response,
    "fetch_response": read_response,
}
