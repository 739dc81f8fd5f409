"""A page of metrics, taken apart by Prometheus' own parser: samples by their full name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

_read_text: Callable[[str], Iterable[Metric]] = text_string_to_metric_families
_read_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families


class PageError(ValueError):
    """This is no page of metrics that can be read; its message is one sentence."""


class Sample(NamedTuple):
    """One line of the page."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Reading:
    """One number as a server gave it, or why there is none. It is never 0 for want of a number."""

    value: float | None
    why: str = ""
    """Of a number: what must be known to read it, often nothing. Without one: why not, and what would help."""
    exists: bool = True
    """False if this engine has no such thing, and not only no number for it."""


@dataclass(frozen=True, slots=True)
class Page:
    """All samples by name, and the names of families that are declared, with samples or without."""

    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()

    def named(self, *names: str) -> tuple[Sample, ...]:
        """Return the samples of the first of these names that has any."""
        return next((self.samples[name] for name in names if name in self.samples), ())

    def has(self, prefix: str) -> bool:
        """Return whether any name on the page begins so."""
        return any(name.startswith(prefix) for name in (*self.samples, *self.declared))


Read: TypeAlias = Callable[[Page], Reading]


def page_of(text: str, content_type: str = "") -> Page:
    """Take a page apart. Raises PageError if it is not in Prometheus' or OpenMetrics' format."""
    families = _read_openmetrics(text) if "openmetrics" in content_type else _read_text(text)
    samples: dict[str, dict[frozenset[tuple[str, str]], Sample]] = {}
    declared: set[str] = set()
    try:
        for family in families:
            if family.type != "unknown":
                declared |= (
                    {family.name, f"{family.name}_total"} if family.type == "counter" else {family.name}
                )
            for sample in family.samples:
                # A series that is there twice is one, and its first line counts, as it does for Prometheus.
                series = samples.setdefault(sample.name, {})
                series.setdefault(
                    frozenset(sample.labels.items()), Sample(sample.labels, float(sample.value))
                )
    except Exception as error:  # the parser fails on what it does not expect in whatever way comes first
        raise PageError(
            "no page of metrics in Prometheus' format; give what the server shows at /metrics"
        ) from error
    return Page({name: tuple(found.values()) for name, found in samples.items()}, frozenset(declared))


def total(*names: str, absent: str, among: Callable[[Iterable[Sample]], Iterable[Sample]] = tuple) -> Read:
    """Make what adds up all samples of the first of these names that is there."""
    return lambda page: _combined(among(page.named(*names)), sum, names[0], absent)


def worst(*names: str, absent: str, among: Callable[[Iterable[Sample]], Iterable[Sample]] = tuple) -> Read:
    """Make what takes the highest sample of the first of these names that is there."""
    return lambda page: _combined(among(page.named(*names)), max, names[0], absent)


def none(why: str) -> Read:
    """Make what says that the engine has no such thing."""
    return lambda _page: Reading(None, why, exists=False)


def unknown(why: str) -> Read:
    """Make what says that the engine does not tell."""
    return lambda _page: Reading(None, why)


def _combined(
    found: Iterable[Sample], how: Callable[[list[float]], float], name: str, absent: str
) -> Reading:
    values = [sample.value for sample in found]
    if not values:
        return Reading(None, absent)
    value = how(values)
    if not math.isfinite(value) or value < 0:
        return Reading(None, f"{name} says {value:g}, which is no such number")
    return Reading(value)
