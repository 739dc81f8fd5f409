"""What is said about an engine: the types that each engine's module fills in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from midstream.engines.dialect import Dialect
from midstream.engines.flags import AdviseFlags
from midstream.engines.page import MetricReading, MetricsPage, ReadMetric


@dataclass(frozen=True, slots=True)
class PreemptionWords:
    """What the engine calls a preemption: vLLM preempts, SGLang retracts, TensorRT-LLM pauses."""

    noun: str
    plural: str
    verb: str
    past: str


@dataclass(frozen=True, slots=True)
class PageReaders:
    """How to read each number from the engine's own `/metrics`."""

    running: ReadMetric
    waiting: ReadMetric
    kv_usage: ReadMetric
    """Share of the KV cache in use, 0 to 1."""
    preemptions: ReadMetric
    """Since the server started: a counter."""
    preempted_now: ReadMetric
    """How many requests are preempted at this moment: a gauge."""
    generated: ReadMetric
    """Output tokens since the server started."""
    pool: ReadMetric
    """How many tokens its KV cache holds."""
    notes: tuple[str, ...] = ()
    """What must be known to read any of its numbers."""
    settings: Callable[[MetricsPage], Mapping[str, int | bool]] = lambda _page: MappingProxyType({})
    """Settings of its admission rule that the page shows, by the names of the variant's `settings`."""


@dataclass(frozen=True, slots=True)
class EngineReadings:
    """The numbers of one page."""

    running: MetricReading
    waiting: MetricReading
    kv_usage: MetricReading
    preemptions: MetricReading
    preempted_now: MetricReading
    generated: MetricReading
    pool: MetricReading
    notes: tuple[str, ...]
    settings: Mapping[str, int | bool] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class EngineSeries:
    """The few series in Prometheus that explain a freeze, and the texts of alerts about them."""

    preemptions: str
    kind: Literal["counter", "late counter", "gauge"]
    """late counter: absent until the first event. gauge: how many are preempted now, there is no total."""
    usage: str
    """Share of the KV cache in use, 0 to 1."""
    waiting: str
    running: str
    alert: str
    """The name of the alert about preemptions; a public name."""
    found: str
    """What that alert found, with `[value]` and `[window]`."""
    remedy: str
    """What to do then."""
    panel: str
    """What the dashboard shows."""
    cap: str
    """The flag that caps admission."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every series."""
        return self.preemptions, self.usage, self.waiting, self.running


@dataclass(frozen=True, slots=True)
class PreemptionCounting:
    """When the engine's counter of preemptions moves, seen from the freeze of the stream."""

    at_end: str = ""
    """What to know of a preemption that is counted when the freeze ends; empty: it is counted at the start only."""
    during: bool = False
    """Whether a count in the middle of a freeze may belong to it."""
    lost: str = ""
    """What is not counted when a stream ends inside its freeze; empty: everything is counted."""
    estimated: bool = False
    """Whether the count is an estimate, which may fall without a restart."""
    never: bool = False
    """Whether the engine never preempts."""


@dataclass(frozen=True, slots=True)
class PoolLogLine:
    """A line of the engine's start-up log that states the size of the KV cache.

    Every repetition in its pattern is bounded, so that the time to search a log grows with its length and no faster.
    """

    pattern: re.Pattern[str]
    tokens: Callable[[re.Match[str]], int]

    def read(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where each such line stands, and how many tokens it states."""
        for matched in self.pattern.finditer(text):
            yield matched.start(), self.tokens(matched)


MOST_DIGITS = 15
"""No memory holds a number of tokens with more digits."""


def whole_number(text: str) -> int:
    """Read a number as logs write it, with or without commas. ValueError for one that no memory holds."""
    digits = text.replace(",", "")
    if not 0 < len(digits) <= MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


ReservedTokens: TypeAlias = Callable[[int | None], int | None]
"""From the limit asked for, None for none, to the tokens that are reserved; None if it is all that is left."""


def reserves_nothing(_limit: int | None) -> int:
    """Reserve nothing for a limit."""
    return 0


def reserves_all(limit: int | None) -> int | None:
    """Reserve the whole limit."""
    return limit


def reserves_up_to(most: int) -> ReservedTokens:
    """Reserve the limit, and no more than `most`."""
    return lambda limit: most if limit is None else min(limit, most)


@dataclass(frozen=True, slots=True)
class ReservationRule:
    """What is reserved for the limit that a request asks for, and what that means in a sentence."""

    title: str
    held: ReservedTokens
    meaning: str

    def gain(self, today: int | None, limit: int) -> int | None:
        """Return how many tokens fewer are reserved for each request; None if that is not known."""
        before, after = self.held(today), self.held(limit)
        return None if before is None or after is None else before - after


@dataclass(frozen=True, slots=True)
class EngineKnob:
    """The settings that hold the pool and the cap; without one for the cap, clients must hold back."""

    pool: str
    cap: str | None
    preempts: bool
    """Whether an answer can lose its memory under this rule: where it cannot, a cap ends no freeze."""
    block: str = ""
    """The setting for the tokens in a block, where the pool is counted in blocks; empty: it is counted in tokens."""
    at_least: Mapping[str, int] = field(default_factory=dict)
    """Settings that must not be smaller than the number of clients, and their defaults."""

    def flags(
        self, pool_tokens: int, clients: int, cap: int | None, *, block_size: int = 16
    ) -> dict[str, int]:
        """Return the settings for a pool in blocks of `block_size`, that many clients, and a cap; None is none."""
        flags = {self.pool: pool_tokens}
        if self.block:
            flags = {self.pool: pool_tokens // block_size, self.block: block_size}
        flags |= {name: max(default, clients) for name, default in self.at_least.items()}
        if self.cap is not None:
            flags[self.cap] = max(1, clients if cap is None else cap)
        return flags


@dataclass(frozen=True, slots=True)
class EngineVariant:
    """An engine under one of its rules, by the name that command lines use."""

    name: str
    settings: type[Any]
    """The flags that bear on admission, by the engine's own names and with its own defaults."""
    rule: str
    """The admission rule in a line."""
    reservation: ReservationRule
    knobs: EngineKnob
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What the admission rule is built with beside the settings."""
    aliases: tuple[str, ...] = ()
    """Other names in use."""
    version: tuple[int, ...] | None = None
    """The version that this variant stands for, if it stands for one."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(setting.name for setting in fields(self.settings))


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine: everything that midstream takes for granted about it."""

    key: str
    """A short name, such as `vllm`; of its first variant as well."""
    title: str
    prefixes: tuple[str, ...]
    """What the names of its metrics begin with."""
    words: PreemptionWords
    page: PageReaders
    dialect: Dialect
    advise_flags: AdviseFlags
    variants: tuple[EngineVariant, ...]
    series: EngineSeries | None = None
    """What rules and dashboards read; None: it has no series that explain a freeze."""
    counting: PreemptionCounting = PreemptionCounting()
    renamed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Prefixes that frameworks give its metrics instead, and what they stand for."""
    log_lines: tuple[PoolLogLine, ...] = ()
    read_json: Callable[[str], EngineReadings | None] | None = None
    """Reads a page that is in JSON; None where it is something else."""
    metrics_missing: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    """By HTTP status: why `/metrics` may answer so, and what to do."""

    @property
    def required_series(self) -> EngineSeries:
        """The series that explain a freeze. Raises ValueError for an engine that has none."""
        if self.series is None:
            raise ValueError(f"{self.title} has no series that explain a freeze")
        return self.series

    def owns(self, page: MetricsPage) -> bool:
        """Return whether a page is of this engine, under its own names or renamed ones."""
        return page.has(*self.prefixes, *self.renamed)

    def read(self, page: MetricsPage) -> EngineReadings:
        """Read every number from a page."""
        own = page.renamed(self.renamed)
        readers = self.page
        return EngineReadings(
            readers.running(own),
            readers.waiting(own),
            readers.kv_usage(own),
            readers.preemptions(own),
            readers.preempted_now(own),
            readers.generated(own),
            readers.pool(own),
            readers.notes,
            readers.settings(own),
        )

    def spellings(self, name: str) -> tuple[str, ...]:
        """Return a metric's name, and the names under which frameworks export it."""
        others = (
            renamed + name.removeprefix(own) for renamed, own in self.renamed.items() if name.startswith(own)
        )
        return (name, *others)
