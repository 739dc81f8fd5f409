"""Shares with an interval, and quantiles of few values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from midstream._support.statistics import Share, quantile, share


@given(st.integers(0, 300), st.integers(1, 300), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_interval_of_a_share_is_the_one_that_scipy_gives(
    count: int, more: int, confidence: float
) -> None:
    found = share(count, count + more, confidence)
    low, high = binomtest(count, count + more).proportion_ci(confidence, method="wilson")
    assert found.low == pytest.approx(low, abs=1e-12)
    assert found.high == pytest.approx(high, abs=1e-12)


def test_one_of_ten_may_be_anything_from_two_to_forty_percent() -> None:
    found = share(1, 10)
    assert (found.low, found.high) == pytest.approx((0.0179, 0.4042), abs=1e-4)


def test_a_share_of_nothing_is_not_known() -> None:
    assert share(0, 0) == Share(0, 0, None, None, None)


@pytest.mark.parametrize(("count", "total"), [(-1, 3), (4, 3)])
def test_a_share_beyond_all_is_refused(count: int, total: int) -> None:
    with pytest.raises(ValueError, match="a share is some of all"):
        share(count, total)


@given(st.integers(0, 10_000), st.integers(1, 10_000))
def test_an_interval_holds_the_share_that_was_seen(count: int, more: int) -> None:
    found = share(count, count + more)
    assert found.low is not None
    assert found.value is not None
    assert found.high is not None
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_a_quantile_is_a_value_that_was_seen() -> None:
    values = [4.0, 1.0, 3.0, 2.0]
    assert [quantile(values, q) for q in (0, 0.25, 0.5, 0.75, 0.95, 1)] == [1.0, 1.0, 2.0, 3.0, 4.0, 4.0]


def test_the_p99_of_a_hundred_is_the_second_largest_and_of_fewer_the_largest() -> None:
    assert quantile(range(100), 0.99) == 98
    assert quantile(range(99), 0.99) == 98


def test_rounding_does_not_move_a_rank() -> None:
    assert quantile(range(1, 101), 0.07) == 7


def test_no_values_have_no_quantile() -> None:
    assert quantile([], 0.5) is None


def test_a_quantile_beyond_all_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1, got 99"):
        quantile([1.0], 99)
