"""How long answers would be if nothing cut them off, and the limit that follows."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.advice.buckets import Bounds, bounds_for, cut_off_of, needed_of_buckets
from midstream.advice.lengths import lengths_of
from midstream.advice.limit_words import limit_verdict
from midstream.advice.limits import LimitAdvice, Reasoning, Reserved, advise_max_tokens
from midstream.advice.survival import Quantile, Unsupported, curve_of, limit_for, naive_limit, needed
from midstream.sources.fleet import Bucket, Summary
from midstream.stream.model import Outcome, StreamRecord
from support.records import a_record

CUT = Outcome.CANCELLED
LENGTHS = st.lists(st.integers(1, 5000), min_size=1, max_size=60)


def an_answer(tokens: int | None, **fields: Any) -> StreamRecord:
    """The record of an answer of so many tokens that ended by itself."""
    return a_record(output_tokens=tokens, content_chunks=tokens or 1, **fields)


def cut_at(limit: int, **fields: Any) -> StreamRecord:
    """The record of an answer that was cut at its limit."""
    return an_answer(limit, finish_reasons=("length",), token_limit=limit, limit_hit=True, **fields)


def advice_on(records: list[StreamRecord], cut: float = 0.001, **options: Any) -> LimitAdvice:
    """What is advised for the one group of these records."""
    found = advise_max_tokens(records, cut=cut, **options)
    (advice,) = found.groups
    assert found.without_lengths == 0
    return advice


# The estimator


def test_an_answer_that_was_cut_counts_as_longer_than_it_is() -> None:
    """Kaplan and Meier by hand: of six, one is cut at 3 and one at 5."""
    curve = curve_of([1, 2, 4, 6], [3, 5])
    assert curve.lengths == (1, 2, 3, 4, 5, 6)
    assert curve.longer == pytest.approx((5 / 6, 4 / 6, 4 / 6, 4 / 9, 4 / 9, 0.0))


def test_at_the_same_length_an_end_comes_before_a_cut() -> None:
    """An answer that was cut at 3 is longer than one that ended at 3."""
    assert curve_of([3, 9], [3]).longer == pytest.approx((2 / 3, 0.0))


def test_the_band_is_greenwoods_in_log_log() -> None:
    """At half of 100: S ** exp(+- 1.96 * sqrt(1 / 100) / log S), which is 0.3987 to 0.5931."""
    curve = curve_of(range(1, 101), [])
    assert curve.longer[49] == pytest.approx(0.5)
    assert curve.low[49] == pytest.approx(0.39865, abs=1e-5)
    assert curve.high[49] == pytest.approx(0.59308, abs=1e-5)
    assert (curve.low[-1], curve.high[-1]) == (None, None)


def test_a_limit_comes_with_its_interval() -> None:
    """A tenth of 1, ..., 1000 is longer than 900. The exact interval, by Clopper and Pearson, is 881 to 919 as well."""
    assert limit_for(curve_of(range(1, 1001), []), 0.1) == Quantile(0.1, 900, 881, 919, 0.95)


def test_the_plain_quantile_is_too_low_when_answers_were_cut() -> None:
    """Of answers of 1, ..., 1000 tokens every second one is cut at 600, and they say so."""
    exact = [n for n in range(1, 1001) if n % 2 or n <= 600]
    censored = [600] * (1000 - len(exact))
    assert naive_limit([*exact, *censored], 0.1) == 799
    found = limit_for(curve_of(exact, censored), 0.1)
    assert isinstance(found, Quantile)
    assert (found.low, found.limit, found.high) == (875, 899, 925)


def test_200_answers_cannot_support_one_in_a_thousand() -> None:
    """The interval needs some 5,778 answers, so some 5,578 are missing."""
    assert needed(0.001) == 5778
    assert limit_for(curve_of(range(1, 201), []), 0.001) == Unsupported(0.001, 5579, None, 0.0, 199, 0.95)


@pytest.mark.parametrize(("cut", "answers"), [(0.05, 98), (0.01, 538), (0.001, 5778)])
def test_as_many_answers_as_are_needed_suffice_and_one_fewer_does_not(cut: float, answers: int) -> None:
    """What is asked for is enough, and not too much."""
    assert needed(cut) == answers
    assert isinstance(limit_for(curve_of(range(1, answers + 1), []), cut), Quantile)
    assert isinstance(limit_for(curve_of(range(1, answers), []), cut), Unsupported)


def uniform(low: int, high: int, count: int, seed: int = 1) -> list[int]:
    """So many lengths, each between two numbers."""
    drawn = random.Random(seed)
    return [drawn.randint(low, high) for _ in range(count)]


@pytest.mark.parametrize(
    ("lengths", "limit"),
    [
        ([700] * 8000, 700),
        (uniform(1, 500, 8000), 500),
        (uniform(3, 8, 8000), 8),
        ([min(4000, n) for n in uniform(1, 5000, 200_000)], 4000),
        ([1] * 4000, 1),
    ],
    ids=["all equal", "1 to 500", "3 to 8", "a shared maximum of many", "one token"],
)
def test_the_largest_length_is_an_answer_where_several_share_it(lengths: list[int], limit: int) -> None:
    """None was cut there or above, and enough answers reached it: hardly any can be longer."""
    found = limit_for(curve_of(lengths, []), 0.001)
    assert found == Quantile(0.001, limit, found.low or 0, limit, 0.95)


def test_a_shared_largest_length_needs_as_many_answers_as_an_exact_interval_of_none() -> None:
    """1 - 0.025 ** (1 / 3688) is 0.1 %: Clopper and Pearson, of none in 3,688."""
    assert isinstance(limit_for(curve_of([700] * 3688, []), 0.001), Quantile)
    few = limit_for(curve_of([700] * 3687, []), 0.001)
    assert isinstance(few, Unsupported)
    assert (few.more, few.low, few.stops_at) == (1, 700, None)


def test_one_answer_that_was_cut_at_the_largest_length_may_be_longer() -> None:
    """Of 8,000 it is one in 8,000, below one in a thousand; of 40 that were cut above, the lengths are not known."""
    assert isinstance(limit_for(curve_of([700] * 8000, [700]), 0.001), Quantile)
    found = limit_for(curve_of([700] * 8000, [900] * 40), 0.001)
    assert isinstance(found, Unsupported)
    assert (found.stops_at, found.low) == (900, 901)


def test_answers_that_were_cut_below_a_shared_largest_length_make_it_less_sure() -> None:
    """They count for the share that reaches it, and not for the share that would go on."""
    assert isinstance(limit_for(curve_of([700] * 4000, [300] * 4000), 0.001), Quantile)
    assert isinstance(limit_for(curve_of([700] * 3000, [300] * 8000), 0.001), Unsupported)


@given(
    lengths=st.lists(st.integers(1, 12), min_size=2, max_size=40),
    cut=st.sampled_from([0.01, 0.05, 0.2]),
)
def test_no_data_without_cut_answers_are_refused_for_ever(lengths: list[int], cut: float) -> None:
    """As many more of the same as are said to be needed, and a few for rounding, suffice."""
    found = limit_for(curve_of(lengths, []), cut)
    if isinstance(found, Unsupported):
        times = math.ceil(1.3 * (1 + found.more / len(lengths))) + 1
        found = limit_for(curve_of(lengths * times, []), cut)
    assert isinstance(found, Quantile)
    assert found.limit == naive_limit(lengths, cut) or found.limit <= max(lengths)


@given(
    lengths=st.lists(st.integers(1, 9), min_size=40, max_size=400),
    seed=st.integers(0, 2**20),
)
def test_a_limit_that_is_supported_has_an_interval_that_ends_within_the_data(
    lengths: list[int], seed: int
) -> None:
    """Whatever was cut, at whatever length."""
    drawn = random.Random(seed)
    censored = [drawn.choice(lengths) for _ in range(drawn.randrange(5))]
    found = limit_for(curve_of(lengths, censored), 0.05)
    if isinstance(found, Quantile):
        assert min(lengths) <= found.low <= found.limit <= found.high <= max(lengths)


def test_it_says_where_the_data_stop() -> None:
    """One answer in ten was cut at 900: of longer ones nothing is known, however many there are."""
    found = limit_for(curve_of(list(range(1, 901)) * 8, [900] * 800), 0.01)
    assert isinstance(found, Unsupported)
    assert (found.more, found.stops_at, found.low) == (0, 900, 901)
    assert found.still_going == pytest.approx(0.1)


def test_a_share_that_is_met_but_for_rounding_is_met() -> None:
    """Three of ten are longer than 7, which in floats is a little less than 0.1 + 0.2."""
    assert curve_of(range(1, 11), []).longer[6] == pytest.approx(0.3)
    found = limit_for(curve_of(range(1, 11), [20] * 3), 0.1 + 0.2)
    assert isinstance(found, Unsupported)
    assert found.more > 0


def test_if_every_answer_was_cut_nothing_is_known() -> None:
    """There is no end of an answer to estimate from."""
    found = limit_for(curve_of([], [100] * 50), 0.1)
    assert isinstance(found, Unsupported)
    assert (found.stops_at, found.still_going, found.low) == (100, 1.0, None)


def test_beyond_the_data_the_share_is_unknown() -> None:
    """Within them it is what the curve says; a share of 0 is known only if the longest answer ended by itself."""
    curve = curve_of([1, 2, 3], [4])
    assert [curve.at(limit)[0] for limit in (0, 2, 3, 4, 5)] == [1.0, 0.5, 0.25, 0.25, None]
    assert curve_of([1, 2], []).at(99)[0] == 0.0


@given(exact=LENGTHS, censored=st.lists(st.integers(1, 5000), max_size=40))
def test_what_may_be_cut_more_often_needs_no_higher_limit(exact: list[int], censored: list[int]) -> None:
    """The limit, and both ends of its interval, fall as the share rises; the interval holds the limit."""
    curve = curve_of(exact, censored)
    found = [
        each for cut in (0.05, 0.1, 0.2, 0.4, 0.7) if isinstance(each := limit_for(curve, cut), Quantile)
    ]
    for each in found:
        assert each.low <= each.limit <= each.high
    for before, after in pairwise(found):
        assert (after.low, after.limit, after.high) <= (before.low, before.limit, before.high)
        assert after.limit <= before.limit
        assert after.high <= before.high


@given(exact=LENGTHS, censored=st.lists(st.integers(1, 5000), max_size=40), cut=st.floats(0.01, 0.9))
def test_it_is_never_below_the_plain_quantile(exact: list[int], censored: list[int], cut: float) -> None:
    """Whoever takes cut answers as they are finds a limit no higher; without cut answers, the same."""
    found = limit_for(curve_of(exact, censored), cut)
    plain = naive_limit([*exact, *censored], cut)
    if isinstance(found, Quantile):
        assert found.limit >= plain
        if not censored:
            assert found.limit == plain


# What records say


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({}, None),
        ({"finish_reasons": ("tool_calls",)}, None),
        ({"finish_reasons": ("eos_token",)}, None),
        ({"finish_reasons": ("length",)}, "limit"),
        ({"finish_reasons": ("stop",), "limit_hit": True}, "limit"),
        ({"finish_reasons": ("tool_calls",), "limit_hit": True}, "limit"),
        ({"finish_reasons": ("content_filter",)}, "filtered"),
        ({"finish_reasons": ("repetition",)}, "unclear"),
        ({"outcome": Outcome.NO_FINISH, "finish_reasons": ()}, "unclear"),
        ({"outcome": Outcome.LEFT_EARLY, "finish_reasons": ()}, "left"),
        ({"outcome": Outcome.CANCELLED, "finish_reasons": ()}, "left"),
        ({"outcome": Outcome.TIMEOUT, "finish_reasons": ()}, "failed"),
        ({"outcome": Outcome.ERROR, "finish_reasons": ("abort",)}, "failed"),
        ({"usage_complete": False}, "unclear"),
    ],
)
def test_what_cut_an_answer_short(fields: dict[str, Any], cause: str | None) -> None:
    """An answer is as long as it says only if it ended by itself, below its limit, and usage came last."""
    (length,) = lengths_of([an_answer(70, **fields)]).answers
    assert (length.tokens, length.cause) == (70, cause)


def test_records_that_say_nothing_are_left_out_and_counted() -> None:
    """Without usage, of several choices, without an answer, or read a second time."""
    found = lengths_of(
        [
            an_answer(None),
            an_answer(70, finish_reasons=("stop", "stop")),
            an_answer(None, outcome=Outcome.UNREAD, finish_reasons=()),
            an_answer(70, operation="fetch_response"),
            an_answer(70),
        ]
    )
    assert found.exact == [70]
    assert found.censored == []
    assert found.left_out == {"no usage": 1, "several choices": 1, "no answer": 1, "not generated": 1}


def test_those_who_left_count_by_their_chunks_where_a_chunk_is_a_token() -> None:
    """Usage comes at the end, and it is the long answers that people leave."""
    left = a_record(
        outcome=CUT, finish_reasons=(), output_tokens=None, usage_complete=False, content_chunks=900
    )
    found = lengths_of([an_answer(100)] * 20 + [left])
    assert (found.censored, found.by_chunks, found.left_out) == ([900], 1, {})
    rechunked = [a_record(output_tokens=10, content_chunks=40)] * 20
    assert lengths_of([*rechunked, left]).left_out == {"no usage": 1}
    assert lengths_of([an_answer(100)] * 19 + [left]).left_out == {"no usage": 1}


def test_it_counts_what_is_reserved_for_nothing() -> None:
    """Three ask for 1,000 each and use 250, 250 and all of it; a fourth asks for nothing."""
    records = [an_answer(250, token_limit=1000)] * 2 + [cut_at(1000), an_answer(7)]
    advice = advice_on(records)
    assert advice.reserved == Reserved(requests=3, asked=3000, used=1500, without=1)
    assert advice.reserved.unused_share == 0.5


def test_what_todays_limits_cut_is_said() -> None:
    """A quarter of the answers was cut at 100, and nothing is known beyond."""
    advice = advice_on([an_answer(50, token_limit=100)] * 75 + [cut_at(100)] * 25, limits=(60, 200))
    assert [(tried.limit, tried.share, tried.requests_today) for tried in advice.tried] == [
        (60, 0.25, 0),
        (100, 0.25, 100),
        (200, None, 0),
    ]


def test_reasoning_that_uses_up_the_limit_is_counted() -> None:
    """Two of three reasoned; one of them never came to its answer."""
    advice = advice_on([an_answer(80), an_answer(80, reasoning_tokens=60), cut_at(100, reasoning_tokens=100)])
    assert advice.reasoning == Reasoning(answers=2, share=0.875, lengths=(60, 100), never_began=1)
    assert [advice.reasoning.ended_by(limit) for limit in (60, 61, 101)] == [2, 1, 0]


def test_models_and_operations_are_advised_apart() -> None:
    """The one with most answers first; those of which nothing is known are counted."""
    records = (
        [an_answer(5)] * 2
        + [an_answer(9, request_model="big")] * 3
        + [an_answer(None, operation="responses")]
    )
    found = advise_max_tokens(records, cut=0.1)
    assert [(advice.model, advice.operation, advice.curve.answers) for advice in found.groups] == [
        ("big", "chat", 3),
        ("m", "chat", 2),
    ]
    assert found.without_lengths == 1
    (together,) = advise_max_tokens(records, cut=0.1, by_group=False).groups
    assert together.curve.answers == 5


# Verdicts


def lognormal(count: int, seed: int = 1) -> list[int]:
    """Lengths with a median of 400 tokens and a long tail."""
    rng = random.Random(seed)
    return [max(1, round(400 * rng.lognormvariate(0, 0.8))) for _ in range(count)]


def test_the_verdict_names_the_limit_and_what_is_asked_for_in_vain() -> None:
    """A limit far above the answers."""
    records = [an_answer(n, token_limit=16384) for n in range(1, 1001)]
    assert limit_verdict(advice_on(records, cut=0.01)) == (
        "Set max_tokens to 990: it cuts at most 1 % of answers (95 % interval 984 to 996); today's 16,384 asks for "
        "15,394 tokens more, and 97 % of what is asked for is never used."
    )


def test_the_verdict_says_that_a_limit_cuts_real_work() -> None:
    """Most requests have a limit of 500, some a high one that shows what is beyond."""
    rng = random.Random(5)
    records = [
        cut_at(limit) if n > limit else an_answer(n, token_limit=limit)
        for n in lognormal(3000)
        for limit in [rng.choice((500, 500, 16384))]
    ]
    verdict = limit_verdict(advice_on(records, cut=0.05))
    assert verdict.startswith(
        "Set max_tokens to 1,384: it cuts at most 5 % of answers (95 % interval 1,252 to 1,555)"
    )
    assert verdict.endswith("; today's 500 cuts 38 %, which is real work lost.")


def test_the_verdict_says_how_many_answers_are_missing() -> None:
    """And what is known, and what the answers at hand do support."""
    assert limit_verdict(advice_on([an_answer(n) for n in range(1, 201)])) == (
        "Which limit cuts 0.1 % of answers cannot be determined from 200 answers: about 5,600 more are needed (some "
        "5,800 in all if none is cut). What is known: it is 199 or more (95 % interval). The data do support 5 %: 190 "
        "tokens (184 to 196)."
    )


def test_the_verdict_says_to_raise_a_limit_at_which_the_data_stop() -> None:
    """More answers under the same limit would not help."""
    records = [an_answer(n, token_limit=900) for n in range(1, 901)] * 8 + [cut_at(900)] * 800
    assert limit_verdict(advice_on(records, cut=0.01)) == (
        "Which limit cuts 1 % of answers cannot be determined: the data stop at 900 tokens, where 10 % of answers were "
        "still going. Let requests ask for 1,800 for a while and ask again. What is known: it is 901 or more (95 % "
        "interval). "
        "The data do support 20 %: 800 tokens (792 to 809)."
    )


# Histograms


def test_a_histogram_tells_bounds() -> None:
    """Of 10,000 answers 50 are above 1,024: the limit that cuts 1 % lies in the bucket below."""
    buckets = [Bucket(0, 256, 9000), Bucket(256, 1024, 950), Bucket(1024, 4096, 50)]
    assert bounds_for(buckets, 0.01) == Bounds(0.01, 256, 1024, 10000, 0.0, 0, 0.95)


def test_answers_that_were_cut_off_may_have_become_any_length() -> None:
    """80 of the 10,000 were cut, nobody knows in which bucket: the upper bound must hold whatever they are."""
    buckets = [Bucket(0, 256, 9000), Bucket(256, 1024, 950), Bucket(1024, 4096, 50)]
    assert bounds_for(buckets, 0.01, cut_off=80) == Bounds(0.01, 256, 4096, 10000, 0.008, 0, 0.95)
    assert bounds_for(buckets, 0.01, cut_off=200).high is None


def test_a_histogram_of_few_answers_has_no_upper_bound() -> None:
    """With none above a bucket, 3,688 answers it takes to be sure that one in a thousand is."""
    assert needed_of_buckets(0.001) == 3688
    assert bounds_for([Bucket(0, 256, 3688)], 0.001).high == 256
    few = bounds_for([Bucket(0, 256, 3600)], 0.001)
    assert (few.high, few.more) == (None, 88)


def test_the_last_bucket_is_no_bound() -> None:
    """It has no end."""
    assert bounds_for([Bucket(0, 256, 500), Bucket(256, float("inf"), 500)], 0.1).high is None


def test_cumulative_buckets_are_refused() -> None:
    """They would count answers twice."""
    with pytest.raises(
        ValueError, match="the buckets overlap; give counts of each bucket, not cumulative ones"
    ):
        bounds_for([Bucket(0, 256, 5), Bucket(0, 1024, 9)], 0.1)


def test_a_fleet_tells_how_many_answers_ended_early() -> None:
    """All but stops and tool calls; and of those the ones at their limit, which no finish reason tells."""
    ended = {
        ("completed", "stop"): 90.0,
        ("completed", "tool_calls"): 5.0,
        ("completed", "length"): 3.0,
        ("cancelled", "none"): 2.0,
    }
    assert cut_off_of(Summary({}, ended=ended, limit_hits=4.0)) == 6.0
    assert cut_off_of(Summary({}, ended=ended)) == 5.0


@given(
    counts=st.lists(st.integers(0, 500), min_size=2, max_size=8).filter(any),
    cut_off=st.integers(0, 50),
    cut=st.floats(0.01, 0.5),
)
def test_the_bounds_hold_the_quantile_of_the_sample(counts: list[int], cut_off: int, cut: float) -> None:
    """Where none was cut, the bucket in which the sample's own quantile lies is between the bounds."""
    buckets = [Bucket(100 * n, 100 * n + 100, count) for n, count in enumerate(counts)]
    found = bounds_for(buckets, cut, cut_off=cut_off)
    above: float = sum(counts)
    for bucket in buckets:
        above -= bucket.count
        if above <= cut * sum(counts):
            assert found.low <= bucket.low
            assert found.high is None or bucket.high <= found.high
            break
