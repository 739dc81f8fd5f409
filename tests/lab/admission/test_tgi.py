"""TGI's rules, before and after 3.1.1, one sentence at a time."""

import pytest

from midstream.lab.admission import AdmissionRefusal, PrefillChunk, Step, Tgi, TgiSettings
from support.driving import endings, preemptions, request, run_out, submit, take, tokens


def tgi(pool: int, *, pass_tokens: int | None = 1024, **flags: object) -> Tgi:
    """Return an engine that can hand out that many tokens; its allocator keeps one more block."""
    block = int(str(flags.get("block_size", 1)))
    settings = TgiSettings(max_batch_total_tokens=pool + block, **flags)  # type: ignore[arg-type]  # checked by effect
    return Tgi(settings, pass_tokens=pass_tokens)


def test_up_to_2_4_all_of_max_tokens_is_reserved() -> None:
    """Prompts of 10 with max_tokens of 41 reserve 50 each: two in a pool of 100, and the third waits."""
    engine = tgi(100, pass_tokens=None)
    submit(engine, *(request(number, 10, max_tokens=41) for number in range(3)))
    (step,) = take(engine, 1)
    assert step.admitted == (0, 1)
    assert (engine.load.used_tokens, engine.load.reserved_tokens) == (20, 100)


def test_since_3_1_1_a_pass_reserves_no_more_than_1024() -> None:
    """A limit of 8,000 reserves prompt and 1,023, so two fit where up to 2.4 none did beside another."""
    new, old = tgi(9000), tgi(9000, pass_tokens=None)
    for engine in (new, old):
        submit(engine, *(request(number, 10, max_tokens=8000) for number in range(3)))
    assert (take(new, 1)[0].admitted, take(old, 1)[0].admitted) == ((0, 1, 2), (0,))


def test_a_reserved_request_is_never_preempted() -> None:
    """It runs to its end, however full the pool is."""
    engine = tgi(100, pass_tokens=None)
    submit(engine, *(request(number, 10, answer=41, max_tokens=41) for number in range(5)))
    steps = run_out(engine)
    assert preemptions(steps) == []
    assert endings(steps) == dict.fromkeys(range(5), "stop")


def test_after_a_pass_an_answer_is_queued_again_at_the_tail() -> None:
    """With passes of 4, request 0 gives way after 4 tokens to one that waits, and then computes all again."""
    engine = tgi(20, pass_tokens=4)
    submit(engine, request(0, 10, answer=6, max_tokens=6), request(1, 10, answer=2, max_tokens=2))
    steps = run_out(engine)
    assert preemptions(steps) == [(0,)]
    assert [step.admitted for step in steps if step.admitted] == [(0,), (1,), (0,)]
    assert [step.prefill for step in steps if step.prefill][2] == (PrefillChunk(0, 0, 14, 13),)
    assert tokens(steps, 0) == 6


def test_without_a_queue_the_next_pass_follows_at_once() -> None:
    """Nobody waits: the stream loses one prefill, and no more."""
    engine = tgi(1000, pass_tokens=4)
    submit(engine, request(0, 10, answer=6, max_tokens=6))
    assert [bool(step.prefill) for step in run_out(engine)] == [True, False, False, False, True, False]


def test_whole_passes_overshoot_the_limit() -> None:
    """A limit of 1,500 is two passes of 1,024: an answer without end gets 2,048 tokens."""
    engine = tgi(9000)
    submit(engine, request(0, 10, answer=None, max_tokens=1500))
    steps = run_out(engine)
    assert (tokens(steps, 0), endings(steps)) == (2048, {0: "length"})


def test_an_answer_that_outgrows_the_input_limit_ends_early() -> None:
    """After two passes prompt and answer are 2,058, above an input limit of 2,000: it ends before its 5,000."""
    engine = tgi(9000, max_input_tokens=2000)
    submit(engine, request(0, 10, answer=None, max_tokens=5000))
    assert tokens(run_out(engine), 0) == 2048


def test_with_chunking_prefill_and_decoding_share_a_pass() -> None:
    """The new prompt gets what the budget of 8 leaves after one decoding token."""
    engine = tgi(1000, max_batch_prefill_tokens=8)
    submit(engine, request(0, 4, max_tokens=50))
    take(engine, 1)
    submit(engine, request(1, 10, max_tokens=50))
    assert take(engine, 2) == [
        Step(prefill=(PrefillChunk(1, 0, 7, 0),), decode=(0,), decode_context=5, emitted=(0,), admitted=(1,)),
        Step(prefill=(PrefillChunk(1, 7, 3, 0),), decode=(0,), decode_context=6, emitted=(0, 1)),
    ]


def test_without_chunking_those_who_run_stand_still_during_a_prefill() -> None:
    """The new prompt has a pass of its own; a pass in which both decode follows."""
    engine = tgi(1000, prefill_chunking=False)
    submit(engine, request(0, 4, max_tokens=50))
    take(engine, 1)
    submit(engine, request(1, 10, max_tokens=50))
    assert take(engine, 2) == [
        Step(prefill=(PrefillChunk(1, 0, 10, 0),), emitted=(1,), admitted=(1,)),
        Step(decode=(0, 1), decode_context=16, emitted=(0, 1)),
    ]


def test_without_chunking_few_do_not_interrupt_many_until_it_is_overdue() -> None:
    """One waiting beside ten is below the ratio of 0.3; after 20 passes it is prefilled all the same."""
    engine = tgi(10_000, prefill_chunking=False)
    submit(engine, *(request(number, 4, max_tokens=50) for number in range(10)))
    take(engine, 1)
    submit(engine, request(10, 4, max_tokens=50))
    admitted = [step.admitted for step in take(engine, 20)]
    assert admitted == [()] * 19 + [(10,)]


def test_memory_is_taken_in_blocks() -> None:
    """Blocks of 16: 10 + 20 - 1 tokens take two."""
    engine = tgi(160, block_size=16)
    submit(engine, request(0, 10, max_tokens=20))
    take(engine, 1)
    assert engine.load.reserved_tokens == 32


def test_what_cannot_be_served_is_refused() -> None:
    """Limits are checked when a request comes, and so is how many are inside."""
    engine = tgi(100, pass_tokens=None, max_concurrent_requests=1)
    assert engine.submit(request(0, 100)) == AdmissionRefusal(422, "the prompt must not exceed 99 tokens")
    assert engine.submit(request(0, 50, max_tokens=51)) == AdmissionRefusal(
        422, "prompt and max_tokens together must not exceed 100 tokens"
    )
    submit(engine, request(0, 50, max_tokens=50))
    assert engine.submit(request(1, 1, max_tokens=1)) == AdmissionRefusal(429, "Model is overloaded")


def test_a_request_is_forgotten_when_its_client_is_gone() -> None:
    """Its reservation is given back."""
    engine = tgi(100)
    submit(engine, request(0, 10, max_tokens=50), request(1, 10, max_tokens=60))
    take(engine, 1)
    assert (engine.abort(0), engine.abort(1), engine.abort(1)) == (True, True, False)
    assert (engine.step(), engine.load.reserved_tokens) == (None, 0)


def test_settings_that_cannot_work_are_refused() -> None:
    """A request could never have the whole pool, one block of which is the allocator's."""
    with pytest.raises(ValueError, match=r"max-total-tokens must fit in .* less one block \(99\), got 100"):
        TgiSettings(max_batch_total_tokens=100, max_total_tokens=100)
