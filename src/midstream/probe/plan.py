"""What a probe is told to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote, urlsplit

from midstream._support.sanitize import Secrets
from midstream.stream.model import FREEZE_AFTER_S

LONGEST_IN_TIMEOUTS = 10
PROMPT = (
    "Tell the story of a lighthouse keeper and a storm, in great detail, and go on until you are stopped."
)
"""Answers that fill their limit are as long as each other, so that their gaps can be compared."""


class Api(str, Enum):
    """Which of the server's streaming APIs is asked."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"

    @property
    def path(self) -> str:
        """Where it is, below the base URL."""
        return {"chat": "/chat/completions", "completions": "/completions", "responses": "/responses"}[
            self.value
        ]


@dataclass(frozen=True, slots=True)
class Plan:
    """Whom to ask for what. `base_urls` are tried in turn; without a model the server's list decides.

    `timeout_s` is how long a server may send nothing at all. `key` is None where the environment holds none.
    """

    base_urls: tuple[str, ...]
    key: str | None
    model: str | None = None
    count: int = 4
    concurrency: int = 4
    prompt: str = PROMPT
    max_tokens: int = 256
    api: Api = Api.CHAT
    freeze_after_s: float = FREEZE_AFTER_S
    timeout_s: float = 120.0

    @property
    def secrets(self) -> Secrets:
        """What is sent to the server and never shown."""
        parts = [urlsplit(url) for url in self.base_urls[:1]]
        named = [value for each in parts for value in (each.username, each.password) if value]
        return Secrets([self.key or "", *named, *map(unquote, named)])

    @property
    def longest_s(self) -> float:
        """How long one stream may take in all: many times what a server may take between two pieces of output."""
        return LONGEST_IN_TIMEOUTS * self.timeout_s

    @property
    def most_chunks(self) -> int:
        """How many events one stream may have: a server that heeds its limit sends about one a token."""
        return 1000 + 8 * self.max_tokens

    @property
    def at_a_time(self) -> int:
        """How many streams are open at once."""
        return min(self.concurrency, self.count)


class ProbeError(Exception):
    """The server cannot be probed; the message is one sentence that says what, where, and what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where the API is, the likeliest first, and its models; None if it does not list them."""

    base_urls: tuple[str, ...]
    models: tuple[str, ...] | None
    model: str
    """The one that was asked for, or picked."""
