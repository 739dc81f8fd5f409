"""What is open now, as the gauges show it whenever a reader collects."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from opentelemetry.metrics import MeterProvider, Observation, get_meter_provider

from midstream.telemetry.instruments import ACTIVE, FROZEN, OPEN_GAP, Metric

if TYPE_CHECKING:
    from midstream.telemetry.labels import Labels


class OpenSample(NamedTuple):
    """One open stream at the moment of collection."""

    labels: Labels
    frozen: bool
    open_gap_s: float


class Source(Protocol):
    """Something that has open streams to show."""

    provider: MeterProvider | None
    seen: dict[frozenset[tuple[str, str]], Labels]
    """The label sets to show as 0 when nothing of them is open: a gauge must come back, not vanish."""

    def open_samples(self) -> Iterable[OpenSample]:
        """List the streams that are open now. Never raises."""


_sources: dict[int, weakref.ref[Source]] = {}
# Of the whole process, since a provider may be reached in several ways: as itself, as the global one, or as
# the stand-in for a global one that was not yet set. It runs one callback for all of them.


def join(source: Source) -> None:
    """Show a source's streams for as long as it lives."""
    key = id(source)
    _sources[key] = weakref.ref(source, lambda _: _sources.pop(key, None))


def observing(provider: MeterProvider | None) -> Callable[[Metric], Iterable[Observation]]:
    """Make the function that observes a gauge for all sources that feed this provider."""
    # The provider holds this function, which must not hold the provider in turn.
    asking = get_meter_provider if provider is None else weakref.ref(provider)
    totals: list[_Total] = []
    shown: set[Metric] = set(_SHOW)

    def observe(metric: Metric) -> Iterable[Observation]:
        nonlocal totals, shown
        if metric in shown:  # a reader begins anew: one look at all streams serves its three gauges
            fed = asking()
            # A copy, made in one step: other threads add and remove sources.
            sources = [source for ref in list(_sources.values()) if (source := ref()) is not None]
            totals = _totals([source for source in sources if _real(source.provider) is fed])
            shown = set()
        shown.add(metric)
        show = _SHOW[metric]
        return [Observation(show(total), total.labels) for total in totals]

    return observe


def _real(provider: MeterProvider | None) -> MeterProvider:
    return get_meter_provider() if provider is None else provider


class _Total:
    """The open streams of one label set, summed up."""

    __slots__ = ("active", "frozen", "labels", "open_gap_s")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.active = 0
        self.frozen = 0
        self.open_gap_s = 0.0


def _totals(sources: list[Source]) -> list[_Total]:
    totals = {key: _Total(labels) for source in sources for key, labels in list(source.seen.items())}
    known: dict[int, tuple[Labels, _Total]] = {}  # by identity, which nearly all streams of a label set share
    for source in sources:
        for labels, frozen, open_gap_s in source.open_samples():
            found = known.get(id(labels))
            if found is None:
                key = frozenset(labels.items())
                total = totals.get(key)
                if total is None:
                    total = totals[key] = _Total(labels)
                known[id(labels)] = labels, total  # held, so that no other gets its number meanwhile
            else:
                total = found[1]
            total.active += 1
            total.frozen += frozen
            if open_gap_s > total.open_gap_s:  # noqa: PLR1730 - a call costs more, and there may be 10,000
                total.open_gap_s = open_gap_s
    return list(totals.values())


# Streams are integers and gaps are floats, also at 0: OTLP has a type for each.
_SHOW: dict[Metric, Callable[[_Total], float]] = {
    ACTIVE: attrgetter("active"),
    FROZEN: attrgetter("frozen"),
    OPEN_GAP: attrgetter("open_gap_s"),
}
