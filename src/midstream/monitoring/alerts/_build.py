"""From settings to groups of rules: the literals, then what the settings change in single alerts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from midstream.monitoring.alerts._answers import blindness, ends, limits
from midstream.monitoring.alerts._burn import burn_alerts, burn_records
from midstream.monitoring.alerts._engines import engines
from midstream.monitoring.alerts._freezes import freezes
from midstream.monitoring.alerts._model import Alert, Group, Record
from midstream.monitoring.alerts._recorded import recorded
from midstream.monitoring.alerts._silence import silence
from midstream.monitoring.alerts._tuning import ANY, Override, Tuning, TuningError
from midstream.monitoring.alerts.query import Query


def query_of(tuning: Tuning) -> Query:
    """Return what writes queries for these settings."""
    return Query(tuning.naming, tuning.by, selector=tuning.selector, server_selector=tuning.server_selector)


def build(tuning: Tuning, query: Query | None = None) -> tuple[Group, ...]:
    """Return every rule. Raises TuningError for settings that no rule could be right with."""
    q = query or query_of(tuning)
    try:
        groups: dict[str, tuple[Record | Alert, ...]] = {
            "midstream-recorded": recorded(q),
            "midstream-freezes": freezes(q, tuning),
            # In one group and in this order, so that no alert judges the series of one evaluation ago.
            "midstream-objective": (*burn_records(q, tuning), *burn_alerts(q, tuning)),
            "midstream-answers": (*limits(q, tuning), *ends(q, tuning)),
            "midstream-monitor": (*blindness(q, tuning), *silence(q, tuning)),
            "midstream-engines": engines(q, tuning),
        }
    except ValueError as error:
        raise TuningError(str(error)) from None
    names = {rule.name for rules in groups.values() for rule in rules if isinstance(rule, Alert)}
    unknown = set(tuning.alerts) - names - {ANY, "StreamMonitorSilent"}
    if unknown:
        raise TuningError(f"there is no alert {min(unknown)}; there are {', '.join(sorted(names))}")
    built = (
        Group(name, _without_unread_records(_adjusted(rules, tuning), tuning), tuning.interval or None)
        for name, rules in groups.items()
    )
    return tuple(group for group in built if group.rules)


def _without_unread_records(rules: Iterable[Record | Alert], tuning: Tuning) -> tuple[Record | Alert, ...]:
    """Where all alerts but some are off, leave out the recorded series that these do not need."""
    kept = tuple(rules)
    if tuning.alerts.get(ANY, Override()).enabled is not False:
        return kept
    read = "\n".join(rule.expr for rule in kept if isinstance(rule, Alert))
    return tuple(rule for rule in kept if isinstance(rule, Alert) or rule.name in read)


def _adjusted(rules: Iterable[Record | Alert], tuning: Tuning) -> Iterable[Record | Alert]:
    everywhere = tuning.alerts.get(ANY, Override())
    for rule in rules:
        if isinstance(rule, Record):
            yield rule
            continue
        own = tuning.alerts.get(rule.name, Override())
        if next((one for one in (own.enabled, everywhere.enabled) if one is not None), True):
            yield dataclasses.replace(
                rule,
                severity=own.severity or everywhere.severity or rule.severity,
                for_=own.for_ or everywhere.for_ or rule.for_,
                keep_firing_for=own.keep_firing_for or everywhere.keep_firing_for or rule.keep_firing_for,
                labels={**rule.labels, **tuning.labels, **everywhere.labels, **own.labels},
            )


def flattened(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Return the alerts alone, with the expression of each recorded series in place of its name."""
    groups = tuple(groups)
    recorded: Mapping[str, str] = {
        rule.name: rule.expr for group in groups for rule in group.rules if isinstance(rule, Record)
    }
    flat = (
        dataclasses.replace(
            group,
            rules=tuple(
                dataclasses.replace(rule, expr=_inlined(rule.expr, recorded))
                for rule in group.rules
                if isinstance(rule, Alert)
            ),
        )
        for group in groups
    )
    return tuple(group for group in flat if group.rules)


def _inlined(expr: str, recorded: Mapping[str, str]) -> str:
    # Longer names first: one may begin with another.
    for name in sorted(recorded, key=len, reverse=True):
        expr = expr.replace(name, f"({recorded[name]})")
    return expr
