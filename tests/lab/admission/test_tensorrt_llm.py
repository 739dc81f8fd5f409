"""TensorRT-LLM's two policies, one sentence at a time. A block holds four tokens."""

from midstream.lab.admission import AdmissionRefusal, PrefillChunk, Step, TensorRtLlm, TensorRtLlmSettings
from support.driving import endings, preemptions, request, run_out, submit, take, tokens


def trtllm(blocks: int, *, max_utilization: bool = False, **flags: int) -> TensorRtLlm:
    """Return an engine with that many blocks."""
    settings = TensorRtLlmSettings(max_tokens_in_kv_cache=4 * blocks, tokens_per_block=4, **flags)
    return TensorRtLlm(settings, max_utilization=max_utilization)


def test_without_preemption_all_of_max_tokens_is_reserved() -> None:
    """Prompts of 8 with max_tokens of 12 reserve 5 blocks each: two of three fit in 14, though they hold 4."""
    engine = trtllm(14)
    submit(engine, *(request(number, 8, max_tokens=12) for number in range(3)))
    (step,) = take(engine, 1)
    assert step.admitted == (0, 1)
    assert (engine.load.used_tokens, engine.load.reserved_tokens, engine.load.waiting) == (16, 40, 1)


def test_without_preemption_nobody_behind_a_head_that_does_not_fit_is_tried() -> None:
    """Request 1 needs 10 blocks of the 9 left, so request 2, which needs 2, waits behind it."""
    engine = trtllm(14)
    submit(engine, request(0, 8, max_tokens=12), request(1, 20, max_tokens=20), request(2, 4, max_tokens=4))
    (step,) = take(engine, 1)
    assert step.admitted == (0,)


def test_without_preemption_nobody_is_ever_paused() -> None:
    """Everybody waits instead, and gets a whole answer."""
    engine = trtllm(14)
    submit(engine, *(request(number, 8, answer=12, max_tokens=12) for number in range(5)))
    steps = run_out(engine)
    assert preemptions(steps) == []
    assert endings(steps) == dict.fromkeys(range(5), "stop")


def test_without_a_limit_the_whole_sequence_length_is_reserved() -> None:
    """One request that sent no max_tokens has the pool for itself."""
    engine = trtllm(14)
    submit(engine, request(0, 4, answer=2), request(1, 4, answer=2))
    (step,) = take(engine, 1)
    assert (step.admitted, engine.load.reserved_tokens) == ((0,), 56)


def test_max_utilization_reserves_nothing() -> None:
    """Three prompts of a block each fill three blocks, whatever their limits are."""
    engine = trtllm(3, max_utilization=True)
    submit(engine, *(request(number, 4, max_tokens=8) for number in range(4)))
    (step,) = take(engine, 1)
    assert step.admitted == (0, 1, 2)


def test_max_utilization_pauses_the_last_one_started() -> None:
    """Request 0 needs a second block: 2 is paused for it, and then 1 has no block for its own token."""
    engine = trtllm(4, max_utilization=True)
    submit(engine, *(request(number, 4, max_tokens=8) for number in range(4)))
    take(engine, 1)
    assert engine.step() == Step(decode=(0, 1), decode_context=10, emitted=(0, 1), preempted=(3, 2))


def test_a_paused_request_keeps_its_place_before_those_who_came_later() -> None:
    """Request 1 resumes when 0 has ended, before request 2, which was waiting when it was paused."""
    engine = trtllm(2, max_utilization=True)
    submit(engine, request(0, 4, answer=3), request(1, 4, answer=3))
    take(engine, 1)
    submit(engine, request(2, 4, answer=1))
    assert [step.admitted for step in run_out(engine) if step.admitted] == [(1,), (2,)]


def test_an_old_paused_request_pushes_out_a_younger_one() -> None:
    """Request 1 was paused and 2 took its memory; when 1 fits again only without 2, then 2 is paused."""
    engine = trtllm(5, max_utilization=True)
    submit(engine, request(0, 7, answer=6), request(1, 8, answer=20))
    take(engine, 2)
    submit(engine, request(2, 1, answer=20))
    steps = run_out(engine)
    assert preemptions(steps)[0] == (1,)
    assert (2,) in preemptions(steps)
    assert [tokens(steps, number) for number in (1, 2)] == [10, 19]


def test_a_paused_request_computes_prompt_and_answer_again() -> None:
    """Its 5 tokens are prefill when it resumes, 4 of them for the second time."""
    engine = trtllm(2, max_utilization=True)
    submit(engine, request(0, 4, answer=2), request(1, 4, answer=3))
    assert take(engine, 3)[-1] == Step(prefill=(PrefillChunk(1, 0, 5, 4),), emitted=(1,), admitted=(1,))


def test_a_step_computes_whole_prompts_up_to_its_token_limit() -> None:
    """With 10 tokens a step the second prompt of 6 waits for the next, beside one token that decodes."""
    engine = trtllm(100, max_num_tokens=10)
    submit(engine, request(0, 6, max_tokens=8), request(1, 6, max_tokens=8))
    assert take(engine, 2) == [
        Step(prefill=(PrefillChunk(0, 0, 6, 0),), emitted=(0,), admitted=(0,)),
        Step(
            prefill=(PrefillChunk(1, 0, 6, 0),), decode=(0,), decode_context=7, emitted=(0, 1), admitted=(1,)
        ),
    ]


def test_the_batch_size_bounds_how_many_run() -> None:
    """With a batch of 2 the third waits, under either policy."""
    for max_utilization in (False, True):
        engine = trtllm(100, max_utilization=max_utilization, max_batch_size=2)
        submit(engine, *(request(number, 4, max_tokens=8) for number in range(3)))
        assert take(engine, 2)[1].decode == (0, 1)


def test_what_cannot_be_served_is_refused() -> None:
    """A prompt must leave room in the sequence, and fit into a step."""
    engine = trtllm(100, max_seq_len=50, max_num_tokens=40)
    assert engine.submit(request(0, 50)) == AdmissionRefusal(
        400, "the prompt must be shorter than max_seq_len (50)"
    )
    assert engine.submit(request(0, 41)) == AdmissionRefusal(
        400, "the prompt must not exceed max_num_tokens (40)"
    )


def test_a_request_is_forgotten_when_its_client_is_gone() -> None:
    """Running or waiting, it emits nothing more."""
    engine = trtllm(14)
    submit(engine, request(0, 8, max_tokens=12), request(1, 40, max_tokens=12))
    take(engine, 1)
    assert (engine.abort(1), engine.abort(0), engine.abort(0)) == (True, True, False)
    assert (engine.step(), engine.load.reserved_tokens) == (None, 0)
