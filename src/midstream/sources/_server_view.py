"""What a server said of itself at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from midstream.sources._engines import ENGINES
from midstream.sources.page import Reading


@dataclass(frozen=True, slots=True)
class ServerView:
    """One server at one moment. Numbers are for all its replicas together, `kv_usage` for the fullest of them."""

    engine: str
    """A key of ENGINES."""
    title: str
    models: tuple[str, ...]
    running: Reading
    """Requests in the running batch."""
    waiting: Reading
    """Requests in the queue."""
    kv_usage: Reading
    """Share of the KV cache in use, 0 to 1."""
    evictions: Reading
    """Requests thrown out of memory since the server started."""
    evicted_now: Reading
    """Requests that are out of memory at this moment, where the engine tells that instead."""
    generated: Reading
    """Output tokens since the server started."""
    pool_tokens: Reading
    """Tokens that the KV cache holds."""
    started_at: float | None
    """Unix time in seconds at which the process started, if it says so."""
    notes: tuple[str, ...]
    """What must be known to read these numbers."""

    @property
    def evictions_word(self) -> str:
        """What this engine calls evictions."""
        return ENGINES[self.engine].eviction_plural

    def unknown(self) -> Iterator[tuple[str, str]]:
        """Name each number that could not be read, and why. What the engine does not have is none of them."""
        for field in fields(self):
            reading = getattr(self, field.name)
            if isinstance(reading, Reading) and reading.value is None and reading.exists:
                yield field.name, reading.why
