"""What the engine said to one HTTP request, until the handler of that request takes it."""

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
    """The engine works on the request for the first time."""


@dataclass(slots=True)
class TokensEmitted:
    """Tokens of one choice, and why it ends with them if it does. A late handler may find several in one."""

    choice: int
    tokens: int
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """The engine gave up on the request."""


StreamEvent: TypeAlias = Refused | Queued | Started | TokensEmitted | EngineFailed


class AnswerMailbox:
    """A mailbox. `merges` says whether tokens that wait together are handed over together."""

    def __init__(self, *, merges: bool) -> None:
        self._merges = merges
        self._news: list[StreamEvent] = []
        self._waiting: asyncio.Future[None] | None = None
        self.left = False

    def put(self, news: StreamEvent) -> None:
        """Add what happened."""
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
        """Note that the client is gone."""
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
