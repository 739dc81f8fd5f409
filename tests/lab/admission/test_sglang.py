"""SGLang's rule, one sentence at a time."""

import pytest

from midstream.lab.admission import AdmissionRefusal, PrefillChunk, Sglang, SglangSettings, Step
from support.driving import endings, preemptions, request, run_out, submit, take, tokens


def sglang(pool: int, **flags: object) -> Sglang:
    """Return an engine with a pool of that many tokens."""
    return Sglang(SglangSettings(max_total_tokens=pool, **flags))  # type: ignore[arg-type]  # checked by what they do


def test_a_candidate_is_charged_its_whole_limit() -> None:
    """In a pool of 100, prompts of 10 with max_tokens of 40 are charged 51 each: one fits, the second does not."""
    engine = sglang(100)
    submit(engine, request(0, 10, max_tokens=40), request(1, 10, max_tokens=40))
    assert engine.step() == Step(prefill=(PrefillChunk(0, 0, 10, 0),), emitted=(0,), admitted=(0,))


def test_a_lower_limit_admits_more() -> None:
    """With max_tokens of 30 the second passes: 10 + 30 + 1 is below the 59 that the first left."""
    engine = sglang(100)
    submit(engine, request(0, 10, max_tokens=30), request(1, 10, max_tokens=30))
    (step,) = take(engine, 1)
    assert step.admitted == (0, 1)


def test_a_limit_is_charged_no_more_than_4096() -> None:
    """A limit of a million counts as 4,096, so two prompts fit where that fits twice."""
    engine = sglang(1_100_000)
    submit(engine, *(request(number, 10, max_tokens=1_000_000) for number in range(2)))
    (step,) = take(engine, 1)
    assert step.admitted == (0, 1)
    small = sglang(8300)
    submit(small, *(request(number, 100, max_tokens=8000) for number in range(2)))
    (step,) = take(small, 1)
    assert step.admitted == (0,)


def test_a_running_answer_reserves_its_rest_times_the_ratio() -> None:
    """A running 10 + 40 leaves 100 - 10 - 0.7 * 39 = 62.7, so that 10 + 51 + 1 fits and 10 + 52 + 1 does not."""
    admitted = []
    for limit in (51, 52):
        engine = sglang(100)
        submit(engine, request(0, 10, max_tokens=40))
        take(engine, 1)
        submit(engine, request(1, 10, max_tokens=limit))
        admitted.append(take(engine, 1)[0].admitted)
    assert admitted == [(1,), ()]


def test_an_answer_without_end_of_its_own_reserves_its_whole_rest() -> None:
    """With ignore_eos the ratio is 1: 100 - 10 - 39 leaves 51, too little for 10 + 40 + 1."""
    engine = sglang(100)
    submit(engine, request(0, 10, answer=None, max_tokens=40))
    take(engine, 1)
    submit(engine, request(1, 10, max_tokens=40))
    assert take(engine, 1)[0].admitted == ()


def test_prefill_comes_before_decoding() -> None:
    """While prompts can be admitted nobody decodes; then all decode together."""
    engine = sglang(1000)
    submit(engine, request(0, 10, max_tokens=20))
    take(engine, 1)
    submit(engine, request(1, 10, max_tokens=20))
    assert take(engine, 2) == [
        Step(prefill=(PrefillChunk(1, 0, 10, 0),), emitted=(1,), admitted=(1,)),
        Step(decode=(0, 1), decode_context=22, emitted=(0, 1)),
    ]


def test_the_ratio_falls_with_every_clean_step_and_is_reset_when_idle() -> None:
    """From 0.7 by 0.602 / 600 a step; an engine with nothing to do starts again."""
    engine = sglang(1000)
    assert engine.new_token_ratio == 0.7
    submit(engine, request(0, 10, answer=100, max_tokens=200))
    take(engine, 61)
    assert engine.new_token_ratio == pytest.approx(0.7 - 60 * 0.602 / 600)
    run_out(engine)
    assert engine.new_token_ratio == 0.7


def test_the_ratio_falls_no_further_than_its_floor() -> None:
    """After 600 clean steps 0.098 is left."""
    engine = sglang(10_000)
    submit(engine, request(0, 10, answer=900, max_tokens=1000))
    take(engine, 800)
    assert engine.new_token_ratio == pytest.approx(0.098)


@pytest.mark.parametrize(("conservativeness", "initial"), [(1.3, 0.91), (0.3, 0.21), (5.0, 1.0)])
def test_conservativeness_scales_the_ratio(conservativeness: float, initial: float) -> None:
    """It starts at 0.7 times that, and never above 1."""
    assert sglang(1000, schedule_conservativeness=conservativeness).new_token_ratio == pytest.approx(initial)


def crowded() -> Sglang:
    """Return an engine in which three answers, of which 2 is the shortest, soon outgrow a pool of 60."""
    engine = sglang(60, schedule_conservativeness=0.01)
    for number in range(3):
        submit(engine, request(number, 10, answer=30, max_tokens=19 + number))
        take(engine, 2)
    return engine


def test_the_shortest_answer_is_retracted_to_the_tail() -> None:
    """When the next step does not fit, the one with the least output goes behind who waits already."""
    engine = crowded()
    submit(engine, request(3, 10, max_tokens=40))
    steps = run_out(engine)
    assert preemptions(steps)[0] == (2,)
    assert [step.admitted for step in steps if step.admitted][:2] == [(3,), (2,)]


def test_of_equal_answers_the_longest_prompt_is_retracted() -> None:
    """Prefilled one after the other, both have as much output; the prompt of 12 goes, though it came first."""
    engine = sglang(30, schedule_conservativeness=0.01)
    for first in (request(0, 12, max_tokens=16), request(1, 4, max_tokens=12)):
        submit(engine, first)
        take(engine, 1)
    assert preemptions(run_out(engine)) == [(0,)]


def test_after_a_retraction_the_ratio_is_what_the_survivors_used() -> None:
    """(output + 20 a survivor) / (their limits + 1), and at most 1; their limits are not clipped."""
    engine = crowded()
    while not (step := take(engine, 1)[0]).preempted:
        pass
    # Survivors 0 and 1 had 14 and 12 tokens, of limits of 19 and 20.
    assert step.preempted == (2,)
    assert engine.new_token_ratio == min(1.0, (14 + 12 + 2 * 20) / (19 + 20 + 1))


def test_a_retracted_request_computes_prompt_and_answer_again() -> None:
    """What it had computed is redone; then its answer goes on to its limit."""
    steps = run_out(crowded())
    (resumed,) = (chunk for step in steps for chunk in step.prefill if chunk.id == 2)
    assert (resumed.start, resumed.tokens - resumed.redone) == (0, 1)
    assert tokens(steps, 2) + 2 == 21


def test_once_memory_is_short_nobody_is_tried_until_the_batch_shrinks() -> None:
    """Request 1 did not fit beside 0; 2, in its place, would, but is not tried until 0 has ended."""
    engine = sglang(100)
    submit(engine, request(0, 10, answer=4, max_tokens=40), request(1, 60, max_tokens=30))
    take(engine, 1)
    engine.abort(1)
    submit(engine, request(2, 1, max_tokens=5))
    assert [step.admitted for step in take(engine, 4)] == [(), (), (), (2,)]


def test_slots_bound_how_many_run() -> None:
    """With two slots the third request waits, though memory is free."""
    engine = sglang(10_000, max_running_requests=2)
    submit(engine, *(request(number, 10, max_tokens=20) for number in range(3)))
    (step,) = take(engine, 1)
    assert step.admitted == (0, 1)


def test_a_long_prompt_is_prefilled_in_chunks_back_to_back() -> None:
    """A prompt of 25 takes three steps of 10, and emits with the last; a short one shares it."""
    engine = sglang(1000, chunked_prefill_size=10)
    submit(engine, request(0, 25, max_tokens=20), request(1, 3, max_tokens=20))
    assert take(engine, 3) == [
        Step(prefill=(PrefillChunk(0, 0, 10, 0),), admitted=(0,)),
        Step(prefill=(PrefillChunk(0, 10, 10, 0),)),
        Step(prefill=(PrefillChunk(0, 20, 5, 0), PrefillChunk(1, 0, 3, 0)), emitted=(0, 1), admitted=(1,)),
    ]


def test_memory_is_taken_in_pages() -> None:
    """A request of 10 tokens holds 16 when a page is 8."""
    engine = sglang(100, page_size=8)
    submit(engine, request(0, 10, max_tokens=20))
    take(engine, 1)
    assert (engine.load.used_tokens, engine.load.reserved_tokens, engine.load.capacity) == (10, 16, 96)


def test_a_full_queue_refuses_new_requests_and_fails_retracted_ones() -> None:
    """A retracted request goes through the same door: in mid-answer it is turned away."""
    engine = sglang(60, schedule_conservativeness=0.01, max_queued_requests=1)
    for number in range(3):
        submit(engine, request(number, 10, answer=30, max_tokens=19 + number))
        take(engine, 2)
    submit(engine, request(3, 10, max_tokens=40))
    assert engine.submit(request(4, 10)) == AdmissionRefusal(503, "the request queue is full")
    assert endings(run_out(engine)) == {0: "length", 1: "length", 2: "error", 3: "length"}


def test_a_prompt_that_leaves_no_room_is_refused() -> None:
    """In a pool of 100 a prompt of 98 could not answer."""
    assert sglang(100).submit(request(0, 98)) == AdmissionRefusal(
        400, "the prompt of 98 tokens leaves no room for an answer"
    )


def test_a_request_is_forgotten_when_its_client_is_gone() -> None:
    """Waiting, half prefilled or running: it emits nothing more, and its memory is free."""
    engine = sglang(1000, chunked_prefill_size=10)
    submit(engine, request(0, 5, max_tokens=20))
    take(engine, 2)
    submit(engine, request(1, 25, max_tokens=20), request(2, 5, max_tokens=20))
    take(engine, 1)
    assert [engine.abort(number) for number in (0, 1, 2, 3)] == [True, True, True, False]
    assert run_out(engine) == []
    assert engine.load.reserved_tokens == 0
