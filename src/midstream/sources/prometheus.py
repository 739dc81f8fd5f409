"""A fleet's streams, from any Prometheus-compatible API: Prometheus, Mimir, Thanos, VictoriaMetrics.

    with PrometheusSource("http://localhost:9090") as source:
        fleet = source.fleet(since, until, by=("gen_ai.request.model",), where=["team=search"])

What it gives is a `sources.fleet.Fleet`; every failure is a PrometheusError whose message is one sentence. Classic and
native histograms are told apart by what the server has, and so are the names that OTLP's translations give.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from midstream import _instruments as metrics
from midstream._instruments import FINISH_REASON, OUTCOME, TOKEN_TYPE, Metric
from midstream.sources._prometheus_answer import (
    Key,
    classic_histograms,
    native,
    native_histograms,
    number,
    over_time,
    values,
)
from midstream.sources._prometheus_api import Api, PrometheusError, Series
from midstream.sources._prometheus_query import ALL_OURS, Named, grown, matchers, named, summed
from midstream.sources.fleet import Fleet, Histogram, Slice, Summary
from midstream.sources.http import Getter

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["PrometheusError", "PrometheusSource"]

T = TypeVar("T")

SLICES = 40
SLICE_S = 60.0
"""A slice is this long at least, where the span has room for some of them: several scrapes must lie in it."""

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
    """One API, asked with these headers, which are never shown. ValueError if `url` cannot be one."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 60.0
    ) -> None:
        self._getter = Getter(headers, timeout_s)
        self._api = Api(url, self._getter)

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
        freeze_after_s: float = 5.0,
    ) -> Fleet:
        """Return what ended between two moments, in Unix seconds.

        `by` are attributes, by OTel's names or your own, to tell streams apart; `where` conditions such as
        `model=big`. A slice's frozen streams are those whose silence passed `freeze_after_s`. Raises PrometheusError,
        also if there are no streams, and SelectionError for a condition that is none.
        """
        return _Question(self._api, since, until, tuple(by), tuple(where)).answer(freeze_after_s)


class _Question:
    """One span of time, asked for metric by metric."""

    def __init__(
        self, api: Api, since: float, until: float, by: tuple[str, ...], where: tuple[str, ...]
    ) -> None:
        self._api = api
        self._since = since
        self._until = until
        self._by = by
        self._where = where
        self._names = api.names(ALL_OURS, since, until)

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
        return Fleet(
            self._since, self._until, tuple(summaries), self._slices(freeze_after_s), tuple(self._gaps())
        )

    def _nothing(self) -> str:
        if not self._names:
            return (
                f"{self._api.url} has no metric of midstream in this time; is a program with midstream scraped, or "
                "does it send its metrics there, and is it the right tenant?"
            )
        which = f" that match {', '.join(self._where)}" if self._where else ""
        return f"{self._api.url} has no streams{which} in this time; choose another time, or drop a --where"

    def _named(self, metric: Metric) -> Named | None:
        return named(metric, self._names)

    def _select(self, found: Named, part: str = "", own: Mapping[str, str] | None = None) -> str:
        fixed = [f'{found.label(name)}="{value}"' for name, value in (own or {}).items()]
        return found.select(part, [*fixed, *matchers(found, self._where)])

    def _sum(self, found: Named, selector: str, *more: str) -> str:
        whole = grown(selector, self._until - self._since, native=found.native)
        return summed(whole, (*(found.label(each) for each in self._by), *more))

    def _labels(self, found: Named, *more: str) -> list[str]:
        return [found.label_of(each) for each in (*self._by, *more)]

    def _counter(self, metric: Metric) -> dict[Key, float] | None:
        found = self._named(metric)
        if found is None:
            return None
        series = self._api.at(self._sum(found, self._select(found)), self._until)
        return values(series, self._labels(found))

    def _ended(self) -> dict[Key, dict[tuple[str, str], float]] | None:
        found = self._named(metrics.ENDED)
        if found is None:
            return None
        expression = self._sum(found, self._select(found), found.label(OUTCOME), found.label(FINISH_REASON))
        series = self._api.at(expression, self._until)
        ended: dict[Key, dict[tuple[str, str], float]] = {}
        for key, count in values(series, self._labels(found, OUTCOME, FINISH_REASON)).items():
            if count > 0:
                ended.setdefault(key[:-2], {})[key[-2], key[-1]] = count
        return ended

    def _histogram(self, metric: Metric, own: Mapping[str, str]) -> dict[Key, Histogram] | None:
        found = self._named(metric)
        if found is None:
            return None
        labels = self._labels(found)
        if found.native:
            return native_histograms(
                self._api.at(self._sum(found, self._select(found, own=own)), self._until), labels
            )
        buckets = self._api.at(
            self._sum(found, self._select(found, "_bucket", own), "le", "vmrange"), self._until
        )
        sums = self._api.at(self._sum(found, self._select(found, "_sum", own)), self._until)
        return classic_histograms(buckets, values(sums, labels), labels)

    def _slices(self, freeze_after_s: float) -> tuple[Slice, ...]:
        gap = self._named(metrics.MAX_GAP)
        if gap is None:
            return ()
        length = self._until - self._since
        step = max(length / SLICES, min(SLICE_S, length / 8))
        moments = [self._since + step * (index + 1) for index in range(round(length / step))]
        counts, froze = self._counted(gap, freeze_after_s, step)
        tokens = self._tokens(step)
        return tuple(
            Slice(
                moment - step,
                step,
                _near(counts, moment),
                min(_near(counts, moment), _near(froze, moment)),
                None if tokens is None else _near(tokens, moment),
            )
            for moment in moments
        )

    def _counted(
        self, gap: Named, freeze_after_s: float, step: float
    ) -> tuple[dict[float, float], dict[float, float]]:
        if gap.native:
            counts: dict[float, float] = {}
            froze: dict[float, float] = {}
            for series in self._range(summed(grown(self._select(gap), step, native=True), ()), step):
                for moment, histogram in series.get("histograms") or ():
                    read = native(histogram)
                    counts[float(moment)] = read.count
                    froze[float(moment)] = sum(read.above(freeze_after_s)) / 2
            return counts, froze
        counts = over_time(self._range(summed(grown(self._select(gap, "_count"), step), ()), step))
        below = self._select(gap, "_bucket", {}).removesuffix("}") + f', le=~"{_le(freeze_after_s)}"}}'
        under = over_time(self._range(summed(grown(below, step), ()), step))
        return counts, {moment: max(0.0, count - under.get(moment, 0.0)) for moment, count in counts.items()}

    def _tokens(self, step: float) -> dict[float, float] | None:
        usage = self._named(metrics.TOKEN_USAGE)
        if usage is None:
            return None
        own = {TOKEN_TYPE: "output"}
        if not usage.native:
            return over_time(self._range(summed(grown(self._select(usage, "_sum", own), step), ()), step))
        found = {}
        for series in self._range(summed(grown(self._select(usage, own=own), step, native=True), ()), step):
            for moment, histogram in series.get("histograms") or ():
                found[float(moment)] = number(histogram.get("sum")) or 0.0
        return found

    def _range(self, expression: str, step: float) -> Sequence[Series]:
        return self._api.over(expression, self._since + step, self._until, step)

    def _gaps(self) -> Iterator[str]:
        """Say where in the span of time there are no data."""
        found = self._named(metrics.ENDED)
        if found is None:
            return
        step = max((self._until - self._since) / SLICES, 1.0)
        there = over_time(self._api.over(f"count({self._select(found)})", self._since, self._until, step))
        if there and min(there) > self._since + 2 * step:
            begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(there)))
            yield f"there are data from {begun} on only"


def _of(group: Mapping[Key, T] | None, key: Key, nothing: T) -> T | None:
    """Return what a metric says of a set of labels: nothing grew where it has no series, if it is there at all."""
    return None if group is None else group.get(key, nothing)


def _near(found: Mapping[float, float], moment: float) -> float:
    """Return the value at a moment, which servers round to milliseconds."""
    return next((value for at, value in found.items() if abs(at - moment) < 0.01), 0.0)


def _le(bound: float) -> str:
    """Match one bound, as scrapes and OTLP write it."""
    return f"{bound:.0f}|{bound:.1f}" if bound == int(bound) else f"{bound:g}"
