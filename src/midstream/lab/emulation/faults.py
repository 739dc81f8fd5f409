"""What each engine says when it does not do what was asked: statuses, bodies, words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Body: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request got no answer, or none to its end."""

    status: int
    message: str
    param: str | None = None
    prompt_tokens: int | None = None
    context: int | None = None


@dataclass(frozen=True, slots=True)
class Faults:
    """An engine's way: the body of a refusal, the event in a stream, and its words when something is too long."""

    body: Callable[[Fault], Body]
    event: Callable[[Fault], Body]
    prompt_too_long: str
    """With {prompt} and {context}."""
    request_too_long: str | None
    """With {prompt}, {limit}, {total} and {context}; None where the limit is cut silently."""
    busy: str
    """What is said when too many wait already."""
    too_long_status: int = 400

    def too_long(self, prompt: int, limit: int | None, context: int) -> Fault:
        """Return the fault of a request that exceeds the context; `limit` is its max_tokens, if that is the cause."""
        words = (
            self.prompt_too_long if limit is None or self.request_too_long is None else self.request_too_long
        )
        total = prompt + (limit or 0)
        message = words.format(prompt=prompt, limit=limit, total=total, context=context)
        return Fault(self.too_long_status, message, "input_tokens", prompt, context)


_KINDS = {
    400: "BadRequestError",
    404: "NotFoundError",
    422: "BadRequestError",
    503: "ServiceUnavailableError",
}


def _kind(fault: Fault) -> str:
    return _KINDS.get(fault.status, "InternalServerError")


def _openai(fault: Fault) -> Body:
    error = {"message": fault.message, "type": _kind(fault), "param": fault.param, "code": fault.status}
    return {"error": error}


def _flat(fault: Fault) -> Body:
    return {
        "object": "error",
        "message": fault.message,
        "type": _kind(fault).removesuffix("Error") if fault.status == 400 else _kind(fault),
        "param": None,
        "code": fault.status,
    }


def _tgi(fault: Fault) -> Body:
    kinds = {429: "overloaded", 422: "validation", 400: "validation", 404: "validation"}
    return {"error": fault.message, "error_type": kinds.get(fault.status, "generation")}


def _tgi_event(fault: Fault) -> Body:
    # Whatever it was, overload included: the router knows one status for streams.
    return {"error": {"message": fault.message, "http_status_code": 422}}


def _llamacpp(fault: Fault) -> Body:
    kinds = {400: "invalid_request_error", 404: "not_found_error", 503: "unavailable_error"}
    error: Body = {
        "code": fault.status,
        "message": fault.message,
        "type": kinds.get(fault.status, "server_error"),
    }
    if fault.context is not None:
        error |= {
            "type": "exceed_context_size_error",
            "n_prompt_tokens": fault.prompt_tokens,
            "n_ctx": fault.context,
        }
    return {"error": error}


VLLM = Faults(
    body=_openai,
    event=_openai,
    prompt_too_long="This model's maximum context length is {context} tokens. However, your prompt contains at "
    "least {prompt} input tokens, which exceeds this limit even without any output tokens. Please reduce the "
    "length of the input prompt. (parameter=input_tokens, value={prompt})",
    request_too_long="This model's maximum context length is {context} tokens. However, you requested {limit} "
    "output tokens and your prompt contains at least {prompt} input tokens, for a total of at least {total} "
    "tokens. Please reduce the length of the input prompt or the number of requested output tokens. "
    "(parameter=input_tokens, value={prompt})",
    busy="The server is overloaded: too many requests are waiting.",
)

SGLANG = Faults(
    body=_flat,
    event=lambda fault: {"error": _flat(fault)},
    prompt_too_long="The input ({prompt} tokens) is longer than the model's context length ({context} tokens).",
    request_too_long="Requested token count exceeds the model's maximum context length of {context} tokens. You "
    "requested a total of {total} tokens: {prompt} tokens from the input messages and {limit} tokens for the "
    "completion. Please reduce the number of tokens in the input messages or the completion to fit within the "
    "limit.",
    busy="The request queue is full.",
)

TGI = Faults(
    body=_tgi,
    event=_tgi_event,
    prompt_too_long="Input validation error: `inputs` must have less than {context} tokens. Given: {prompt}",
    request_too_long="Input validation error: `inputs` tokens + `max_new_tokens` must be <= {context}. Given: "
    "{prompt} `inputs` tokens and {limit} `max_new_tokens`",
    busy="Model is overloaded",
    too_long_status=422,
)

TRTLLM = Faults(
    body=_flat,
    event=lambda fault: {"error": _flat(fault)},
    prompt_too_long="The sum of prompt length ({prompt}), query length (0) should not exceed max_num_tokens "
    "({context})",
    request_too_long=None,
    busy="The server is overloaded.",
)

LLAMACPP = Faults(
    body=_llamacpp,
    event=_llamacpp,
    prompt_too_long="request ({prompt} tokens) exceeds the available context size ({context} tokens), try "
    "increasing it",
    request_too_long=None,
    busy="The server is busy.",
)
