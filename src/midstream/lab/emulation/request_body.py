"""Reads a request's body: what matters of it, and nothing of what it says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from midstream.engines.dialect import Dialect
from midstream.engines.faults import Fault
from midstream.lab.emulation.words import OPENING_TOKENS, arguments
from midstream.lab.recording import Operation

CHARACTERS_PER_TOKEN = 4
"""How prompts are counted. Real tokenizers come close to it with English."""

FIELD = "emulate"
"""The field of a request's body that tells the emulator what no real server could be told."""

MOST_CHOICES = 128
"""As OpenAI's API has it."""
MOST_TOKENS = 1_000_000
"""What a request may wish for: more than any context holds."""
_WISHES = ("prompt_tokens", "answer_tokens", "fail_at")
_IN_WORDS = re.compile(r"\btokens=(\d{1,6})\b")
_LIMITS: Mapping[Operation, tuple[str, ...]] = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "text_completion": ("max_tokens",),
    "responses": ("max_output_tokens",),
}


class BadRequestError(Exception):
    """A request that no engine would take, and why."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.fault = Fault(status, message, param)


@dataclass(frozen=True, slots=True)
class ScriptedToolCall:
    """A call of a tool that stands for the answer: its name, and its arguments in tokens."""

    name: str
    pieces: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """How long it is."""
        return OPENING_TOKENS + len(self.pieces)


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """What a client asks for. `answer_tokens` is None where the distribution of answers decides."""

    operation: Operation
    model: str
    stream: bool
    prompt_tokens: int
    limit: int | None
    choices: int
    answer_tokens: int | None
    endless: bool
    fail_at: int | None
    seed: int | None
    call: ScriptedToolCall | None
    include_usage: bool
    continuous_usage: bool
    continues: int
    """Tokens of an answer that stand in the request already, and that the answer continues."""


def read_body(body: object, operation: Operation, dialect: Dialect) -> ParsedRequest:
    """Return what was asked. Raises BadRequestError for what the engine would refuse by the body alone."""
    try:
        return _read(body, operation, dialect)
    except (TypeError, AttributeError, KeyError, ValueError, RecursionError) as error:
        # A field of a type that no API has; which one, engines do not tell better.
        raise BadRequestError("The request body has a field of a type that it cannot have.") from error


def _read(body: object, operation: Operation, dialect: Dialect) -> ParsedRequest:
    if not isinstance(body, Mapping):
        raise BadRequestError("The request body must be a JSON object.")
    if dialect.known_fields:
        for name in body:
            if name not in dialect.known_fields and name != FIELD:
                raise BadRequestError(f"Extra inputs are not permitted: {name}", str(name))
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise BadRequestError("`model` must be a string.", "model")
    told = _told(body)
    prompt = _prompt(body, operation)
    wish = _IN_WORDS.findall(prompt) if isinstance(prompt, str) else []
    answer = told.get("answer_tokens") or (int(wish[-1]) if wish else None) or None
    options = body.get("stream_options")
    options = options if isinstance(options, Mapping) else {}
    include = options.get("include_usage", dialect.usage_by_default if options else False) is True
    continuous = options.get("continuous_usage_stats") is True and (
        dialect.continuous == "alone" or (dialect.continuous == "with include_usage" and include)
    )
    call = _call(body, operation, answer)
    continues = _continues(body, operation, dialect)
    choices = _whole(body, "n") or 1
    if choices > MOST_CHOICES:
        raise BadRequestError(f"n must be at most {MOST_CHOICES}, got {choices}.", "n")
    return ParsedRequest(
        operation=operation,
        model=model or "",
        stream=body.get("stream") is True,
        prompt_tokens=told.get("prompt_tokens") or _count(prompt),
        limit=_limit(body, operation, dialect),
        choices=choices if dialect.choices and operation != "responses" else 1,
        answer_tokens=answer if call is None else call.tokens,
        endless=body.get("ignore_eos") is True,
        fail_at=told.get("fail_at"),
        seed=seed if isinstance(seed := body.get("seed"), int) else None,
        call=call,
        include_usage=include,
        continuous_usage=continuous,
        continues=continues,
    )


def _told(body: Mapping[str, Any]) -> dict[str, int]:
    given = body.get(FIELD, {})
    if not isinstance(given, Mapping):
        raise BadRequestError(f"`{FIELD}` must be an object with {', '.join(_WISHES)}.", FIELD)
    for name, value in given.items():
        if name not in _WISHES or type(value) is not int or not 1 <= value <= MOST_TOKENS:
            raise BadRequestError(
                f"`{FIELD}` takes {', '.join(_WISHES)}, whole numbers from 1 to {MOST_TOKENS:,}.", FIELD
            )
    return dict(given)


def _limit(body: Mapping[str, Any], operation: Operation, dialect: Dialect) -> int | None:
    for name in _LIMITS[operation]:
        value = _whole(body, name, least=-1)
        if value is not None:
            if value == -1:
                return None
            if value == 0:
                raise BadRequestError(f"{name} must be at least 1, got 0.", name)
            return value
    return dialect.text_limit if operation == "text_completion" else None


def _whole(body: Mapping[str, Any], name: str, *, least: int = 1) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int or value < least:
        raise BadRequestError(f"{name} must be a whole number from {least} up, got {value!r:.40}.", name)
    return value


def _prompt(body: Mapping[str, Any], operation: Operation) -> object:
    """Return the prompt's text, or its token ids; it is counted and dropped."""
    if operation == "chat":
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
            raise BadRequestError("`messages` must be a list of messages.", "messages")
        return "\n".join(_text(message.get("content")) for message in messages)
    name = "prompt" if operation == "text_completion" else "input"
    prompt = body.get(name)
    if isinstance(prompt, list) and operation == "text_completion":
        if len(prompt) == 1:
            return prompt[0]
        if not prompt or not all(type(token) is int for token in prompt):
            raise BadRequestError("This emulator takes one prompt at a time.", name)
        return prompt
    if prompt is None:
        raise BadRequestError(f"`{name}` is missing.", name)
    return _text(prompt)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text(part) for part in content)
    if isinstance(content, Mapping):
        return _text(content.get("text", content.get("content")))
    return ""


def _continues(body: Mapping[str, Any], operation: Operation, dialect: Dialect) -> int:
    """Return how many tokens of an answer the last message holds, if that is to be continued."""
    if not dialect.continues or operation != "chat" or body.get("continue_final_message") is not True:
        return 0
    if body.get("add_generation_prompt", True) is not False:
        raise BadRequestError(
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
            "continue_final_message",
        )
    messages = body["messages"]
    return len(_text(messages[-1].get("content")).split()) if messages else 0


def _count(prompt: object) -> int:
    if isinstance(prompt, str):
        return max(1, -(-len(prompt) // CHARACTERS_PER_TOKEN))
    return max(1, len(prompt)) if isinstance(prompt, list) else 1


def _call(body: Mapping[str, Any], operation: Operation, tokens: int | None) -> ScriptedToolCall | None:
    """Return the call of a tool that answers a chat which offers some: the one that is asked for, or the first."""
    tools = body.get("tools")
    choice = body.get("tool_choice")
    if operation != "chat" or not isinstance(tools, list) or not tools or choice == "none":
        return None
    functions = [tool.get("function") for tool in tools if isinstance(tool, Mapping)]
    wanted = choice["function"].get("name") if isinstance(choice, Mapping) and "function" in choice else None
    for function in functions:
        if isinstance(function, Mapping) and wanted in (None, function.get("name")):
            return ScriptedToolCall(str(function.get("name")), arguments(function.get("parameters"), tokens))
    raise BadRequestError("`tools` must hold the function that tool_choice names.", "tools")
