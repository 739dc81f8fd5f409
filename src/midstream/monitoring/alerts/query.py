"""PromQL about our metrics: how they are called on a server, and the few shapes that rules and panels share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from midstream.engines import EngineFacts
from midstream.telemetry.instruments import (
    ACTIVE,
    ADDRESS,
    MODEL,
    PHASE,
    PORT,
    Metric,
    prometheus_label,
)
from midstream.telemetry.naming import Naming

OVERFLOW = "otel.metric.overflow"
"""The attribute of what the SDK no longer keeps apart."""
SHORT: Mapping[str, str] = {MODEL: "model", ADDRESS: "server", PORT: "port"}
"""What people call an attribute: in texts, and in the level of a recorded name."""


_LEGACY = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def quoted(name: str) -> str:
    """Write a label as PromQL wants it: a dot needs quotes."""
    return name if _LEGACY.fullmatch(name) else f'"{name}"'


@dataclass(frozen=True, slots=True)
class Selected:
    """A selector that was written: the series' name, and the metric of ours that it is `part` of."""

    name: str
    metric: Metric | None = None
    part: str = ""
    engine: str = ""
    """The key of the engine whose series it is; empty: ours."""


class Query:
    """Writes selectors and shapes for one server's naming, restricted to what `selector` matches.

    `selected` remembers every selector by its text, so that a check can ask which of them find anything; `guards` those
    parts of expressions that only silence a rule, and need no data.
    """

    def __init__(
        self, naming: Naming, by: tuple[str, ...], *, selector: str = "", server_selector: str = ""
    ) -> None:
        self.naming = naming
        self.labels = tuple(naming.label(attribute) for attribute in by)
        self.by = ", ".join(map(quoted, self.labels))
        self.level = "_".join(
            SHORT.get(attribute, prometheus_label(attribute)) for attribute in by if attribute != PORT
        )
        self.who = who(by, naming)
        self.selected: dict[str, Selected] = {}
        self.guards: set[str] = set()
        self._selector = selector
        self._server_selector = server_selector

    def __call__(self, metric: Metric, matchers: str = "", *, part: str = "") -> str:
        """Select a metric's series, `part` of them for a histogram."""
        selected = Selected(self.naming.metric(metric) + part, metric, part)
        return self._select(selected, self._selector, matchers)

    def engine(self, facts: EngineFacts, name: str, matchers: str = "") -> str:
        """Select a series of an engine, under every name that frameworks export it by."""
        names = facts.spellings(name)
        if len(names) == 1:
            return self._select(Selected(name, engine=facts.key), self._server_selector, matchers)
        any_name = f'__name__=~"{"|".join(names)}"'
        inside = ", ".join(matcher for matcher in (any_name, self._server_selector, matchers) if matcher)
        text = f"{{{inside}}}"
        self.selected[text] = Selected(name, engine=facts.key)
        return text

    def match(self, attribute: str, value: str, operator: str = "=") -> str:
        """Write a matcher for an attribute."""
        return f'{quoted(self.naming.label(attribute))}{operator}"{value}"'

    @property
    def not_reasoning(self) -> str:
        """Match the gaps of all phases but reasoning, and those of versions that did not tell phases apart."""
        return self.match(PHASE, "reasoning", "!=")

    def count(self, metric: Metric, window: str, matchers: str = "") -> str:
        """Write how many streams a histogram took in, or a counter counted."""
        part = "_count" if metric.kind == "histogram" else ""
        return f"sum by ({self.by}) (increase({self(metric, matchers, part=part)}[{window}]))"

    def over(self, metric: Metric, bound: float, window: str, matchers: str = "") -> str:
        """Write the share of samples past a bound. No samples: no result, and never NaN."""
        below = self(metric, ", ".join(filter(None, (matchers, le(metric, bound)))), part="_bucket")
        return (
            f"1 - sum by ({self.by}) (rate({below}[{window}]))\n"
            f"/ (sum by ({self.by}) (rate({self(metric, matchers, part='_count')}[{window}])) > 0)"
        )

    def quantile(self, share: float, metric: Metric, window: str, matchers: str = "") -> str:
        """Write a quantile; exact where it comes to lie on a bound."""
        rate = f"rate({self(metric, matchers, part='_bucket')}[{window}])"
        return f"histogram_quantile({share:g}, sum by ({self.by}, le) ({rate}))"

    def share(self, part: str, whole: str, window: str) -> str:
        """Write what share of one counter another is, both given as selectors."""
        return f"sum by ({self.by}) (rate({part}[{window}]))\n/ (sum by ({self.by}) (rate({whole}[{window}])) > 0)"

    def with_traffic(self, expr: str, metric: Metric, window: str, *, present: Metric | None = None) -> str:
        """Restrict an expression to what has traffic: a sample of `metric` in `window`, or a stream that is open.

        It ends with the series of `present` (by default `metric`), so that it does not outlive a stopped target. Where
        the window holds too few scrapes to decide, the expression is not restricted.
        """
        counted = self(metric, part="_count" if metric.kind == "histogram" else "")
        there = present or metric
        series = self(there, part="_count" if there.kind == "histogram" else "")
        still = f"sum by ({self.by}) (increase({counted}[{window}])) == 0"
        quiet = f"{still} unless sum by ({self.by}) ({self(ACTIVE)}) > 0"
        guard = self.guard(f"and count by ({self.by}) ({series})\nunless ({quiet})")
        condition, also, last = expr.rpartition("\nand ")
        return f"{condition}\n{guard}{also}{last}" if also else f"{expr}\n{guard}"

    def guard(self, text: str) -> str:
        """Note a part of an expression that only silences it, so that what it reads need not be there; return it."""
        self.guards.add(text)
        return text

    def _select(self, selected: Selected, *matchers: str) -> str:
        name = selected.name
        inside = ", ".join(matcher for matcher in matchers if matcher)
        if _LEGACY.fullmatch(name):
            text = f"{name}{{{inside}}}" if inside else name
        else:
            text = f'{{"{name}", {inside}}}' if inside else f'{{"{name}"}}'
        self.selected[text] = selected
        return text


def who(by: tuple[str, ...], naming: Naming) -> str:
    """Write whom an alert is about, as a template: `job app, model m, server gpu-1, port 8000`."""
    return ", ".join(f"{SHORT.get(one, one)} {{{{ {label_value(naming.label(one))} }}}}" for one in by)


def label_value(label: str) -> str:
    """Write a label's value for a template."""
    return f"$labels.{label}" if _LEGACY.fullmatch(label) else f'index $labels "{label}"'


def le(metric: Metric, bound: float) -> str:
    """Match one bucket. Raises ValueError where there is none: such a rule could never be right.

    A scrape by Prometheus 3 writes 10.0, one by Prometheus 2 what is on the page, and OTLP writes 10.
    """
    if bound not in (metric.buckets or ()):
        known = ", ".join(f"{each:g}" for each in metric.buckets or ())
        raise ValueError(f"{bound:g} is not a bucket of {metric.name}; choose one of {known}")
    if bound == int(bound):
        return f'le=~"{bound:.0f}|{bound:.1f}"'
    return f'le="{bound:g}"'
