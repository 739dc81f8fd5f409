"""Adds up the metrics of several workers: counters and histograms by sums, gauges as the kind of each needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample as FamilySample

from midstream.telemetry.instruments import OPEN_GAP, prometheus_name

LARGEST = frozenset({prometheus_name(OPEN_GAP)})
"""Gauges of which the largest counts. All others are added up."""

_TOTALS = frozenset({"counter", "histogram"})
_KINDS = frozenset({*_TOTALS, "gauge", "info", "summary", "unknown"})


PROCESS_LABEL = "service_instance_id"
"""The label of `target_info` that identifies a worker. It is left out, since the page is that of all workers."""


def to_json(families: Iterable[Family], *, totals_only: bool = False) -> list[Any]:
    """Families as JSON values; only those that go on counting after their process has ended, if asked for."""
    return [
        [
            family.name,
            family.documentation,
            family.type,
            [[sample.name, dict(sample.labels), sample.value] for sample in family.samples],
        ]
        for family in families
        if not totals_only or family.type in _TOTALS
    ]


def from_json(content: Any) -> list[Family]:
    """The families again. What is not one is left out."""
    families = []
    for each in content if isinstance(content, list) else ():
        try:
            name, documentation, kind, samples = each
            if kind not in _KINDS:
                continue
            family = Family(name, documentation, kind)
            family.samples = [
                FamilySample(
                    str(sample), {str(label): str(text) for label, text in labels.items()}, float(value)
                )
                for sample, labels, value in samples
            ]
        except (TypeError, ValueError, AttributeError):
            continue
        families.append(family)
    return families


def merged(workers: Iterable[Iterable[Family]]) -> list[Family]:
    """One family for each name, and one sample for each set of labels, over all workers."""
    families: dict[str, Family] = {}
    values: dict[str, dict[tuple[str, frozenset[tuple[str, str]]], tuple[FamilySample, float]]] = {}
    for worker in workers:
        for family in worker:
            known = families.get(family.name)
            if known is None:
                known = families[family.name] = Family(family.name, family.documentation, family.type)
                values[family.name] = {}
            if known.type != family.type:
                continue  # workers of two versions of a program: the first that was read counts
            combine = _rule(family)
            samples = values[family.name]
            for sample in family.samples:
                if PROCESS_LABEL in sample.labels:
                    kept = {name: value for name, value in sample.labels.items() if name != PROCESS_LABEL}
                    sample = sample._replace(labels=kept)  # noqa: PLW2901 - the same without that label
                key = (sample.name, frozenset(sample.labels.items()))
                before = samples.get(key)
                value = sample.value if before is None else combine(before[1], sample.value)
                samples[key] = (sample, value)
    for name, family in families.items():
        family.samples = [sample._replace(value=value) for sample, value in values[name].values()]
    return list(families.values())


def _rule(family: Family) -> Callable[[float, float], float]:
    return max if family.type == "info" or family.name in LARGEST else _added


def _added(one: float, other: float) -> float:
    return other if math.isnan(one) else one if math.isnan(other) else one + other
