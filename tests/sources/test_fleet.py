"""Histograms and counts of a fleet: quantiles, shares, sums, and what is not known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.sources._prometheus_answer import classic_histograms, native_histograms
from midstream.sources._prometheus_query import grown
from midstream.sources.fleet import Bucket, Fleet, Histogram, Summary, classic
from midstream.sources.prometheus_api import native_of, series_of

GAPS = classic([(1.0, 50), (5.0, 90), (10.0, 98), (math.inf, 100)], 300.0)


def test_quantiles_lie_in_their_bucket() -> None:
    """As even as they can be; beyond the last bound there is no telling."""
    assert (GAPS.count, GAPS.mean) == (100, 3.0)
    assert GAPS.quantile(0.5) == 1.0
    assert GAPS.quantile(0.7) == pytest.approx(3.0)
    assert GAPS.quantile(0.94) == pytest.approx(7.5)
    assert GAPS.quantile(0.99) == 10.0
    assert GAPS.bucket_of(0.99) == Bucket(10.0, math.inf, 2)
    assert Histogram(()).quantile(0.5) is None
    assert Histogram(()).mean is None


def test_a_share_is_sharp_at_a_bound_and_lies_between_two_values_elsewhere() -> None:
    """What is in the bucket around the threshold may be on either side of it."""
    assert GAPS.share_above(5.0) == (0.1, 0.1)
    assert GAPS.share_above(7.0) == pytest.approx((0.02, 0.1))
    assert GAPS.above(0.0) == (100, 100)
    assert Histogram(()).share_above(5.0) is None


def test_buckets_that_shrink_by_rounding_count_nothing() -> None:
    """Each bucket's growth is told by itself."""
    assert classic([(1.0, 5.0), (2.0, 4.9), (math.inf, 6.0)]).buckets == (
        Bucket(0.0, 1.0, 5.0),
        Bucket(1.0, 2.0, 0.0),
        Bucket(2.0, math.inf, 1.0),
    )


def test_the_documented_form_of_a_native_histogram_is_read() -> None:
    """Strings all over, a bucket of zero that reaches below it, and empty ones."""
    found = native_of(
        {
            "count": "6",
            "sum": "18.4",
            "buckets": [[3, "-0.001", "0.001", "1"], [0, "0.5", "1", "0"], [0, "4", "8", "5"]],
        }
    )

    assert found == Histogram((Bucket(0.0, 0.001, 1.0), Bucket(4.0, 8.0, 5.0)), 18.4)
    series = [
        {"metric": {"m": "x"}, "histogram": [1.0, {"count": "0", "sum": "NaN"}]},
        {"metric": {}, "value": [1, "2"]},
    ]
    assert native_histograms(map(series_of, series), ["m"]) == {("x",): Histogram((), None)}


def test_the_ranges_of_victoriametrics_are_buckets() -> None:
    """It stores exponential histograms so."""
    series = [
        {"metric": {"vmrange": "4.084e+00...4.642e+00"}, "value": [1, "3"]},
        {"metric": {"vmrange": "1.000e+00...1.136e+00"}, "value": [1, "2"]},
    ]

    assert classic_histograms(map(series_of, series), {(): 15.0}, []) == {
        (): Histogram((Bucket(1.0, 1.136, 2.0), Bucket(4.084, 4.642, 3.0)), 15.0)
    }


def test_growth_is_exact_where_a_series_was_never_reset() -> None:
    """And increase() is for the others."""
    assert grown("x", 60) == (
        "(((last_over_time(x[60000ms]) unless x offset 60000ms) and resets(x[60000ms]) == 0) "
        "or ((last_over_time(x[60000ms]) - x offset 60000ms >= 0) and resets(x[60000ms]) == 0) "
        "or increase(x[60000ms]))"
    )


def test_what_one_summary_does_not_know_the_other_one_tells() -> None:
    """What neither knows stays unknown."""
    one = Summary({"m": "a"}, ended={("completed", "stop"): 3}, freezes=1.0, max_gap=GAPS)
    other = Summary(
        {"m": "b"}, ended={("completed", "stop"): 1, ("error", "none"): 2}, freezes=None, max_gap=GAPS
    )
    total = Fleet(0, 1, (one, other)).total

    assert total.ended == {("completed", "stop"): 4, ("error", "none"): 2}
    assert total.outcomes() == {"completed": 4, "error": 2}
    assert (total.streams, total.freezes, total.limit_hits) == (6, 1.0, None)
    assert total.max_gap is not None
    assert (total.max_gap.count, total.max_gap.total) == (200, 600.0)
    assert Fleet(0, 1, ()).total.streams is None


bounds = st.lists(st.floats(0.01, 500), min_size=1, max_size=8, unique=True)


@given(bounds, bounds, st.data())
def test_sums_lose_no_sample_and_stay_in_order(
    one: list[float], other: list[float], data: st.DataObject
) -> None:
    """Whatever the bounds of both."""

    def histogram(ends: list[float]) -> Histogram:
        reached, pairs = 0.0, []
        for end in [*sorted(ends), math.inf]:
            reached += data.draw(st.integers(0, 50))
            pairs.append((end, reached))
        return classic(pairs, 1.0)

    first, second = histogram(one), histogram(other)
    total = first + second

    assert total.count == pytest.approx(first.count + second.count)
    assert all(a.high <= b.low for a, b in zip(total.buckets, total.buckets[1:], strict=False))
    for bound in set(one) & set(other):
        assert sum(total.above(bound)) == pytest.approx(sum(first.above(bound)) + sum(second.above(bound)))
    quantiles = [total.quantile(q) for q in (0.1, 0.5, 0.9, 0.99)]
    if total.count:
        assert quantiles == sorted(q for q in quantiles if q is not None)
