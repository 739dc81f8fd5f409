"""What a Prometheus-compatible API answered, as numbers and histograms. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from midstream.sources._prometheus_api import Series
from midstream.sources.fleet import Bucket, Histogram, classic

Key: TypeAlias = tuple[str, ...]


def number(text: object) -> float | None:
    """Return a sample's value; None for what is no number, NaN included."""
    try:
        value = float(str(text))
    except ValueError:
        return None
    return None if math.isnan(value) else value


def values(series: Iterable[Series], labels: Sequence[str]) -> dict[Key, float]:
    """Return the value of each series by these of its labels."""
    found = {}
    for each in series:
        value = number((each.get("value") or (None, None))[1])
        if value is not None:
            found[_key(each, labels)] = value
    return found


def over_time(series: Iterable[Series]) -> dict[float, float]:
    """Return the sum of all series at each moment."""
    found: dict[float, float] = {}
    for each in series:
        for moment, text in each.get("values") or ():
            value = number(text)
            if value is not None:
                found[float(moment)] = found.get(float(moment), 0.0) + value
    return found


def classic_histograms(
    buckets: Iterable[Series], sums: Mapping[Key, float], labels: Sequence[str]
) -> dict[Key, Histogram]:
    """Return a histogram for each set of labels, of series with `le`, or with VictoriaMetrics' `vmrange`."""
    cumulative: dict[Key, list[tuple[float, float]]] = {}
    ranges: dict[Key, list[Bucket]] = {}
    for each in buckets:
        value = number((each.get("value") or (None, None))[1])
        le, spread = each["metric"].get("le"), each["metric"].get("vmrange")
        if value is None:
            continue
        key = _key(each, labels)
        if spread:
            low, high = (number(end) for end in spread.partition("...")[::2])
            if low is not None and high is not None:
                ranges.setdefault(key, []).append(Bucket(low, high, value))
        elif (bound := number(le)) is not None:
            cumulative.setdefault(key, []).append((bound, value))
    found = {key: classic(pairs, sums.get(key)) for key, pairs in cumulative.items()}
    for key, spreads in ranges.items():
        found[key] = Histogram(tuple(sorted(spreads)), sums.get(key))
    return found


def native_histograms(series: Iterable[Series], labels: Sequence[str]) -> dict[Key, Histogram]:
    """Return a histogram for each set of labels, in the form that the API documents for native ones.

    `histogram` is `[time, {"count", "sum", "buckets": [[rule, low, high, count], ...]}]`; the rule says which end
    belongs to the bucket, which no duration's precision can tell.
    """
    found = {}
    for each in series:
        histogram = (each.get("histogram") or (None, None))[1]
        if isinstance(histogram, Mapping):
            found[_key(each, labels)] = native(histogram)
    return found


def native(histogram: Mapping[str, Any]) -> Histogram:
    """Return one native histogram."""
    buckets = []
    told = histogram.get("buckets")
    for bucket in told if isinstance(told, list) else ():
        if not isinstance(bucket, list) or len(bucket) != 4:
            continue
        low, high, value = map(number, bucket[1:])
        if value and low is not None and high is not None:
            # The bucket of zero reaches below it; what is counted here never does.
            buckets.append(Bucket(max(0.0, low), high, value))
    return Histogram(tuple(sorted(buckets)), number(histogram.get("sum")))


def _key(series: Series, labels: Sequence[str]) -> Key:
    return tuple(str(series["metric"].get(label, "")) for label in labels)
