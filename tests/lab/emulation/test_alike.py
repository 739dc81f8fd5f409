"""Simulator and emulator admit alike: the same calls, played in virtual time and against a clock that comes late."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.lab.admission import ENGINES, Request, engine
from midstream.lab.drive import ClientEvent, Drive, Turn
from midstream.lab.emulation.runner import MOST_TURNS, EngineRunner
from midstream.lab.hardware import HardwareProfile
from midstream.lab.results import RunResult
from midstream.lab.simulator import simulate
from midstream.lab.workload import Workload, WorkloadCall

HARDWARE = HardwareProfile("small", 0.5, 0.125, 0.001, 0.03125, latency_s=0.25, front_end_s=0.125)

SMALL = {
    "vllm": {"num_gpu_blocks": 17, "block_size": 4, "max_num_batched_tokens": 16},
    "sglang": {"max_total_tokens": 64, "chunked_prefill_size": 16},
    "tgi": {"max_batch_total_tokens": 65, "max_batch_prefill_tokens": 32},
    "tgi-2.4": {"max_batch_total_tokens": 65, "max_batch_prefill_tokens": 32},
    "trtllm": {"max_tokens_in_kv_cache": 64, "tokens_per_block": 4},
    "trtllm-max-utilization": {"max_tokens_in_kv_cache": 64, "tokens_per_block": 4},
    "llamacpp": {"ctx_size": 64, "parallel": 3},
}

calls = st.lists(
    st.builds(
        lambda at, prompt, answer, limit, patience: (at / 4, prompt, answer, limit, patience),
        at=st.integers(0, 60),
        prompt=st.integers(1, 24),
        answer=st.integers(1, 30),
        limit=st.one_of(st.none(), st.integers(1, 30)),
        patience=st.one_of(st.none(), st.integers(1, 40)),
    ),
    min_size=1,
    max_size=12,
)


@dataclass
class Clients:
    """What the clients of a room see, by request."""

    times_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    admitted_s: dict[int, float] = field(default_factory=dict)
    preemptions: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    ended: dict[int, str] = field(default_factory=dict)

    def client_event(self, client_event: ClientEvent) -> None:
        if client_event.refusal is not None:
            self.ended[client_event.request.id] = "refused"
        elif client_event.hung_up and client_event.was_active:
            self.ended[client_event.request.id] = "left"

    def began(self, turn: Turn) -> None:
        for number in turn.step.admitted:
            self.admitted_s.setdefault(number, turn.began_s)
        for number in turn.step.preempted:
            self.preemptions[number] += 1

    def done(self, turn: Turn) -> None:
        for number in turn.step.emitted:
            self.times_s[number].append(turn.done_s)
        for ended in turn.step.ended:
            self.ended.setdefault(ended.id, ended.reason)


def workload(script: list[tuple[float, int, int, int | None, int | None]]) -> Workload:
    """Return the calls in the order of their times."""
    return Workload(
        tuple(
            WorkloadCall(
                Request(number, prompt, answer, limit), at_s, None if patience is None else patience / 2 + 0.1
            )
            for number, (at_s, prompt, answer, limit, patience) in enumerate(
                sorted(script, key=lambda c: c[0])
            )
        )
    )


def emulated(name: str, load: Workload, chance: random.Random) -> Clients:
    """Play the calls in a room that is woken when somebody acts, and at any other time."""
    clients = Clients()
    room = EngineRunner(Drive(engine(name, **SMALL[name]), HARDWARE), clients)
    acts = [(call.at_s, 0, call.request) for call in load.calls]
    acts += [
        (call.at_s + call.patience_s, 1, call.request) for call in load.calls if call.patience_s is not None
    ]
    for at_s, hangs_up, request in sorted(acts, key=lambda act: (act[0], act[1], act[2].id)):
        (room.hang_up if hangs_up else room.ask)(request, at_s)
        room.wake(at_s)
        room.wake(at_s + chance.random() / 1000)
    now = acts[-1][0]
    while (when := room.wake(now)) is not None:
        now = max(now, when) + chance.choice((0.0, 0.01, 0.4))
    assert room.slipped_s == 0
    return clients


def test_the_rooms_of_all_engines_are_tried() -> None:
    """A new engine must be added here."""
    assert SMALL.keys() == ENGINES.keys()


@pytest.mark.parametrize("name", SMALL)
@given(script=calls, chance=st.randoms(use_true_random=False))
def test_the_same_script_is_played_alike(
    name: str, script: list[tuple[float, int, int, int | None, int | None]], chance: random.Random
) -> None:
    """Every token at the same moment, every admission, every preemption, every end; and no token lost or invented."""
    load = workload(script)
    run: RunResult = simulate(engine(name, **SMALL[name]), load, HARDWARE, keep_times=True)
    clients = emulated(name, load, chance)
    for result in run.requests:
        seen = clients.times_s[result.id]
        assert seen == list(result.times_s)
        assert clients.ended[result.id] == result.ending
        assert clients.admitted_s.get(result.id) == result.admitted_s
        assert clients.preemptions[result.id] == result.preemptions
        call = load.calls[result.id].request
        if result.ending == "stop":
            assert len(seen) == call.answer_tokens
        if result.ending == "length" and name != "tgi":
            assert call.max_tokens is None or len(seen) <= call.max_tokens


def test_a_clock_that_comes_very_late_is_set_forward() -> None:
    """After a hundred steps that were made up for, what is left of the delay is let go."""
    clients = Clients()
    room = EngineRunner(Drive(engine("vllm"), HARDWARE), clients)
    room.ask(Request(0, 10, 1000), 0.0)
    assert room.wake(1e6) == 1e6
    assert len(clients.times_s[0]) == MOST_TURNS - 1
    assert room.slipped_s > 9e5
    assert room.wake(1e6) == 1e6 + HARDWARE.decode_s(1, 10 + MOST_TURNS)


def test_a_room_with_nobody_in_it_waits_for_its_clients() -> None:
    """There is nothing to be woken for."""
    room = EngineRunner(Drive(engine("vllm"), HARDWARE), Clients())
    assert room.wake(100.0) is None
    room.ask(Request(0, 10, 1), 100.0)
    assert room.wake(100.0) == 100.375


def test_the_choices_of_one_call_pass_the_front_end_together() -> None:
    """Two choices are heard with the first, after 0.375 s; the next call an eighth of a second later."""
    drive = Drive(engine("vllm"), HARDWARE)
    for number, choice in enumerate((0, 1, 2, 0)):
        drive.ask(Request(number, 10, 1), 100.0, choice=choice)
    assert drive.next_s == 100.375
    assert [client_event.request.id for client_event in drive.deliver(100.375)] == [0, 1, 2]
    assert drive.next_s == 100.5
