"""Events of one HTTP request, kept until its handler takes them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeAlias

from midstream.lab.admission import AdmissionRefusal, Reason


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine does not take the request."""

    refusal: AdmissionRefusal


@dataclass(frozen=True, slots=True)
class Queued:
    """The engine has the request in its queue."""


@dataclass(frozen=True, slots=True)
class Started:
    """The engine has started the request."""


@dataclass(slots=True)
class TokensEmitted:
    """Tokens of one choice, and the reason if it ends with them. A late handler may find several in one event."""

    choice: int
    tokens: int
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """The engine failed the request."""


StreamEvent: TypeAlias = Refused | Queued | Started | TokensEmitted | EngineFailed


class AnswerMailbox:
    """A queue of events. With `merges`, tokens that wait together are handed over as one event."""

    def __init__(self, *, merges: bool) -> None:
        self._merges = merges
        self._news: list[StreamEvent] = []
        self._waiting: asyncio.Future[None] | None = None
        self.left = False

    def put(self, news: StreamEvent) -> None:
        """Add an event."""
        last = self._news[-1] if self._news else None
        if (
            self._merges
            and isinstance(news, TokensEmitted)
            and isinstance(last, TokensEmitted)
            and last.choice == news.choice
        ):
            last.tokens += news.tokens
            last.reason = news.reason
        else:
            self._news.append(news)
        self._wake()

    def leave(self) -> None:
        """Mark the client as gone."""
        self.left = True
        self._wake()

    async def take(self, patience_s: float | None = None) -> list[StreamEvent]:
        """Return what happened since the last time, waiting for it; nothing after `patience_s`, or if `left`."""
        if not self._news and not self.left:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                if patience_s is None:
                    await self._waiting
                else:
                    await asyncio.wait([self._waiting], timeout=patience_s)
            finally:
                self._waiting = None
        if self.left:
            return []
        news, self._news = self._news, []
        return news

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
