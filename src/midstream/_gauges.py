"""What is open now, as the gauges show it whenever a reader collects."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from opentelemetry.metrics import MeterProvider, Observation, get_meter_provider

from midstream._instruments import ACTIVE, FROZEN, OPEN_GAP, Metric

if TYPE_CHECKING:
    from midstream._labels import Labels


class OpenSample(NamedTuple):
    """One open stream at the moment of collection."""

    labels: Labels
    frozen: bool
    open_gap_s: float


class Source(Protocol):
    """Whoever has open streams to show."""

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

    def observe(metric: Metric) -> Iterable[Observation]:
        fed = asking()
        # A copy, made in one step: other threads come and go.
        sources = [source for ref in list(_sources.values()) if (source := ref()) is not None]
        return _observations(metric, [source for source in sources if _real(source.provider) is fed])

    return observe


def _real(provider: MeterProvider | None) -> MeterProvider:
    return get_meter_provider() if provider is None else provider


def _observations(metric: Metric, sources: list[Source]) -> list[Observation]:
    nothing, with_one_more = _SHOW[metric]
    values: dict[frozenset[tuple[str, str]], float] = {}
    labels = {key: value for source in sources for key, value in list(source.seen.items())}
    for source in sources:
        for sample in source.open_samples():
            key = frozenset(sample.labels.items())
            labels[key] = sample.labels
            values[key] = with_one_more(values.get(key, nothing), sample)
    return [Observation(values.get(key, nothing), attributes) for key, attributes in labels.items()]


# Streams are counted in integers and silence in floats, also where there is none: OTLP tells the two apart.
_SHOW: dict[Metric, tuple[float, Callable[[float, OpenSample], float]]] = {
    ACTIVE: (0, lambda so_far, _: so_far + 1),
    FROZEN: (0, lambda so_far, sample: so_far + sample.frozen),
    OPEN_GAP: (0.0, lambda so_far, sample: max(so_far, sample.open_gap_s)),
}
