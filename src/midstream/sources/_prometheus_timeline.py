"""How a fleet's streams came over time: slices of it, and where there are no data."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence

from midstream.sources._prometheus_answer import over_time
from midstream.sources._prometheus_query import Named, Selection, grown, summed
from midstream.sources.fleet import Slice
from midstream.sources.prometheus_api import PrometheusApi, PrometheusSeries
from midstream.telemetry import instruments as metrics
from midstream.telemetry.instruments import TOKEN_TYPE

SLICES = 40
SLICE_S = 60.0
"""A slice is this long at least, where the span has room for some of them: several scrapes must lie in it."""
SAMPLES = 60
SCRAPED_S = 15
"""Whether any stream was open is asked so many times in a slice, but no less often than servers are scraped."""
LOOKBACK_S = 300
"""How long a server holds on to a sample in an instant query: a series is scraped more often than that."""


class Timeline:
    """The streams that are meant, between two moments in Unix seconds."""

    def __init__(self, api: PrometheusApi, selection: Selection, since: float, until: float) -> None:
        self._api = api
        self._selection = selection
        self._since = since
        self._until = until

    def slices(self, freeze_after_s: float) -> tuple[Slice, ...]:
        """Cut the time into pieces. Streams froze whose longest gap passed `freeze_after_s`."""
        gap = self._selection.named(metrics.MAX_GAP)
        if gap is None:
            return ()
        length = self._until - self._since
        step = max(length / SLICES, min(SLICE_S, length / 8))
        moments = [self._since + step * (index + 1) for index in range(round(length / step))]
        counts, froze = self._counted(gap, freeze_after_s, step)
        tokens = self._tokens(step)
        busy = self._busy(step)
        return tuple(
            Slice(
                moment - step,
                None if busy is None else _near(busy, moment),
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
            for series in self._range(
                summed(grown(self._selection.select(gap), step, native=True), ()), step
            ):
                for moment, histogram in series.histograms:
                    counts[moment] = histogram.count
                    froze[moment] = sum(histogram.above(freeze_after_s)) / 2
            return counts, froze
        counts = over_time(self._range(summed(grown(self._selection.select(gap, "_count"), step), ()), step))
        below = (
            self._selection.select(gap, "_bucket", {}).removesuffix("}") + f', le=~"{_le(freeze_after_s)}"}}'
        )
        under = over_time(self._range(summed(grown(below, step), ()), step))
        if not under:  # no such bucket: who froze cannot be told
            return counts, {}
        return counts, {moment: max(0.0, count - under.get(moment, 0.0)) for moment, count in counts.items()}

    def _tokens(self, step: float) -> dict[float, float] | None:
        usage = self._selection.named(metrics.TOKEN_USAGE)
        if usage is None:
            return None
        own = {TOKEN_TYPE: "output"}
        if not usage.native:
            return over_time(
                self._range(summed(grown(self._selection.select(usage, "_sum", own), step), ()), step)
            )
        found = {}
        for series in self._range(
            summed(grown(self._selection.select(usage, own=own), step, native=True), ()), step
        ):
            for moment, histogram in series.histograms:
                found[moment] = histogram.total or 0.0
        return found

    def _busy(self, step: float) -> dict[float, float] | None:
        """Return for how many seconds of each piece any stream was open, as often as it was scraped."""
        active = self._selection.named(metrics.ACTIVE)
        if active is None:
            return None
        every = min(max(1, round(step / SAMPLES)), SCRAPED_S)
        anything = f"({summed(self._selection.select(active), ())} > bool 0)"
        open_ = f"sum_over_time({anything}[{max(1, round(step))}s:{every}s])"
        found = over_time(self._range(open_, step))
        return {moment: min(step, count * every) for moment, count in found.items()}

    def _range(self, expression: str, step: float) -> Sequence[PrometheusSeries]:
        return self._api.over(expression, self._since + step, self._until, step)

    def gaps(self) -> Iterator[str]:
        """Say where in the span of time there are no data."""
        found = self._selection.named(metrics.ENDED)
        if found is None:
            return
        selector = self._selection.select(found)
        since, until = self._since, self._until
        step = _step(until - since)
        begun = self._first(selector, since, until, step)
        if begun is None or begun <= since + 2 * step:
            return
        while step > 1:  # it is within the step before; a long span's is hours
            since, until = begun - step, begun
            step = _step(step)
            begun = self._first(selector, since, until, step) or until
        shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begun))
        yield f"there are data from {shown} on only"

    def _first(self, selector: str, since: float, until: float, step: int) -> float | None:
        """Return the first step, counted back from `until`, before which there are data; None without any.

        Each looks back over a whole step at least, so that nothing that came and went between two is missed.
        """
        looking = f"count(last_over_time({selector}[{max(step, LOOKBACK_S)}s]))"
        begin = until - step * math.floor((until - since) / step)
        return min(over_time(self._api.over(looking, begin, until, step)), default=None)


def _step(seconds: float) -> int:
    return max(1, math.ceil(seconds / SLICES))


def _near(found: Mapping[float, float], moment: float) -> float:
    """Return the value at a moment, which servers round to milliseconds."""
    return next((value for at, value in found.items() if abs(at - moment) < 0.01), 0.0)


def _le(bound: float) -> str:
    """Match one bound, as scrapes and OTLP write it."""
    return f"{bound:.0f}|{bound:.1f}" if bound == int(bound) else f"{bound:g}"
