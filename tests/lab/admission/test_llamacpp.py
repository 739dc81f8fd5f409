"""llama.cpp's rule, one sentence at a time."""

from midstream.lab.admission import AdmissionRefusal, Ended, LlamaCpp, LlamaCppSettings, PrefillChunk, Step
from support.driving import endings, preemptions, request, run_out, submit, take, tokens


def llamacpp(ctx_size: int, **flags: object) -> LlamaCpp:
    """Return a server with that much context."""
    return LlamaCpp(LlamaCppSettings(ctx_size=ctx_size, **flags))  # type: ignore[arg-type]  # checked by effect


def test_admission_looks_at_slots_not_at_memory() -> None:
    """Four prompts of 30 get the four slots, though the 100 tokens of context hold only three."""
    server = llamacpp(100)
    submit(server, *(request(number, 30) for number in range(5)))
    (step,) = take(server, 1)
    assert step.admitted == (0, 1, 2, 3)


def test_when_memory_runs_out_every_slot_fails() -> None:
    """Four answers of 10 + 15 fill 100 tokens; the next token ends them all, and who waited is served."""
    server = llamacpp(100)
    submit(server, *(request(number, 10) for number in range(4)), request(4, 10, answer=3))
    steps = run_out(server)
    assert [tokens(steps, number) for number in range(5)] == [16, 16, 16, 16, 3]
    assert endings(steps) == {0: "error", 1: "error", 2: "error", 3: "error", 4: "stop"}


def test_nobody_is_preempted() -> None:
    """There is no freeze: an answer goes on, or it fails."""
    server = llamacpp(100)
    submit(server, *(request(number, 10) for number in range(8)))
    assert preemptions(run_out(server)) == []


def test_a_failing_step_computes_nothing() -> None:
    """It only says who failed, whom it had just admitted included."""
    server = llamacpp(40)
    submit(server, request(0, 30), request(1, 30))
    assert server.step() == Step(ended=(Ended(0, "error"), Ended(1, "error")), admitted=(0, 1))


def test_tokens_under_way_come_before_prompts_in_the_batch() -> None:
    """A batch of 8 holds one token that decodes and seven of the new prompt."""
    server = llamacpp(1000, batch_size=8)
    submit(server, request(0, 4))
    take(server, 1)
    submit(server, request(1, 10))
    assert take(server, 2) == [
        Step(prefill=(PrefillChunk(1, 0, 7, 0),), decode=(0,), decode_context=5, emitted=(0,), admitted=(1,)),
        Step(prefill=(PrefillChunk(1, 7, 3, 0),), decode=(0,), decode_context=6, emitted=(0, 1)),
    ]


def test_an_answer_ends_where_its_slot_does() -> None:
    """Without a limit a prompt of 10 gets the 90 that the context leaves; with separate caches a quarter of it."""
    unified, separate = llamacpp(100), llamacpp(100, kv_unified=False)
    for server in (unified, separate):
        submit(server, request(0, 10, answer=None))
    assert [tokens(run_out(server), 0) for server in (unified, separate)] == [90, 15]


def test_a_prompt_that_fills_a_slot_is_refused() -> None:
    """It is told so before anything is computed."""
    assert llamacpp(100).submit(request(0, 100)) == AdmissionRefusal(
        400, "the request exceeds the available context size of 100 tokens"
    )


def test_a_request_is_forgotten_when_its_client_is_gone() -> None:
    """Its slot is free for the next."""
    server = llamacpp(100, parallel=1)
    submit(server, request(0, 10), request(1, 10))
    take(server, 1)
    assert (server.abort(0), server.abort(0)) == (True, False)
    assert take(server, 1)[0].admitted == (1,)
