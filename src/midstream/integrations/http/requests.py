"""Decides from a request and its response whether the answer is one to follow, and what was asked for. Pure.

An answer to follow is a successful response to a POST whose body is an event stream and whose path or JSON body is one
of OpenAI's protocol (chat, completions, responses) or of Anthropic's messages, or whose body is JSON lines and whose
path is Ollama's. No list of hosts is consulted, and what was read is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from midstream._support.sanitize import plain_name
from midstream.integrations.http.events import EventSplitter, LineSplitter
from midstream.integrations.http.reading import read_event, read_ollama
from midstream.integrations.openai.requests import StreamRequest, call_of, port_of
from midstream.stream.chunks import Reading
from midstream.stream.model import Call

_EVENT_STREAM = "text/event-stream"
_JSON_LINES = "application/x-ndjson"
_STREAMED = (_EVENT_STREAM, _JSON_LINES)
LONGEST_BODY = 64 << 20
"""Bytes of a request's body that are parsed. Of a larger one only the path is known."""
_PATHS = {
    # The end of a path, and OpenAI's path with the same meaning.
    "/chat/completions": "/chat/completions",
    "/completions": "/completions",
    "/responses": "/responses",
    "/messages": "/chat/completions",
}
_OLLAMA = {"/api/chat": "/chat/completions", "/api/generate": "/completions"}
_PROVIDERS = {"/messages": "anthropic", "/api/chat": "ollama", "/api/generate": "ollama"}
_OLLAMA_LIMIT = "num_predict"
_REFUSALS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and the head of its response, as the HTTP library has them."""

    method: str
    url: Any
    """An object with `scheme`, `host`, `port` and `path`."""
    status: int
    """0 if there was no response."""
    body: Callable[[], Any]
    """The request's body as bytes, text, or a JSON value; None if it is gone, or was a stream."""
    content_type: str = ""
    content_encoding: str = ""

    @property
    def compressed(self) -> bool:
        """Whether the bytes on the wire are compressed."""
        return self.content_encoding.strip().lower() not in {"", "identity"}


@dataclass(frozen=True, slots=True)
class Followed:
    """An answer to follow: what was asked, and how its body is split and read."""

    call: Call
    splitter: EventSplitter | LineSplitter
    read: Callable[[Any], Reading]


def is_to_be_read(status: int, content_type: str) -> bool:
    """Whether a response to a POST is more than one of a program's many others: it streams, or it is a refusal."""
    return status >= 400 or content_type.lower().startswith(_STREAMED)


def may_stream(exchange: Exchange) -> bool:
    """Whether a response can be an answer to follow, by its head alone."""
    return (
        exchange.method.upper() == "POST"
        and 200 <= exchange.status < 300
        and exchange.content_type.lower().startswith(_STREAMED)
    )


def followed(exchange: Exchange, *, started: float | None, started_at: float) -> Followed | None:
    """What is to be followed in this exchange; None if it is nothing of ours."""
    lines = exchange.content_type.lower().startswith(_JSON_LINES)
    call = _call(exchange, _parsed(exchange.body()), lines=lines, started=started, started_at=started_at)
    if call is None:
        return None
    if lines:
        return Followed(call, LineSplitter(), read_ollama)
    return Followed(call, EventSplitter(), read_event)


def refused(exchange: Exchange, *, started: float | None, started_at: float) -> Call | None:
    """The call that failed in this exchange, if it asked for a stream to follow; None if it is nothing of ours.

    There is no answer to go by: the request's body must ask for a stream, which for Ollama it does unless it says no.
    """
    if exchange.method.upper() != "POST":
        return None
    lines = bool(_ending(_path(exchange), _OLLAMA))
    body = exchange.body()
    if isinstance(body, bytes | bytearray) and not lines and b'"stream"' not in body:
        return None
    body = _parsed(body)
    if not isinstance(body, dict) or body.get("stream", lines) is not True:
        return None
    return _call(exchange, body, lines=lines, started=started, started_at=started_at)


def error_of_status(status: int) -> str:
    """The `error.type` of a refusal with this status: the name that SDKs have for it."""
    return _REFUSALS.get(status, "InternalServerError" if status >= 500 else "APIStatusError")


def _call(
    exchange: Exchange, body: Any, *, lines: bool, started: float | None, started_at: float
) -> Call | None:
    paths = _OLLAMA if lines else _PATHS
    path = _path(exchange)
    operation_path = _operation_path(path, body, paths)
    if operation_path is None:
        return None
    if lines and isinstance(body, dict):
        options = body.get("options")
        limit = options.get(_OLLAMA_LIMIT) if isinstance(options, dict) else None
        body = {"model": body.get("model"), "max_tokens": limit}
    provider = _PROVIDERS.get(_ending(path, paths), "")
    request = StreamRequest(
        method=exchange.method,
        path=operation_path,
        host=plain_name(exchange.url.host),
        port=port_of(exchange.url),
        body=body if isinstance(body, dict) else {},
    )
    call = call_of(request, started=started, started_at=started_at)
    if provider and call.provider == "openai":
        call = replace(call, provider=provider)  # a host that is not known speaks this protocol
    return call


def _path(exchange: Exchange) -> str:
    return str(exchange.url.path).rstrip("/")


def _operation_path(path: str, body: Any, paths: dict[str, str]) -> str | None:
    known = paths.get(_ending(path, paths))
    if known is not None:
        return known
    if not isinstance(body, dict) or body.get("stream") is not True or paths is _OLLAMA:
        return None
    for field, known in (
        ("messages", "/chat/completions"),
        ("prompt", "/completions"),
        ("input", "/responses"),
    ):
        if field in body:
            return known
    return None


def _ending(path: str, paths: dict[str, str]) -> str:
    return next((ending for ending in paths if path.endswith(ending)), "")


def _parsed(body: Any) -> Any:
    if not isinstance(body, bytes | bytearray | str):
        return body
    if len(body) > LONGEST_BODY:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
