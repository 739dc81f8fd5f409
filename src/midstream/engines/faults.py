"""How an engine refuses a request, or reports that it gave one up: statuses, bodies, messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

ErrorBody: TypeAlias = "dict[str, Any]"


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

    body: Callable[[Fault], ErrorBody]
    event: Callable[[Fault], ErrorBody]
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


def openai_body(fault: Fault) -> ErrorBody:
    """Return an error as OpenAI nests it."""
    error = {"message": fault.message, "type": _kind(fault), "param": fault.param, "code": fault.status}
    return {"error": error}


def flat_body(fault: Fault) -> ErrorBody:
    """Return an error object without a wrapper, as SGLang and TensorRT-LLM send it."""
    return {
        "object": "error",
        "message": fault.message,
        "type": _kind(fault).removesuffix("Error") if fault.status == 400 else _kind(fault),
        "param": None,
        "code": fault.status,
    }
