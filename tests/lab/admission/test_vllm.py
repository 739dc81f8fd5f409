"""vLLM's rule, one sentence at a time. Pools are small, and blocks hold four tokens unless said otherwise."""

import pytest

from midstream.lab.admission import AdmissionRefusal, Ended, PrefillChunk, Step, Vllm, VllmSettings
from support.driving import endings, preemptions, request, run_out, submit, take, tokens


def vllm(blocks: int, **flags: object) -> Vllm:
    """Return an engine with that many blocks to hand out; vLLM keeps one more for itself."""
    settings: dict[str, object] = {"num_gpu_blocks": blocks + 1, "block_size": 4, **flags}
    return Vllm(VllmSettings(**settings))  # type: ignore[arg-type]  # flags are checked by what they do


def test_nothing_is_reserved_for_answers() -> None:
    """Three prompts of a block each fill a pool of three, however long their answers may become."""
    engine = vllm(3)
    submit(engine, *(request(number, 4) for number in range(4)))
    assert engine.step() == Step(
        prefill=(PrefillChunk(0, 0, 4, 0), PrefillChunk(1, 0, 4, 0), PrefillChunk(2, 0, 4, 0)),
        emitted=(0, 1, 2),
        admitted=(0, 1, 2),
    )


def test_one_block_is_kept_by_vllm_itself() -> None:
    """Of 28 blocks 27 can be held: the null block is nobody's."""
    engine = Vllm(VllmSettings(num_gpu_blocks=28, block_size=128))
    assert engine.load.capacity == 27 * 128


def test_nobody_behind_a_head_that_does_not_fit_is_tried() -> None:
    """The second prompt needs three blocks where two are free, so the third, of one block, waits too."""
    engine = vllm(4)
    submit(engine, request(0, 8), request(1, 12), request(2, 4))
    (step,) = take(engine, 1)
    assert step.admitted == (0,)


def test_the_whole_prompt_must_fit_not_just_its_first_chunk() -> None:
    """With a budget of 4 a prompt of 12 starts in the two free blocks only if the whole is not asked for."""
    held_back, let_in = (
        vllm(4, max_num_batched_tokens=12, scheduler_reserve_full_isl=on) for on in (True, False)
    )
    for engine in (held_back, let_in):
        submit(engine, request(0, 8), request(1, 12))
    assert held_back.step() == Step(prefill=(PrefillChunk(0, 0, 8, 0),), emitted=(0,), admitted=(0,))
    assert let_in.step() == Step(
        prefill=(PrefillChunk(0, 0, 8, 0), PrefillChunk(1, 0, 4, 0)), emitted=(0,), admitted=(0, 1)
    )


def test_a_long_prompt_is_computed_in_chunks_of_what_the_budget_leaves() -> None:
    """A prompt of 10 takes the budget of 4 twice; its rest of 2 emits the first token."""
    engine = vllm(10, max_num_batched_tokens=4)
    submit(engine, request(0, 10))
    assert take(engine, 3) == [
        Step(prefill=(PrefillChunk(0, 0, 4, 0),), admitted=(0,)),
        Step(prefill=(PrefillChunk(0, 4, 4, 0),)),
        Step(prefill=(PrefillChunk(0, 8, 2, 0),), emitted=(0,)),
    ]


def test_decoding_comes_before_prefill_in_the_budget() -> None:
    """One token of the budget of 4 goes to the request that decodes, three to the new prompt."""
    engine = vllm(10, max_num_batched_tokens=4)
    submit(engine, request(0, 4))
    take(engine, 1)
    submit(engine, request(1, 8))
    assert engine.step() == Step(
        prefill=(PrefillChunk(1, 0, 3, 0),), decode=(0,), decode_context=5, emitted=(0,), admitted=(1,)
    )


def test_without_chunked_prefill_a_prompt_waits_for_a_budget_that_holds_it() -> None:
    """A prompt of 4 does not start beside a decoding request when the budget is 4."""
    engine = vllm(10, max_num_batched_tokens=4, enable_chunked_prefill=False)
    submit(engine, request(0, 4, answer=3))
    take(engine, 1)
    submit(engine, request(1, 4))
    assert [step.admitted for step in take(engine, 3)] == [(), (), (1,)]


def test_one_prompt_takes_no_more_of_a_step_than_the_threshold() -> None:
    """With a threshold of 3 two prompts share a step that either could have filled."""
    engine = vllm(10, max_num_batched_tokens=8, long_prefill_token_threshold=3)
    submit(engine, request(0, 8), request(1, 8))
    (step,) = take(engine, 1)
    assert step.prefill == (PrefillChunk(0, 0, 3, 0), PrefillChunk(1, 0, 3, 0))


@pytest.mark.parametrize("flag", ["max_num_seqs", "max_num_active_seqs"])
def test_a_cap_bounds_how_many_run(flag: str) -> None:
    """With a cap of 2 the third request waits, though memory is free."""
    engine = vllm(100, **{flag: 2})
    submit(engine, *(request(number, 4) for number in range(3)))
    take(engine, 1)
    assert (engine.load.running, engine.load.waiting) == (2, 1)


def test_the_watermark_is_kept_free_when_admitting_beside_others() -> None:
    """Of 20 blocks a watermark of 0.25 keeps 5: two prompts of 8 blocks each do not fit in 19."""
    engine = vllm(19, watermark=0.25)
    submit(engine, request(0, 32), request(1, 32))
    (step,) = take(engine, 1)
    assert step.admitted == (0,)
    without = vllm(19)
    submit(without, request(0, 32), request(1, 32))
    (step,) = take(without, 1)
    assert step.admitted == (0, 1)


def test_the_watermark_does_not_hold_back_who_would_run_alone() -> None:
    """A prompt of 18 blocks is admitted to an empty pool of 19, though 5 should be kept free."""
    engine = vllm(19, watermark=0.25)
    submit(engine, request(0, 72))
    (step,) = take(engine, 1)
    assert step.admitted == (0,)


def test_the_last_one_admitted_is_preempted_and_nothing_is_admitted_in_that_step() -> None:
    """Two requests fill a pool of two; the first needs a third block, so the second goes, and nobody comes."""
    engine = vllm(2)
    submit(engine, request(0, 4), request(1, 4))
    take(engine, 1)
    submit(engine, request(2, 1))
    step = engine.step()
    assert step == Step(decode=(0,), decode_context=5, emitted=(0,), preempted=(1,))
    assert (engine.load.running, engine.load.waiting) == (1, 2)


def test_a_preempted_request_goes_to_the_front_of_the_queue() -> None:
    """Once the first request ends, the one it pushed out resumes before one that was waiting all along."""
    engine = vllm(2)
    submit(engine, request(0, 4, answer=2), request(1, 4, answer=3))
    take(engine, 1)
    submit(engine, request(2, 4))
    assert [step.admitted for step in take(engine, 2)] == [(), (1,)]


def test_of_several_victims_the_oldest_ends_up_first() -> None:
    """Four requests of one block each; when 0 and 1 need their second, 3 and then 2 go, and resume as 2, 3."""
    engine = vllm(4)
    submit(engine, *(request(number, 4, answer=2 if number < 2 else 3) for number in range(4)))
    steps = run_out(engine)
    assert preemptions(steps) == [(3, 2)]
    assert [step.admitted for step in steps if step.admitted] == [(0, 1, 2, 3), (2, 3)]


def test_a_request_that_finds_no_younger_victim_preempts_itself() -> None:
    """The younger of two is the first to fill its block, and gives way to nobody but itself."""
    engine = vllm(2)
    submit(engine, request(0, 2), request(1, 4))
    take(engine, 1)
    assert engine.step() == Step(decode=(0,), decode_context=3, emitted=(0,), preempted=(1,))


def test_a_resumed_request_computes_prompt_and_answer_again() -> None:
    """Without prefix caching all 5 tokens are prefill: 4 of them a second time, then the answer goes on."""
    engine = vllm(2, enable_prefix_caching=False)
    submit(engine, request(0, 4, answer=2), request(1, 4, answer=2))
    assert take(engine, 3)[-1] == Step(
        prefill=(PrefillChunk(1, 0, 5, 4),), emitted=(1,), ended=(Ended(1, "stop"),), admitted=(1,)
    )


def test_a_resumed_request_finds_the_blocks_that_nobody_took() -> None:
    """Of the victim's two full blocks the last was taken first; what the first holds is not computed again."""
    engine = vllm(4)
    submit(engine, request(0, 8, answer=2), request(1, 8, answer=2))
    steps = take(engine, 3)
    assert steps[1].preempted == (1,)
    assert steps[2].prefill == (PrefillChunk(1, 4, 5, 4),)


def test_async_scheduling_delivers_one_more_token_after_the_preemption() -> None:
    """The next step is planned, and preempts, while a token of the victim is in flight: it still arrives."""
    in_step, ahead = (vllm(3, async_scheduling=on) for on in (False, True))
    for engine in (in_step, ahead):
        submit(engine, request(0, 3), request(1, 3))
    told = [[(step.preempted, step.emitted) for step in take(engine, 3)] for engine in (in_step, ahead)]
    assert told == [
        [((), (0, 1)), ((), (0, 1)), ((1,), (0,))],
        [((), (0, 1)), ((1,), (0, 1)), ((), (0,))],
    ]


def test_async_scheduling_sees_a_request_one_step_later() -> None:
    """What was submitted after the first step finds the second planned already, and joins the third."""
    engine = vllm(10, async_scheduling=True)
    submit(engine, request(0, 4))
    take(engine, 1)
    submit(engine, request(1, 4))
    assert [step.admitted for step in take(engine, 2)] == [(), (1,)]


def test_answers_end_by_themselves_or_at_a_limit() -> None:
    """An answer that reaches max_tokens with its last word has stopped; a longer one was cut."""
    engine = vllm(100)
    submit(
        engine,
        request(0, 4, answer=5, max_tokens=5),
        request(1, 4, answer=6, max_tokens=5),
        request(2, 4, answer=None, max_tokens=7),
    )
    steps = run_out(engine)
    assert endings(steps) == {0: "stop", 1: "length", 2: "length"}
    assert [tokens(steps, number) for number in range(3)] == [5, 5, 7]


def test_an_answer_without_limit_ends_with_the_model_length() -> None:
    """A prompt of 4 leaves 6 of a model length of 10; left out, the length is what the pool holds."""
    short, whole = vllm(5, max_model_len=10), vllm(5)
    for engine in (short, whole):
        submit(engine, request(0, 4, answer=None))
    assert [tokens(run_out(engine), 0) for engine in (short, whole)] == [6, 16]


def test_a_request_is_forgotten_when_its_client_is_gone() -> None:
    """Its memory lets the next one in; a second abort finds nobody."""
    engine = vllm(2)
    submit(engine, request(0, 5), request(1, 5))
    take(engine, 1)
    assert engine.abort(0)
    assert not engine.abort(0)
    assert engine.step() == Step(prefill=(PrefillChunk(1, 0, 5, 0),), emitted=(1,), admitted=(1,))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_aborted_request_emits_nothing_more(asynchronous: bool) -> None:
    """Not even the token of a step in flight."""
    engine = vllm(10, async_scheduling=asynchronous)
    submit(engine, request(0, 4), request(1, 4, answer=4))
    take(engine, 2)
    engine.abort(0)
    assert tokens(run_out(engine), 0) == 0


def test_what_cannot_be_served_is_refused() -> None:
    """A prompt as long as the model, and a request too many in the queue, are told so with their status."""
    engine = vllm(2, max_num_queued_reqs=1)
    assert engine.submit(request(0, 8)) == AdmissionRefusal(
        400, "the prompt must be shorter than the 8 tokens of the model"
    )
    submit(engine, request(1, 4))
    assert engine.submit(request(2, 4)) == AdmissionRefusal(503, "1 requests are waiting already")


def test_an_id_in_use_is_a_mistake_of_the_driver() -> None:
    """Two requests of one id could not be told apart."""
    engine = vllm(4)
    submit(engine, request(0, 4))
    with pytest.raises(ValueError, match="request 0 is here already; ids must differ"):
        engine.submit(request(0, 4))


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"num_gpu_blocks": 1}, "num-gpu-blocks must be at least 2, got 1"),
        ({"watermark": 1.0}, "watermark must be from 0 up to, not including, 1; got 1"),
        ({"max_num_active_seqs": 300}, "max-num-active-seqs must not exceed max-num-seqs (256), got 300"),
        (
            {"num_gpu_blocks": 3, "max_model_len": 33},
            "max-model-len must fit in the pool of 32 tokens, got 33; vLLM could never finish a request of that length",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(flags: dict[str, float], sentence: str) -> None:
    """The sentence says which, what it must be and what it was."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole sentence is compared
        VllmSettings(**flags)  # type: ignore[arg-type]  # wrong values are the point
    assert str(raised.value) == sentence
