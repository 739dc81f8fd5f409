"""An engine's page of metrics as values, and the ways to read one number from it.

A number that cannot be read is `None` with the reason, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class PageSample(NamedTuple):
    """One line of a page of metrics."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class MetricReading:
    """One number as a server gave it, or why there is none."""

    value: float | None
    why: str = ""
    """Of a number: what must be known to read it, often nothing. Without one: why not, and what would help."""
    exists: bool = True
    """False if this engine has no such thing, and not only no number for it."""


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """All samples by name, and the names of families that are declared, with samples or without."""

    samples: Mapping[str, tuple[PageSample, ...]] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    """Names of series that are not read."""

    def named(self, *names: str) -> tuple[PageSample, ...]:
        """Return the samples of the first of these names that has any."""
        return next((self.samples[name] for name in names if name in self.samples), ())

    def has(self, *prefixes: str) -> bool:
        """Return whether any name on the page begins with one of these."""
        return any(name.startswith(prefixes) for name in (*self.samples, *self.declared, *self.others))

    def renamed(self, prefixes: Mapping[str, str]) -> MetricsPage:
        """Return the page with prefixes of names replaced, where a framework has renamed an engine's metrics."""
        if not prefixes or not self.has(*prefixes):
            return self

        def own(name: str) -> str:
            found = next((prefix for prefix in prefixes if name.startswith(prefix)), None)
            return name if found is None else prefixes[found] + name.removeprefix(found)

        samples: dict[str, tuple[PageSample, ...]] = {}
        for name, found in self.samples.items():
            samples[own(name)] = (*samples.get(own(name), ()), *found)
        return MetricsPage(samples, frozenset(map(own, self.declared)), self.others)


ReadMetric: TypeAlias = Callable[[MetricsPage], MetricReading]
Among: TypeAlias = Callable[[Iterable[PageSample]], Iterable[PageSample]]


def total(*names: str, absent: str, among: Among = tuple) -> ReadMetric:
    """Return what adds up all samples of the first of these names that is on the page."""
    return lambda page: _combined(among(page.named(*names)), sum, names[0], absent)


def highest(*names: str, absent: str, among: Among = tuple) -> ReadMetric:
    """Return what takes the highest sample of the first of these names that is on the page."""
    return lambda page: _combined(among(page.named(*names)), max, names[0], absent)


def not_in_this_engine(why: str) -> ReadMetric:
    """Return a reading of what the engine does not have."""
    return lambda _page: MetricReading(None, why, exists=False)


def not_exposed(why: str) -> ReadMetric:
    """Return a reading of what the engine has and does not expose."""
    return lambda _page: MetricReading(None, why)


def _combined(
    found: Iterable[PageSample], how: Callable[[list[float]], float], name: str, absent: str
) -> MetricReading:
    values = [sample.value for sample in found]
    if not values:
        return MetricReading(None, absent)
    value = how(values)
    if not math.isfinite(value) or value < 0:
        return MetricReading(None, f"{name} is {value:g}, which is not a valid value")
    return MetricReading(value)
