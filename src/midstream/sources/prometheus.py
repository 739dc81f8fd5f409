"""A fleet's streams, from any Prometheus-compatible API: Prometheus, Mimir, Thanos, VictoriaMetrics.

    with PrometheusSource("http://localhost:9090") as source:
        fleet = source.fleet(since, until, by=("gen_ai.request.model",), where=["team=search"])

What it gives is a `sources.fleet.Fleet`; every failure is a PrometheusError whose message is one sentence. Classic and
native histograms are told apart by what the server has, and so are the names that OTLP's translations give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from midstream.sources._prometheus_answer import (
    Key,
    classic_histograms,
    native_histograms,
    values,
)
from midstream.sources._prometheus_query import ALL_OURS, Named, Selection, grown, summed
from midstream.sources._prometheus_timeline import Timeline
from midstream.sources.fleet import Fleet, Histogram, Summary
from midstream.sources.http import Getter
from midstream.sources.prometheus_api import PrometheusApi, PrometheusError
from midstream.stream.model import FREEZE_AFTER_S
from midstream.telemetry import instruments as metrics
from midstream.telemetry.instruments import FINISH_REASON, OUTCOME, TOKEN_TYPE, Metric

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["PrometheusError", "PrometheusSource"]

T = TypeVar("T")
MOST_BOUNDS = 2000
"""Different buckets of one metric. Native histograms of one schema have some hundreds between them."""

_COUNTERS: Mapping[str, Metric] = {
    "freezes": metrics.FREEZES,
    "hidden_freezes": metrics.HIDDEN_FREEZES,
    "frozen_s": metrics.FROZEN_TIME,
    "limit_hits": metrics.LIMIT_HITS,
    "usage_missing": metrics.USAGE_MISSING,
    "buffered": metrics.BUFFERED,
}
_HISTOGRAMS: Mapping[str, tuple[Metric, Mapping[str, str]]] = {
    "max_gap": (metrics.MAX_GAP, {}),
    "first_content": (metrics.FIRST_CONTENT, {}),
    "output_tokens": (metrics.TOKEN_USAGE, {TOKEN_TYPE: "output"}),
    "input_tokens": (metrics.TOKEN_USAGE, {TOKEN_TYPE: "input"}),
    "limit_used": (metrics.LIMIT_USED, {}),
    "duration": (metrics.OPERATION_DURATION, {}),
}


class PrometheusSource:
    """One API, asked with these headers, which are never shown. ValueError if `url` cannot be one.

    A query may take `timeout_s` seconds, and all of them together `total_s`.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        total_s: float = 300.0,
    ) -> None:
        self._getter = Getter(headers, timeout_s, total_s=total_s)
        self._api = PrometheusApi(url, self._getter)

    @property
    def url(self) -> str:
        """Its address, as it may be shown."""
        return self._api.url

    def __enter__(self) -> Self:
        self._getter.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._getter.__exit__(kind, error, trace)

    def fleet(
        self,
        since: float,
        until: float,
        *,
        by: Sequence[str] = (),
        where: Sequence[str] = (),
        freeze_after_s: float = FREEZE_AFTER_S,
    ) -> Fleet:
        """Return what ended between two moments, in Unix seconds.

        `by` are attributes, by OTel's names or your own, to tell streams apart; `where` conditions such as
        `model=big`. A slice's frozen streams are those whose longest gap passed `freeze_after_s`.
        Raises PrometheusError, also if there are no streams, and SelectionError for a condition that is none.
        """
        return _Question(self._api, since, until, tuple(by), tuple(where)).answer(freeze_after_s)


class _Question:
    """One span of time, asked for metric by metric."""

    def __init__(
        self, api: PrometheusApi, since: float, until: float, by: tuple[str, ...], where: tuple[str, ...]
    ) -> None:
        self._api = api
        self._since = since
        self._until = until
        self._by = by
        self._where = where
        self._selection = Selection(api.names(ALL_OURS, since, until), where)

    def answer(self, freeze_after_s: float) -> Fleet:
        ended = self._ended()
        counters = {field: self._counter(metric) for field, metric in _COUNTERS.items()}
        histograms = {field: self._histogram(metric, own) for field, (metric, own) in _HISTOGRAMS.items()}
        keys = {key for group in (ended, *counters.values(), *histograms.values()) if group for key in group}
        if not keys:
            raise PrometheusError(self._nothing())
        summaries = []
        for key in sorted(keys):
            found: dict[str, Any] = {field: _of(group, key, 0.0) for field, group in counters.items()}
            found |= {field: _of(group, key, Histogram(())) for field, group in histograms.items()}
            found["ended"] = _of(ended, key, {})
            summaries.append(Summary(dict(zip(self._by, key, strict=True)), **found))
        timeline = Timeline(self._api, self._selection, self._since, self._until)
        return Fleet(
            self._since,
            self._until,
            tuple(summaries),
            timeline.slices(freeze_after_s),
            tuple(timeline.gaps()),
        )

    def _nothing(self) -> str:
        if not self._selection.names:
            return (
                f"{self._api.url} has no metric of midstream in this time; is a program with midstream scraped, or "
                "does it send its metrics there, and is it the right tenant?"
            )
        which = f" that match {', '.join(self._where)}" if self._where else ""
        return f"{self._api.url} has no streams{which} in this time; choose another time, or drop a --where"

    def _sum(self, found: Named, selector: str, *more: str) -> str:
        whole = grown(selector, self._until - self._since, native=found.native)
        return summed(whole, (*(found.label(each) for each in self._by), *more))

    def _labels(self, found: Named, *more: str) -> list[str]:
        return [found.label_of(each) for each in (*self._by, *more)]

    def _counter(self, metric: Metric) -> dict[Key, float] | None:
        found = self._selection.named(metric)
        if found is None:
            return None
        series = self._api.at(self._sum(found, self._selection.select(found)), self._until)
        return values(series, self._labels(found))

    def _ended(self) -> dict[Key, dict[tuple[str, str], float]] | None:
        found = self._selection.named(metrics.ENDED)
        if found is None:
            return None
        expression = self._sum(
            found, self._selection.select(found), found.label(OUTCOME), found.label(FINISH_REASON)
        )
        series = self._api.at(expression, self._until)
        ended: dict[Key, dict[tuple[str, str], float]] = {}
        for key, count in values(series, self._labels(found, OUTCOME, FINISH_REASON)).items():
            if count > 0:
                ended.setdefault(key[:-2], {})[key[-2], key[-1]] = count
        return ended

    def _histogram(self, metric: Metric, own: Mapping[str, str]) -> dict[Key, Histogram] | None:
        found = self._selection.named(metric)
        if found is None:
            return None
        labels = self._labels(found)
        if found.native:
            return self._bounded(
                native_histograms(
                    self._api.at(self._sum(found, self._selection.select(found, own=own)), self._until),
                    labels,
                )
            )
        buckets = self._api.at(
            self._sum(found, self._selection.select(found, "_bucket", own), "le", "vmrange"), self._until
        )
        sums = self._api.at(self._sum(found, self._selection.select(found, "_sum", own)), self._until)
        return self._bounded(classic_histograms(buckets, values(sums, labels), labels))

    def _bounded(self, histograms: dict[Key, Histogram]) -> dict[Key, Histogram]:
        """Raise PrometheusError if they do not share their bounds: adding them up would take long."""
        if len({(each.low, each.high) for one in histograms.values() for each in one.buckets}) > MOST_BOUNDS:
            raise PrometheusError(
                f"{self._api.url} has histograms with more than {MOST_BOUNDS:,} different buckets; choose fewer "
                "streams with --where"
            )
        return histograms


def _of(group: Mapping[Key, T] | None, key: Key, nothing: T) -> T | None:
    """Return what a metric says of a set of labels: nothing grew where it has no series, if it is there at all."""
    return None if group is None else group.get(key, nothing)
