"""How many answers may run at once: the published caps, the load in the records, and what a simulation finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.advice.cap_search import ENGINE_KNOBS, CapGoal, Search, SimulationConfig, candidates, search
from midstream.advice.cap_verdict import CapAdvice, cap_verdict, simulated_doubts
from midstream.advice.capacity import Caps, caps
from midstream.advice.load import LoadError, concurrency, load_of
from midstream.advice.observed import Level, levels_of, observed_cap
from midstream.advice.pool import Pool
from midstream.lab.admission import ENGINES
from midstream.lab.hardware import PROFILES
from midstream.lab.workload import generator
from midstream.stream.model import Outcome, StreamRecord
from support.records import a_record

TOKENS = st.floats(0, 1e5)


def at(
    start: float, long_s: float, prompt: int = 100, answer: int = 900, *, freezes: int = 0
) -> StreamRecord:
    """The record of a stream at some time."""
    return a_record(
        started_at=1e9 + start,
        duration_s=long_s,
        input_tokens=prompt,
        output_tokens=answer,
        content_chunks=answer,
        freezes=freezes,
        max_gap_s=9.0 if freezes else 0.1,
    )


def long_answers(count: int = 200) -> list[StreamRecord]:
    """Answers of very different lengths, 16 at a time."""
    rng = generator("answers", 7)
    return [
        at(10.0 * (n // 16), 10.0, prompt=rng.randint(50, 300), answer=rng.choice((200, 500, 900, 4000)))
        for n in range(count)
    ]


def a_config(
    engine: str = "vllm", *, pool: int = 16_000, users: int = 24, seeds: int = 2
) -> SimulationConfig:
    """An L4 with little memory, and more users than it can hold."""
    load = load_of(long_answers())
    return SimulationConfig(engine, pool, PROFILES["l4"], load, users, 120, range(seeds), 5.0)


def advised(config: SimulationConfig, *goals: CapGoal) -> CapAdvice:
    """What is advised in that config."""
    load = config.load
    limits = caps(config.pool_tokens, load.mean_prompt, load.mean_answer, load.p95_answer)
    return CapAdvice(Pool(config.pool_tokens, "as given"), limits, config, search(config, limits, goals), ())


# The published caps


def test_the_published_caps() -> None:
    """The pool over a prompt with a long answer, and over an average one; rounded down."""
    assert caps(30_240, 200, 1800, 7000) == Caps(never=4, average=15)


def test_where_not_even_one_fits_the_cap_is_one() -> None:
    """A server that runs none serves nobody."""
    assert caps(1000, 2000, 500, 900) == Caps(1, 1)


@pytest.mark.parametrize("lengths", [(-1, 5, 5), (5, float("nan"), 5), (5, 5, float("inf")), (0, 0, 0)])
def test_lengths_that_cannot_be_are_refused(lengths: tuple[float, float, float]) -> None:
    """With the name of the one that is wrong."""
    with pytest.raises(ValueError, match=r"must be a number of tokens|must have a length"):
        caps(1000, *lengths)
    with pytest.raises(ValueError, match="the pool must hold at least one token, got 0"):
        caps(0, 1, 1, 1)


@given(
    pool=st.integers(1, 10**8), more=st.integers(0, 10**8), prompt=TOKENS, mean=st.floats(1, 1e5), p95=TOKENS
)
def test_a_larger_pool_never_has_a_lower_cap(
    pool: int, more: int, prompt: float, mean: float, p95: float
) -> None:
    """And the cap for long answers never exceeds the one for average ones."""
    small, large = caps(pool, prompt, mean, p95), caps(pool + more, prompt, mean, p95)
    assert 1 <= small.never <= small.average
    assert small.never <= large.never
    assert small.average <= large.average


# The load


def test_the_load_is_read_from_records() -> None:
    """Two streams overlap, a third comes later, and one tells no lengths."""
    load = load_of([at(10, 5), at(12, 5, answer=500), at(30, 5, answer=100), a_record(output_tokens=None)])
    assert [(shape.at_s, shape.answer) for shape in load.requests] == [(0.0, 900), (2.0, 500), (20.0, 100)]
    assert (load.mean_prompt, load.mean_answer) == (100, 500)
    assert load.p95_answer == 900
    assert (load.unknown, load.peak, load.usual, load.in_flight) == (1, 2, 2, 1600)


def test_who_ends_as_another_begins_is_not_beside_him() -> None:
    """Twelve users in turn are never thirteen."""
    assert concurrency([at(10 * turn, 10) for turn in range(5) for _ in range(12)]) == (12, 12)


def test_a_short_crowd_does_not_count_as_usual() -> None:
    """Ten at once for one second in a hundred."""
    assert concurrency([at(0, 100), *(at(50, 1) for _ in range(9))]) == (10, 1)


def test_a_load_without_lengths_says_what_to_do() -> None:
    """Usage must be asked for."""
    with pytest.raises(
        LoadError, match="none of the streams has the lengths of both its prompt and its answer"
    ):
        load_of([a_record(output_tokens=None)])


def test_lengths_stay_together_and_follow_the_seed() -> None:
    """A prompt is drawn with its own answer, and the same seed draws the same."""
    load = load_of([at(n, 1, prompt=n + 1, answer=1000 + n) for n in range(50)])
    calls = load.as_logged(3, 4, 100).calls
    assert all(call.request.answer_tokens == 999 + call.request.prompt_tokens for call in calls)
    assert calls == load.as_logged(3, 4, 100).calls != load.as_logged(4, 4, 100).calls
    assert [call.at_s for call in load.as_logged(0, None, 50).calls] == [float(n) for n in range(50)]
    assert [call.at_s for call in load.as_logged(0, None, 9).calls] == [float(n) for n in range(9)]


# The search


def test_every_engine_of_the_lab_has_its_lever() -> None:
    """An engine that is added there must be added here."""
    assert ENGINE_KNOBS.keys() == ENGINES.keys()


def test_candidates_hold_both_published_caps() -> None:
    """And none that changes nothing."""
    assert candidates(Caps(4, 15), 20) == [2, 3, 4, 5, 7, 9, 12, 15, 16]
    assert candidates(Caps(1, 1), 3) == [1, 2]


def test_the_highest_cap_that_meets_the_goal_is_chosen() -> None:
    """Every lower one meets it too, the next higher one does not; and it costs throughput."""
    config = a_config()
    found = advised(config, CapGoal("freeze-share", 0.01)).found
    chosen = found.chosen
    assert chosen is not None
    assert chosen.cap is not None
    place = found.trials.index(chosen)
    assert all(trial.all("freeze-share") <= 0.01 for trial in found.trials[: place + 1])
    assert found.trials[place + 1].all("freeze-share") > 0.01
    assert found.trials[-1].cap is None
    assert found.trials[-1].all("freeze-share") > 0.1
    assert 0 < found.given_up(chosen) < 1


def test_a_goal_for_throughput_alone_takes_the_lowest_cap() -> None:
    """As few at once as give up at most a tenth."""
    found = advised(a_config(), CapGoal("throughput-given-up", 0.1)).found
    chosen = found.chosen
    assert chosen is not None
    assert found.given_up(chosen) <= 0.1
    assert found.given_up(found.trials[found.trials.index(chosen) - 1]) > 0.1


def test_goals_that_exclude_each_other_are_told() -> None:
    """Neither a freeze nor any throughput lost."""
    advice = advised(a_config(), CapGoal("freeze-share", 0.0), CapGoal("throughput-given-up", 0.0))
    assert advice.found.chosen is None
    verdict = cap_verdict(advice)
    assert verdict.startswith(
        "No cap meets at most 0 % of answers frozen or broken off and at most 0 % of throughput given up: "
    )
    assert verdict.endswith("; the goals exclude each other.")


def test_a_server_with_room_needs_no_cap() -> None:
    """Nothing is ever preempted from a pool that never fills."""
    advice = advised(a_config(pool=400_000, users=8), CapGoal("freeze-share", 0.01))
    assert cap_verdict(advice) == (
        "No cap is needed for at most 1 % of answers frozen or broken off: with 8 at once 0 % freeze or "
        "break off without "
        "one."
    )


def test_a_server_that_reserves_is_told_apart() -> None:
    """A cap ends no freeze where there is none."""
    verdict = cap_verdict(advised(a_config("trtllm", seeds=1), CapGoal("freeze-share", 0.01)))
    assert verdict.startswith("trtllm never preempts an answer, so a cap ends no freeze here")


def test_where_an_engine_fails_answers_instead_that_counts() -> None:
    """llama.cpp freezes nobody: it ends everybody's answer with an error."""
    found = advised(a_config("llamacpp", pool=8192, seeds=1), CapGoal("freeze-share", 0.01)).found
    assert found.trials[-1].all("freeze-share") > 0.1
    assert found.chosen is not None
    assert found.chosen.cap is not None


@pytest.mark.parametrize("engine", ["sglang", "tgi", "trtllm-max-utilization"])
def test_every_engine_can_be_searched(engine: str) -> None:
    """TGI has no flag for it, so that clients hold back there."""
    found = advised(a_config(engine, seeds=1), CapGoal("p99-gap", 1000.0)).found
    assert found.chosen is not None
    assert found.chosen.cap is None


def test_progress_is_told_after_every_run() -> None:
    """One for each seed of each cap."""
    config, played = a_config(users=4), []
    found = search(config, Caps(1, 2), [CapGoal("freeze-share", 0.5)], played=lambda: played.append(1))
    assert len(played) == len(found.trials) * 2


def test_more_waiting_than_running_is_out_of_capacity() -> None:
    """A cap moves the gap to before the first token, and no more."""
    config = a_config(users=40, seeds=1)
    found = search(config, Caps(2, 4), [CapGoal("freeze-share", 0.0)])
    (doubt,) = simulated_doubts(found, ())
    assert doubt.ground == "out of capacity"
    assert simulated_doubts(found, {"out of capacity"}) == []
    roomy = search(a_config(pool=400_000, users=4, seeds=1), Caps(2, 4), [CapGoal("freeze-share", 0.0)])
    assert simulated_doubts(roomy, ()) == []


@pytest.mark.parametrize(
    ("name", "most"), [("freeze-share", 1.0), ("throughput-given-up", -0.1), ("p99-gap", -1.0)]
)
def test_goals_that_cannot_be_are_refused(name: str, most: float) -> None:
    """A share of all is no goal, and neither is a negative one."""
    with pytest.raises(ValueError, match=f"the goal {name}"):
        CapGoal(name, most)  # type: ignore[arg-type]


def test_a_search_without_throughput_gives_nothing_up() -> None:
    """Nor does it divide by it."""
    found = search(a_config(users=2, seeds=1), Caps(1, 1), [])
    assert isinstance(found, Search)
    assert found.chosen is not None


# What was observed


def test_streams_are_counted_by_how_many_were_open_with_them() -> None:
    """Ten alone, and ten beside each other of which half froze."""
    records = [at(10 * n, 5) for n in range(10)] + [at(1000, 5, freezes=n % 2) for n in range(10)]
    assert levels_of(records) == [Level(1, 10, 0, 0.1), Level(10, 20, 5, 9.0)]
    assert observed_cap(levels_of(records), 0.01, enough=10) == Level(1, 10, 0, 0.1)
    assert observed_cap(levels_of(records), 0.5, enough=10) == levels_of(records)[-1]
    assert observed_cap(levels_of(records), 0.01, enough=11) is None


def test_an_abandoned_stream_is_part_of_the_load() -> None:
    """It took memory for what it wrote."""
    left = a_record(outcome=Outcome.CANCELLED, finish_reasons=(), input_tokens=10, output_tokens=40)
    assert [shape.answer for shape in load_of([left]).requests] == [40]
