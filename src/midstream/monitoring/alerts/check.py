"""Which rules have data on a server, and why the others have none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from midstream.engines import ENGINES
from midstream.monitoring.alerts._build import build, flattened, query_of
from midstream.monitoring.alerts._tuning import Tuning
from midstream.monitoring.alerts.query import OVERFLOW, Query, Selected
from midstream.telemetry.naming import Naming

Ask: TypeAlias = Callable[[str], int]
"""Evaluates an expression on the server and returns how many series it has."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One alert on one server. No reasons: everything it reads is there."""

    alert: str
    reasons: tuple[str, ...]
    engine: str | None
    """The engine whose metrics it needs. A server without that engine is not at fault."""
    variant: str = ""
    """What distinguishes alerts of one name: their labels, as in `long=1h, short=5m`."""

    @property
    def title(self) -> str:
        """The alert's name, with its variant if there are several of this name."""
        return f"{self.alert} ({self.variant})" if self.variant else self.alert


def check(tuning: Tuning, ask: Ask) -> tuple[Finding, ...]:
    """Ask a server for every series that every rule reads."""
    query = query_of(tuning)
    groups = flattened(build(tuning, query))
    asker = _Asker(query, ask)
    found: dict[tuple[str, str], Finding] = {}
    for group in groups:
        for alert in group.rules:
            own = {
                name: value
                for name, value in getattr(alert, "labels", {}).items()
                if name not in tuning.labels
            }
            variant = ", ".join(f"{name}={value}" for name, value in own.items())
            reasons = tuple(dict.fromkeys(asker.reasons(alert.expr)))
            found[alert.name, variant] = Finding(alert.name, reasons, getattr(alert, "engine", None), variant)
    return tuple(found.values())


class _Asker:
    def __init__(self, query: Query, ask: Ask) -> None:
        self._query = query
        self._ask = ask
        self._known: dict[str, int] = {}

    def reasons(self, expr: str) -> Iterator[str]:
        for guard in self._query.guards:
            expr = expr.replace(guard, "")
        for text, selected in self._query.selected.items():
            # A name alone is also the beginning of a name with matchers.
            if re.search(rf"{re.escape(text)}(?![\w{{:])", expr) and not self._there(text):
                reason = self._reason(text, selected)
                if reason:
                    yield reason

    def _there(self, selector: str) -> bool:
        selector = _of_any_phase(selector, self._query.not_reasoning)  # all gaps so far may be in reasoning
        if selector not in self._known:
            self._known[selector] = self._ask(f"count({selector})")
        return self._known[selector] > 0

    def _reason(self, text: str, selected: Selected) -> str | None:
        name, metric = selected.name, selected.metric
        if self._named(name):
            if self._query.naming.label(OVERFLOW) in text:
                return None  # and may it stay so
            if "le=" in text:
                return (
                    f"{name} has no bucket "
                    f"{text[text.index('le=') :].rstrip('}')}: a View of the application changed them"
                )
            return f"{name} is there, but nothing matches {text.removeprefix(name)}"
        if metric is None:
            return self._of_engine(selected)
        if selected.part and self._named(name.removesuffix(selected.part)):
            return (
                f"{name.removesuffix(selected.part)} is stored as a native histogram; these rules need "
                f"classic buckets"
            )
        for naming in Naming:
            other = naming.metric(metric) + selected.part
            if other != name and self._named(other):
                return f"this server calls it {other}: render with --naming {naming.value}"
        when = "the first stream ends" if metric.kind == "histogram" else "the first stream opens"
        return f"no series {name}: it appears when {when}; is an application with midstream scraped?"

    def _of_engine(self, selected: Selected) -> str | None:
        facts, name = ENGINES[selected.engine], selected.name
        series = facts.series
        if series is None or not any(
            self._named(one) for own in series.names for one in facts.spellings(own)
        ):
            return f"no metrics of {facts.title}: scrape its /metrics if you run it"
        if series.kind == "late counter" and name == series.preemptions:
            return None
        return f"no series {name}, though others of {facts.title} are there: its version names it otherwise"

    def _named(self, name: str) -> bool:
        return self._there(f'{{__name__="{name}"}}')


def _of_any_phase(selector: str, matcher: str) -> str:
    return selector.replace(f"{matcher}, ", "").replace(f", {matcher}", "").replace(f"{{{matcher}}}", "")
