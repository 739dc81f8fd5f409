"""Clients: when they ask, and for how much."""

import random
import statistics
from itertools import pairwise

import pytest

from midstream.lab.admission import Request
from midstream.lab.workload import (
    Workload,
    WorkloadCall,
    burst,
    closed_loop,
    fixed,
    lognormal,
    lognormal_by,
    open_loop,
    pairs,
    poisson,
    resampled,
    sampled,
)


def test_the_same_seed_draws_the_same_lengths_and_times() -> None:
    """Golden values: a change here changes every published figure."""
    assert pairs(7, 4, fixed(200), lognormal(6.0, 1.0)) == [(200, 153), (200, 953), (200, 594), (200, 599)]
    assert [round(at, 6) for at in poisson(7, 3, 2.0)] == [0.34853, 1.592981, 1.717899]


def test_different_seeds_draw_different_lengths_and_times() -> None:
    """Otherwise nine seeds would be one."""
    assert pairs(1, 5, fixed(1), lognormal(6.0, 1.0)) != pairs(2, 5, fixed(1), lognormal(6.0, 1.0))
    assert poisson(1, 5, 1.0) != poisson(2, 5, 1.0)


def test_lengths_and_times_do_not_share_their_chance() -> None:
    """Other lengths leave the arrivals of a seed alone, so that runs can be compared call by call."""
    times = poisson(3, 50, 1.0)
    few, many = (pairs(3, count, fixed(1), lognormal(6.0, 1.0)) for count in (10, 50))
    assert few == many[:10]
    assert times == poisson(3, 50, 1.0)


def test_random_calls_come_at_their_rate() -> None:
    """Ten thousand calls at four a second take about 2,500 seconds, with gaps as long as their deviation."""
    times = poisson(0, 10_000, 4.0)
    gaps = [after - before for before, after in pairwise(times)]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(2500, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.25, rel=0.05)


def test_lognormal_lengths_have_the_mean_and_p95_that_were_asked_for() -> None:
    """Of 100,000 lengths both are within two percent."""
    rng = random.Random(1)
    draw = lognormal_by(mean=1000, p95=3000)
    lengths = sorted(draw(rng) for _ in range(100_000))
    assert statistics.mean(lengths) == pytest.approx(1000, rel=0.02)
    assert lengths[95_000] == pytest.approx(3000, rel=0.02)


def test_no_lognormal_has_a_p95_of_four_times_its_mean() -> None:
    """The most is 3.87 times; the sentence says so, and what to do."""
    with pytest.raises(
        ValueError, match=r"no lognormal distribution has a p95 above 3\.87 times its mean, got 4\.00"
    ):
        lognormal_by(mean=1000, p95=4000)
    with pytest.raises(ValueError, match="p95 must exceed the mean, got a mean of 3 and a p95 of 2"):
        lognormal_by(mean=3, p95=2)


def test_lengths_are_at_least_one_and_at_most_the_cut() -> None:
    """A very wide distribution cut at 50 stays within 1 and 50."""
    rng = random.Random(1)
    draw = lognormal(0.0, 5.0, most=50)
    lengths = {draw(rng) for _ in range(1000)}
    assert (min(lengths), max(lengths)) == (1, 50)


def test_lengths_are_drawn_from_those_that_were_seen() -> None:
    """Drawn apart or as pairs, nothing appears that was not there; pairs stay together."""
    rng = random.Random(1)
    assert {sampled([5, 7])(rng) for _ in range(50)} == {5, 7}
    assert set(resampled(1, 50, iter([(10, 1), (20, 2)]))) == {(10, 1), (20, 2)}
    for draw in (lambda: sampled([]), lambda: resampled(1, 1, [])):
        with pytest.raises(ValueError, match="there are no lengths to draw from"):
            draw()


def test_an_open_loop_calls_at_its_times() -> None:
    """A burst staggered by 50 ms, a trace in any order: each call has its time, lengths and limit."""
    assert open_loop(burst(2, stagger_s=0.05), [(49, 700), (49, 700)], max_tokens=700).calls == (
        WorkloadCall(Request(0, 49, 700, 700), 0.0),
        WorkloadCall(Request(1, 49, 700, 700), 0.05),
    )
    assert [call.at_s for call in open_loop([3.0, 1.0], [(1, 1), (2, 2)]).calls] == [1.0, 3.0]


def test_a_closed_loop_has_its_users_and_their_pauses() -> None:
    """Without thinking every pause is 0; with it, pauses average what was asked for."""
    assert closed_loop(2, [(1, 1)] * 3) == Workload(
        tuple(WorkloadCall(Request(n, 1, 1), 0.0) for n in range(3)), 2
    )
    pauses = [call.at_s for call in closed_loop(2, [(1, 1)] * 5000, think_s=2.0, seed=1).calls]
    assert statistics.mean(pauses) == pytest.approx(2.0, rel=0.05)


def test_what_no_driver_could_play_is_refused() -> None:
    """No users, times that go backwards, no rate, and answers of nothing."""
    with pytest.raises(ValueError, match="users must be at least 1, got 0; leave it out for an open loop"):
        Workload((), 0)
    with pytest.raises(ValueError, match="calls must be in the order of their times"):
        Workload((WorkloadCall(Request(0, 1, 1), 2.0), WorkloadCall(Request(1, 1, 1), 1.0)))
    with pytest.raises(ValueError, match="the rate must be above 0 calls a second, got 0"):
        poisson(1, 1, 0)
    with pytest.raises(
        ValueError, match="answer_tokens must be at least 1, got 0; leave it out for no limit"
    ):
        Request(0, 1, 0)
