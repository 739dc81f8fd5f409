"""What a request says about the stream that it asks for. It reads, and never changes, what it is given."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

from midstream._support.sanitize import plain_name
from midstream.integrations.openai.providers import provider_of
from midstream.integrations.tracing import current_trace_ids
from midstream.stream.model import Call
from midstream.stream.usage import token_count

_LIMITS = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "text_completion": ("max_tokens",),
    "responses": ("max_output_tokens",),
}
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What of a request is worth knowing. `body` is the caller's own, held only while the call is read."""

    method: str
    path: str
    host: str
    port: int | None
    body: dict[str, Any] = field(repr=False)
    azure: bool = False

    @property
    def operation(self) -> str:
        """What the request asks for, in the words of `StreamRecord.operation`."""
        path = self.path.partition("?")[0].rstrip("/")
        if path.endswith("/chat/completions"):
            return "chat"
        if path.endswith("/completions"):
            return "text_completion"
        if path.endswith("/responses"):
            return "responses"
        if "/responses/" in path and self.method.lower() == "get":
            return "fetch_response"
        return "other"


def from_options(client: Any, options: Any) -> StreamRequest:
    """The request that a client of the openai SDK is about to make with these options."""
    base_url = getattr(client, "base_url", None)
    return StreamRequest(
        method=str(getattr(options, "method", "post")),
        path=str(getattr(options, "url", "")),
        host=plain_name(getattr(base_url, "host", None)),
        port=port_of(base_url),
        body=_body(options),
        azure=any(kind.__name__ == "BaseAzureClient" for kind in type(client).__mro__),
    )


def from_http(request: Any) -> StreamRequest:
    """The request of an HTTP library, after it was sent."""
    return StreamRequest(
        method=str(request.method),
        path=str(request.url.path),
        host=plain_name(getattr(request.url, "host", None)),
        port=port_of(request.url),
        body=_json_body(request),
    )


def call_of(request: StreamRequest, *, started: float | None, started_at: float) -> Call:
    """What the request says before its answer. `started` is on the monitor's clock, None if it was not seen."""
    operation = request.operation
    trace_id, span_id = current_trace_ids()
    return Call(
        operation=operation,
        provider=provider_of(request.host, azure_client=request.azure),
        server_address=request.host,
        server_port=request.port,
        request_model=plain_name(request.body.get("model")),
        started=started,
        started_at=started_at,
        token_limit=_limit(request.body, operation),
        choices=token_count(request.body.get("n")) or 1,
        trace_id=trace_id,
        span_id=span_id,
    )


def server_of(response: Any, call: Call) -> tuple[str, int | None]:
    """Host and port that answered; those of the client's base URL if the response does not have them."""
    url = getattr(getattr(response, "request", None), "url", None)
    address = plain_name(getattr(url, "host", None))
    return (address, port_of(url)) if address else (call.server_address, call.server_port)


def count_retries(response: Any, taken: Any) -> int | None:
    """Attempts before the one that answered, as the SDK counts them. None if it does not."""
    if taken.__class__ is int:
        return int(taken)
    header = response.request.headers.get("x-stainless-retry-count", "")
    return int(header) if header.isdecimal() and len(header) < 10 else None


def with_usage(options: Any, request: StreamRequest) -> Any | None:
    """A copy of the options that asks for usage too; None if that is decided already, or the API cannot.

    Servers can be asked in several ways (`stream_options`, OpenRouter's `usage`), and callers may send any field: a
    request with a field for usage has decided.
    """
    if request.operation not in {"chat", "text_completion"} or not isinstance(options.json_data, dict):
        return None
    asked = request.body.get("stream_options")
    if "stream_options" in (getattr(options, "extra_json", None) or {}):
        return None  # the SDK puts it over everything else
    if asked is not None and not isinstance(asked, dict):
        return None
    if _asks_for_usage(request.body, asked or {}, options) or _always_sends_usage(request):
        return None
    injected = copy.copy(options)
    injected.json_data = {**options.json_data, "stream_options": {**(asked or {}), "include_usage": True}}
    return injected


_NOT_OPTIONS = {"stream_options", "messages", "prompt", "tools", "functions", "response_format", "metadata"}


def _asks_for_usage(body: dict[str, Any], stream_options: dict[str, Any], options: Any) -> bool:
    groups: list[Any] = [body, getattr(options, "params", None), getattr(options, "headers", None)]
    groups += [value for name, value in body.items() if name not in _NOT_OPTIONS]
    named = any(
        isinstance(name, str) and "usage" in name.lower()
        for group in groups
        if isinstance(group, dict)
        for name in group
    )
    return named or any(str(name).lower().replace("_", "") == "includeusage" for name in stream_options)


def _always_sends_usage(request: StreamRequest) -> bool:
    """OpenRouter ends every stream with a usage chunk, which callers rely on."""
    return request.host == "openrouter.ai" or request.host.endswith(".openrouter.ai")


def _body(options: Any) -> dict[str, Any]:
    body = getattr(options, "json_data", None)
    extra = getattr(options, "extra_json", None)
    return {**(body if isinstance(body, dict) else {}), **(extra if isinstance(extra, dict) else {})}


def _json_body(request: Any) -> dict[str, Any]:
    try:
        body = json.loads(request.content)
    except Exception:  # noqa: BLE001 - a body that was itself a stream is gone, and it may be no JSON at all
        return {}
    return body if isinstance(body, dict) else {}


def _limit(body: dict[str, Any], operation: str) -> int | None:
    for name in _LIMITS.get(operation, ()):
        limit = token_count(body.get(name))
        if limit:
            return limit
    return None


def port_of(url: Any) -> int | None:
    """The port of a URL, that of its scheme if it names none; None if neither is known."""
    port = getattr(url, "port", None)
    return port if isinstance(port, int) else _PORTS.get(plain_name(getattr(url, "scheme", None)))
