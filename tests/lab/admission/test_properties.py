"""What holds for every engine, whatever is asked of it."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.lab.admission import ENGINES, AdmissionRule, Request, Step, engine
from support.driving import run_out

POOL = 320
"""Tokens of KV cache in every engine here: few, so that all of them are in trouble all the time."""

FLAGS: dict[str, dict[str, object]] = {
    "vllm": {
        "num_gpu_blocks": POOL // 8 + 1,
        "block_size": 8,
        "max_num_seqs": 6,
        "max_num_batched_tokens": 48,
    },
    "sglang": {"max_total_tokens": POOL, "max_running_requests": 6, "chunked_prefill_size": 48},
    "tgi": {"max_batch_total_tokens": POOL + 1},
    "tgi-2.4": {"max_batch_total_tokens": POOL + 1, "prefill_chunking": False},
    "trtllm": {"max_tokens_in_kv_cache": POOL, "tokens_per_block": 8, "max_batch_size": 6},
    "trtllm-max-utilization": {"max_tokens_in_kv_cache": POOL, "tokens_per_block": 8, "max_batch_size": 6},
    "llamacpp": {"ctx_size": POOL, "parallel": 6, "batch_size": 48},
}

VARIANTS = [
    *((name, flags) for name, flags in FLAGS.items()),
    ("vllm", {**FLAGS["vllm"], "async_scheduling": True}),
    ("vllm", {**FLAGS["vllm"], "watermark": 0.2, "scheduler_reserve_full_isl": False}),
    ("vllm", {**FLAGS["vllm"], "enable_prefix_caching": False, "long_prefill_token_threshold": 16}),
    ("sglang", {**FLAGS["sglang"], "schedule_conservativeness": 0.05, "page_size": 8}),
    ("sglang", {**FLAGS["sglang"], "schedule_conservativeness": 0.05}),
]
NAMES = [f"{name}-{index}" for index, (name, _) in enumerate(VARIANTS)]
every_engine = pytest.mark.parametrize(("name", "flags"), VARIANTS, ids=NAMES)

lengths = st.tuples(
    st.integers(1, 90), st.one_of(st.none(), st.integers(1, 120)), st.one_of(st.none(), st.integers(1, 120))
)
scripts = st.lists(
    st.one_of(lengths, st.just("step"), st.tuples(st.just("abort"), st.integers(0, 20))), max_size=60
)


class Watched:
    """Plays a script against an engine, and checks every step against what clients can count themselves."""

    def __init__(self, name: str, flags: dict[str, object]) -> None:
        self.engine: AdmissionRule = engine(name, **flags)
        self.most = int(
            str(flags.get("max_num_seqs", flags.get("parallel", flags.get("max_running_requests", 10**9))))
        )
        self.asked: dict[int, Request] = {}
        self.gone: set[int] = set()
        self.ended: dict[int, str] = {}
        self.got: Counter[int] = Counter()
        self.steps: list[Step] = []

    def play(self, script: list[Any]) -> None:
        for action in script:
            match action:
                case "step":
                    self.check(self.engine.step())
                case "abort", int(number):
                    known = number in self.asked and number not in self.ended and number not in self.gone
                    assert self.engine.abort(number) == known
                    if known:
                        self.gone.add(number)
                case (prompt, answer, limit):
                    request = Request(len(self.asked), prompt, answer, limit)
                    self.asked[request.id] = request
                    if self.engine.submit(request) is not None:
                        self.gone.add(request.id)
        while (step := self.engine.step()) is not None:
            self.check(step)

    def check(self, step: Step | None) -> None:
        if step is None:
            return
        self.steps.append(step)
        assert len(self.steps) < 20_000, "it never comes to an end"
        load = self.engine.load
        assert 0 <= load.used_tokens <= load.reserved_tokens <= load.capacity
        assert load.running <= self.most
        assert len(set(step.emitted)) == len(step.emitted)
        for number in step.emitted:
            assert number not in self.gone
            assert number not in self.ended
            self.got[number] += 1
        for ended in step.ended:
            assert ended.id not in self.ended
            self.ended[ended.id] = ended.reason


@every_engine
@given(script=scripts)
@settings(deadline=None, max_examples=40)
def test_no_token_is_lost_or_invented(name: str, flags: dict[str, object], script: list[object]) -> None:
    """Whoever is served gets exactly its answer, up to its limit; memory and slots are never exceeded."""
    watched = Watched(name, flags)
    watched.play(script)
    assert set(watched.ended) == set(watched.asked) - watched.gone
    for number, reason in watched.ended.items():
        request, got = watched.asked[number], watched.got[number]
        if reason == "stop":
            assert got == request.answer_tokens
        elif reason == "length" and request.max_tokens is not None and request.answer_tokens is not None:
            assert got <= min(request.answer_tokens, request.max_tokens)
    assert watched.engine.load.running == watched.engine.load.waiting == watched.engine.load.used_tokens == 0


@every_engine
@given(asked=st.lists(lengths, min_size=1, max_size=25))
@settings(deadline=None, max_examples=40)
def test_requests_start_in_the_order_in_which_they_came(
    name: str, flags: dict[str, object], asked: list[tuple[int, int | None, int | None]]
) -> None:
    """Every rule here is first come, first served: nobody has its first token computed before who came earlier."""
    built = engine(name, **flags)
    accepted = [n for n, each in enumerate(asked) if built.submit(Request(n, *each)) is None]
    first_admitted = dict.fromkeys(number for step in run_out(built) for number in step.admitted)
    assert list(first_admitted) == accepted


@every_engine
@given(asked=st.lists(lengths, min_size=1, max_size=12))
@settings(deadline=None, max_examples=40)
def test_repeating_quiet_steps_is_the_same_as_making_them(
    name: str, flags: dict[str, object], asked: list[tuple[int, int | None, int | None]]
) -> None:
    """What an engine says it can repeat are decode steps of the same requests, and nothing after them differs."""
    slow, fast = engine(name, **flags), engine(name, **flags)
    for number, each in enumerate(asked):
        slow.submit(Request(number, *each))
        fast.submit(Request(number, *each))
    while (step := fast.step()) is not None:
        assert slow.step() == step
        quiet = fast.quiet_steps()
        for ahead in range(1, quiet + 1):
            context = step.decode_context + ahead * len(step.decode)
            assert slow.step() == Step(decode=step.decode, decode_context=context, emitted=step.decode)
        if quiet:
            fast.repeat(quiet)
        assert fast.load == slow.load
    assert slow.step() is None


@every_engine
def test_the_same_script_makes_the_same_steps(name: str, flags: dict[str, object]) -> None:
    """No chance and no clock is inside: two engines of a kind decide alike."""
    runs = []
    for _ in range(2):
        built = engine(name, **flags)
        for number in range(30):
            built.submit(Request(number, 5 + 7 * number % 40, 10 + 11 * number % 60, 80))
        runs.append(run_out(built))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", ["tgi-2.4", "trtllm", "llamacpp"])
@given(asked=st.lists(lengths, min_size=1, max_size=20))
@settings(deadline=None, max_examples=40)
def test_some_engines_never_preempt(name: str, asked: list[tuple[int, int | None, int | None]]) -> None:
    """Those that reserve everything, and the one that fails instead."""
    built = engine(name, **FLAGS[name])
    for number, each in enumerate(asked):
        built.submit(Request(number, *each))
    assert all(not step.preempted for step in run_out(built))


def test_every_engine_is_tried_here() -> None:
    """A new engine must be added to these tests."""
    assert set(FLAGS) == set(ENGINES)


def test_an_unknown_engine_or_flag_is_refused() -> None:
    """The sentence says what there is."""
    with pytest.raises(ValueError, match="there is no engine ollama; choose from vllm, sglang, tgi"):
        engine("ollama")
    with pytest.raises(ValueError, match="llamacpp has no watermark; it has ctx-size, parallel, batch-size"):
        engine("llamacpp", watermark=0.1)
