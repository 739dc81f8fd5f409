"""PromQL for what a fleet's streams did in a span of time. Pure: text in, text out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from midstream.sources.select import condition_parts
from midstream.telemetry.instruments import (
    ADDRESS,
    MODEL,
    OPERATION,
    OUTCOME,
    PHASE,
    PORT,
    PROVIDER,
    Metric,
    prometheus_label,
)
from midstream.telemetry.naming import Naming

ATTRIBUTES: Mapping[str, str] = {
    "model": MODEL,
    "server": ADDRESS,
    "port": PORT,
    "operation": OPERATION,
    "provider": PROVIDER,
    "outcome": OUTCOME,
    "phase": PHASE,
}
"""What people call our attributes in a condition."""

ALL_OURS = '{__name__=~"stream[._].+|gen_ai[._]client[._].+"}'


@dataclass(frozen=True, slots=True)
class Named:
    """How a server writes one of our metrics: its name, whether it keeps OTel's dots, whether it has buckets."""

    name: str
    dotted: bool
    native: bool = False

    def label(self, attribute: str) -> str:
        """Return the name of an attribute's label, quoted where PromQL wants it."""
        if self.dotted and "." in attribute:
            return json.dumps(attribute)
        return prometheus_label(attribute)

    def label_of(self, attribute: str) -> str:
        """Return the name of an attribute's label as a result has it."""
        return attribute if self.dotted else prometheus_label(attribute)

    def select(self, part: str = "", matchers: Iterable[str] = ()) -> str:
        """Select the series of a part of it: `_bucket`, `_sum`, `_count`, or all."""
        inside = ", ".join((f"__name__={json.dumps(self.name + part)}", *matchers))
        return f"{{{inside}}}"


def named(metric: Metric, names: frozenset[str]) -> Named | None:
    """Find how the server writes the metric among the names that it has; None if it has no such metric.

    A scrape and the default translation of OTLP give `stream_max_gap_seconds`; the other translations leave the unit
    out, or the dots in. A histogram without `_bucket` is a native one.
    """
    for naming in Naming:
        name, dotted = naming.metric(metric), naming.dotted
        if metric.kind != "histogram" and name in names:
            return Named(name, dotted)
        if metric.kind == "histogram" and f"{name}_bucket" in names:
            return Named(name, dotted)
        if metric.kind == "histogram" and name in names:
            return Named(name, dotted, native=True)
    return None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which series are meant, on a server with these names of metrics: those that meet every condition."""

    names: frozenset[str]
    where: tuple[str, ...]

    def named(self, metric: Metric) -> Named | None:
        """Find how the server writes a metric; None if it has none."""
        return named(metric, self.names)

    def select(self, found: Named, part: str = "", own: Mapping[str, str] | None = None) -> str:
        """Select a metric's series, or a part of them. Raises SelectionError for a condition that is none."""
        fixed = [f'{found.label(name)}="{value}"' for name, value in (own or {}).items()]
        return found.select(part, [*fixed, *matchers(found, self.where)])


def matchers(named_: Named, where: Sequence[str]) -> list[str]:
    """Turn conditions, as a journal takes them, into matchers. Raises SelectionError."""
    found = []
    for text in where:
        name, operator, value = condition_parts(text)
        label = named_.label(ATTRIBUTES.get(name, name))
        found.append(f"{label}{operator}{json.dumps(value, ensure_ascii=False)}")
    return found


def grown(selector: str, seconds: float, *, native: bool = False) -> str:
    """Write how much a counter grew in a window, series by series.

    `increase()` guesses what happened before its first sample and after its last one, and loses the first value of a
    series that was born in the window, which for a short-lived process is all there is. So where a series was never
    reset, it is what it says at the end less what it said at the beginning, or all of it if it was not there.
    """
    window = f"[{_duration(seconds)}]"
    now, then = f"last_over_time({selector}{window})", f"{selector} offset {_duration(seconds)}"
    steady = f"resets({selector}{window}) == 0"
    if native:
        # Prometheus 2 has neither last_over_time() for native histograms, nor can they be subtracted and compared.
        return f"((({selector} unless {then}) and {steady}) or increase({selector}{window}))"
    born = f"(({now} unless {then}) and {steady})"
    return f"({born} or (({now} - {then} >= 0) and {steady}) or increase({selector}{window}))"


def summed(expression: str, by: Iterable[str]) -> str:
    """Write the sum of an expression's series by these labels."""
    return f"sum by ({', '.join(by)}) ({expression})"


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"
