"""What a request of the openai SDK says about the stream it asks for. It reads, and never changes, what it is given."""

from __future__ import annotations

import copy
from typing import Any

from opentelemetry.trace import SpanContext, format_span_id, format_trace_id

from midstream.stream.model import MAX_COUNT, Call

_LIMITS = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "text_completion": ("max_tokens",),
    "responses": ("max_output_tokens",),
}
_PROVIDERS = (
    # Host endings and the values that the semantic conventions give them. An unknown host speaks OpenAI's protocol.
    ("openai.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("api.deepseek.com", "deepseek"),
    ("api.groq.com", "groq"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.x.ai", "x_ai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.anthropic.com", "anthropic"),
    ("api.cohere.ai", "cohere"),
    ("api.cohere.com", "cohere"),
    ("api.moonshot.ai", "moonshot_ai"),
    ("api.moonshot.cn", "moonshot_ai"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("amazonaws.com", "aws.bedrock"),
)
_ENDINGS = tuple(ending for ending, _ in _PROVIDERS)
_PORTS = {"https": 443, "http": 80}


def call_of(
    client: Any, options: Any, *, started: float | None, started_at: float, span: SpanContext
) -> Call:
    """What the client and its request options say before anything is sent."""
    body = _body(options)
    operation = _operation(str(getattr(options, "method", "post")), str(getattr(options, "url", "")))
    base_url = getattr(client, "base_url", None)
    address = _text(getattr(base_url, "host", None))
    model = _text(body.get("model"))
    choices = body.get("n")
    return Call(
        operation=operation,
        provider=_provider(client, address),
        server_address=address,
        server_port=_port(base_url),
        request_model=model,
        started=started,
        started_at=started_at,
        token_limit=_limit(body, operation),
        choices=choices if choices.__class__ is int and 0 < choices <= MAX_COUNT else 1,
        trace_id=format_trace_id(span.trace_id) if span.is_valid else None,
        span_id=format_span_id(span.span_id) if span.is_valid else None,
    )


def server_of(response: Any, call: Call) -> tuple[str, int | None]:
    """Host and port that answered; those of the client's base URL if the response does not say."""
    url = getattr(getattr(response, "request", None), "url", None)
    address = _text(getattr(url, "host", None))
    return (address, _port(url)) if address else (call.server_address, call.server_port)


def count_retries(response: Any, taken: Any) -> int | None:
    """Attempts before the one that answered, as the SDK counts them."""
    if taken.__class__ is int:
        return int(taken)
    header = response.request.headers.get("x-stainless-retry-count", "")
    return int(header) if header.isascii() and header.isdecimal() and len(header) < 10 else None


def with_usage(options: Any, operation: str) -> Any | None:
    """A copy of the options that asks for usage too; None where the caller has decided, or the API cannot."""
    if operation not in {"chat", "text_completion"} or not isinstance(options.json_data, dict):
        return None
    asked = _body(options).get("stream_options")
    if asked is not None and (not isinstance(asked, dict) or "include_usage" in asked):
        return None
    injected = copy.copy(options)
    injected.json_data = {**options.json_data, "stream_options": {**(asked or {}), "include_usage": True}}
    return injected


def _body(options: Any) -> dict[str, Any]:
    body = getattr(options, "json_data", None)
    extra = getattr(options, "extra_json", None)
    return {**(body if isinstance(body, dict) else {}), **(extra if isinstance(extra, dict) else {})}


def _operation(method: str, url: str) -> str:
    path = url.partition("?")[0].rstrip("/")
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/completions"):
        return "text_completion"
    if path.endswith("/responses"):
        return "responses"
    if "/responses/" in path and method.lower() == "get":
        return "fetch_response"
    return "other"


def _limit(body: dict[str, Any], operation: str) -> int | None:
    for name in _LIMITS.get(operation, ()):
        value = body.get(name)
        if value.__class__ is int and 0 < value <= MAX_COUNT:
            return int(value)
    return None


def _provider(client: Any, address: str) -> str:
    if address.endswith(_ENDINGS):
        for ending, provider in _PROVIDERS:
            if address == ending or address.endswith("." + ending):
                return provider
    azure = any(kind.__name__ == "BaseAzureClient" for kind in type(client).__mro__)
    return "azure.ai.openai" if azure else "openai"


def _port(url: Any) -> int | None:
    port = getattr(url, "port", None)
    return port if isinstance(port, int) else _PORTS.get(_text(getattr(url, "scheme", None)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
