"""How numbers are written: one format for each, everywhere."""

from __future__ import annotations

import re
from datetime import timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._support.numbers import (
    bounds,
    byte_size,
    counted,
    few_or_percent,
    interval,
    moment,
    per_cent,
    percent,
    plural,
    points,
    rounded_up,
    seconds,
    zone_name,
)
from midstream._support.statistics import share


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0 %"),
        (1e-7, "below 0.001 %"),
        (0.0005, "0.05 %"),
        (0.001, "0.1 %"),
        (0.00123, "0.12 %"),
        (0.05, "5 %"),
        (0.0521, "5.2 %"),
        (0.0994, "9.9 %"),
        (0.0996, "10 %"),
        (0.123, "12 %"),
        (0.998, "99.8 %"),
        (0.99999, "99.9 %"),
        (1, "100 %"),
    ],
)
def test_a_share_is_written_with_the_digits_it_has(value: float | None, text: str) -> None:
    """Neither 0 % for what is not nothing, nor 100 % for what is not all, nor 12.3 % for what is not that sure."""
    assert percent(value) == text


@given(st.floats(0, 1))
def test_a_percentage_never_shows_an_exponent_nor_more_than_three_digits(value: float) -> None:
    assert re.fullmatch(r"(below )?\d{1,3}(\.\d{1,4})?", per_cent(value))


def test_the_difference_of_shares_has_a_sign() -> None:
    assert [points(each) for each in (0.052, -0.43, 0.0)] == ["+5.2", "-43", "0"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (0.051, "0.05 s"),
        (12.34, "12.3 s"),
        (599.9, "599.9 s"),
        (660, "11 min"),
        (7980, "2.2 h"),
    ],
)
def test_a_duration_is_written_with_the_unit_that_suits_it(value: float | None, text: str) -> None:
    """133 minutes are 2.2 hours, wherever they are shown."""
    assert seconds(value) == text


def test_an_amount_of_memory_is_written_with_the_unit_that_suits_it() -> None:
    assert [byte_size(each) for each in (15_360, 147_456, 12 * 2**30, 999, 5_922_000_000)] == [
        "15 KiB",
        "144 KiB",
        "12 GiB",
        "999 bytes",
        "5,648 MiB",
    ]


def test_a_share_of_few_is_counted_and_one_of_many_is_a_percentage() -> None:
    """With the interval beside it, where there is room."""
    few, many = share(3, 20), share(16, 62)
    assert (counted(few), few_or_percent(few), interval(few)) == ("3 of 20", "3 of 20", "5.2 to 36 %")
    assert (few_or_percent(many), bounds(many), interval(many)) == ("26 %", "17 to 38 %", "26 % (17 to 38 %)")
    assert (counted(share(0, 0)), bounds(share(0, 0))) == ("-", "-")


def test_an_estimate_is_rounded_up_to_two_digits() -> None:
    assert [rounded_up(each) for each in (7, 99, 101, 5579, 5501.2)] == [7, 99, 110, 5600, 5600]


def test_things_are_counted_in_one_or_many() -> None:
    assert [plural(1, "stream"), plural(1200, "stream"), plural(2, "reply", "replies")] == [
        "1 stream",
        "1,200 streams",
        "2 replies",
    ]


def test_a_time_names_its_zone() -> None:
    zone = timezone(timedelta(hours=1))
    assert (moment(0.0, zone), zone_name(0.0, zone)) == ("1970-01-01 01:00:00", "UTC+01:00")
    assert zone_name(0.0, timezone.utc) == "UTC"
