"""What a Prometheus-compatible API answered, by the labels that were asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from midstream.sources.fleet import Bucket, Histogram, classic
from midstream.sources.prometheus_api import MOST_BUCKETS, PrometheusSeries, bucket_of

Key: TypeAlias = tuple[str, ...]


def values(series: Iterable[PrometheusSeries], labels: Sequence[str]) -> dict[Key, float]:
    """Return the value of each series by these of its labels."""
    found = {}
    for each in series:
        value = _value(each)
        if value is not None:
            found[_key(each, labels)] = value
    return found


def over_time(series: Iterable[PrometheusSeries]) -> dict[float, float]:
    """Return the sum of all series at each moment."""
    found: dict[float, float] = {}
    for each in series:
        for moment, value in each.values:
            if value is not None:
                found[moment] = found.get(moment, 0.0) + value
    return found


def classic_histograms(
    buckets: Iterable[PrometheusSeries], sums: Mapping[Key, float], labels: Sequence[str]
) -> dict[Key, Histogram]:
    """Return a histogram for each set of labels, of series with `le`, or with VictoriaMetrics' `vmrange`.

    Bounds that are no numbers, and ranges that end before they begin, are left out.
    """
    cumulative: dict[Key, list[tuple[float, float]]] = {}
    ranges: dict[Key, list[Bucket]] = {}
    for each in buckets:
        value = _value(each)
        if value is None:
            continue
        key = _key(each, labels)
        vmrange, le = each.labels.get("vmrange"), each.labels.get("le")
        if vmrange is not None:
            bucket = bucket_of(*vmrange.partition("...")[::2], value)
            if bucket is not None and len(ranges.setdefault(key, [])) < MOST_BUCKETS:
                ranges[key].append(bucket)
        elif (bound := bucket_of(0.0, le, value)) is not None and len(
            cumulative.setdefault(key, [])
        ) < MOST_BUCKETS:
            cumulative[key].append((bound.high, value))
    found = {key: classic(pairs, sums.get(key)) for key, pairs in cumulative.items()}
    for key, spreads in ranges.items():
        found[key] = Histogram(tuple(sorted(spreads)), sums.get(key))
    return found


def native_histograms(series: Iterable[PrometheusSeries], labels: Sequence[str]) -> dict[Key, Histogram]:
    """Return a histogram for each set of labels."""
    return {_key(each, labels): each.histograms[0][1] for each in series if each.histograms}


def _value(series: PrometheusSeries) -> float | None:
    return series.values[0][1] if series.values else None


def _key(series: PrometheusSeries, labels: Sequence[str]) -> Key:
    return tuple(series.labels.get(label, "") for label in labels)
