"""What the writers of all operations share: events, heads, usage, and the interface they have in common."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from midstream.engines.dialect import Dialect
from midstream.lab.admission import Reason
from midstream.lab.emulation.mailbox import TokensEmitted

DONE = b"data: [DONE]\n\n"


class AnswerWriter(Protocol):
    """Turns the engine's news about one request into bytes."""

    def finished(self) -> bool:
        """True when nothing more will come."""

    def queued(self) -> bytes:
        """What is sent when the engine has the request."""

    def said(self, news: TokensEmitted) -> bytes:
        """What is sent for tokens."""

    def failed(self, fault: dict[str, Any], *, done: bool) -> bytes:
        """What is sent when the engine gives up; `done` says whether an end mark follows."""

    def whole(self, reasons: dict[int, Reason], counts: dict[int, int]) -> dict[str, Any]:
        """The answer in one piece, from each choice's reason and tokens."""


@dataclass(frozen=True, slots=True)
class Head:
    """What every chunk of one answer repeats. `created` is in Unix seconds."""

    id: str
    created: int
    model: str
    more: dict[str, Any]

    def fields(self, kind: str) -> dict[str, Any]:
        """Return the head as chunks of that kind have it."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, **self.more}


def event(payload: dict[str, Any]) -> bytes:
    """Return a server-sent event."""
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


def usage_of(dialect: Dialect, prompt: int, answer: int) -> dict[str, Any]:
    """Return a usage object."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + answer,
        "completion_tokens": answer,
        **dialect.usage,
    }
