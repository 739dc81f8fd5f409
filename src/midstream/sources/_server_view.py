"""What a server said of itself at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

from midstream.engines import ENGINES, EngineFacts, EngineReadings
from midstream.engines.page import MetricReading


@dataclass(frozen=True, slots=True)
class ServerView:
    """One server at one moment. Numbers are for all its replicas together, `kv_usage` for the fullest of them."""

    engine: str
    """A key of ENGINES."""
    title: str
    models: tuple[str, ...]
    running: MetricReading
    """Requests in the running batch."""
    waiting: MetricReading
    """Requests in the queue."""
    kv_usage: MetricReading
    """Share of the KV cache in use, 0 to 1."""
    preemptions: MetricReading
    """Requests preempted since the server started."""
    preempted_now: MetricReading
    """Requests that are out of memory at this moment, where the engine exposes that instead."""
    generated: MetricReading
    """Output tokens since the server started."""
    pool_tokens: MetricReading
    """Tokens that the KV cache holds."""
    started_at: float | None
    """Unix time in seconds at which the process started, if exposed."""
    notes: tuple[str, ...]
    """What must be known to read these numbers."""
    settings: Mapping[str, int | bool] = field(default_factory=lambda: MappingProxyType({}))
    """Settings of its admission rule that the page shows, by the engine's own names."""

    @property
    def preemptions_word(self) -> str:
        """What this engine calls preemptions."""
        return ENGINES[self.engine].words.plural

    def unknown(self) -> Iterator[tuple[str, str]]:
        """Name each number that could not be read, and why. What the engine does not have is none of them."""
        for each in fields(self):
            reading = getattr(self, each.name)
            if isinstance(reading, MetricReading) and reading.value is None and reading.exists:
                yield each.name, reading.why


def view_of_readings(
    facts: EngineFacts,
    readings: EngineReadings,
    models: tuple[str, ...] = (),
    started_at: float | None = None,
) -> ServerView:
    """Return the view of one engine's numbers."""
    return ServerView(
        engine=facts.key,
        title=facts.title,
        models=models,
        running=readings.running,
        waiting=readings.waiting,
        kv_usage=readings.kv_usage,
        preemptions=readings.preemptions,
        preempted_now=readings.preempted_now,
        generated=readings.generated,
        pool_tokens=readings.pool,
        started_at=started_at,
        notes=readings.notes,
        settings=readings.settings,
    )
