"""What happened between readings, and which freezes go with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.advice.matching import chance, match, sentence
from midstream.advice.watching import Between, Watched, between
from midstream.engines.page import MetricReading
from midstream.sources.scrape import Scraped
from midstream.sources.server import view_of
from support.metrics_pages import SGLANG, TGI, TRTLLM, TRTLLM_JSON, vllm


def read(page: str, at: float) -> Scraped:
    """A page as it was read in no time."""
    return Scraped(view_of(page), at, at)


def counted(*preemptions: float | None, start: float = 100.0, width: float = 1.0) -> list[Between]:
    """Readings a second apart, with so many preemptions between each two."""
    nothing = MetricReading(None, "not asked")
    return [
        Between(start + width * index, start + width * (index + 1), MetricReading(each), nothing, nothing)
        for index, each in enumerate(preemptions)
    ]


def test_counters_are_told_by_what_they_grew() -> None:
    """Four preemptions and 100 tokens in two seconds."""
    found = between(read(vllm(preemptions=3, tokens=50), 10.0), read(vllm(preemptions=7, tokens=150), 12.0))

    assert (found.preemptions.value, found.preemptions_per_s.value, found.tokens_per_s.value) == (4, 2, 50)
    assert (found.since, found.until, found.restarted) == (10.0, 12.0, False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (vllm(preemptions=9, tokens=900), vllm(preemptions=2, tokens=950)),
        (vllm(preemptions=2, tokens=900), vllm(preemptions=2, tokens=10)),
        (
            "process_start_time_seconds 5\n" + vllm(preemptions=1),
            "process_start_time_seconds 9\n" + vllm(preemptions=2),
        ),
    ],
    ids=["fewer preemptions", "fewer tokens", "another start"],
)
def test_a_restart_is_no_negative_rate(old: str, new: str) -> None:
    """What was counted since then is what is known."""
    found = between(read(old, 10.0), read(new, 11.0))

    assert found.restarted
    assert found.preemptions.value == 2


def test_a_number_that_was_not_known_before_has_no_rate() -> None:
    """Nor has one that is not known now; neither is 0."""
    lost = vllm().replace("num_preemptions_total", "something_else")

    before = between(read(lost, 10.0), read(vllm(preemptions=5), 11.0))
    after = between(read(vllm(preemptions=5), 10.0), read(lost, 11.0))

    assert (before.preemptions.value, before.preemptions.why) == (None, "it was not known before")
    assert (after.preemptions.value, after.preemptions_per_s.value) == (None, None)


def test_the_first_retraction_of_sglang_is_one() -> None:
    """Its series is born with it."""
    born = SGLANG + 'sglang:num_retracted_requests_total{model_name="m"} 1.0\n'

    assert between(read(SGLANG, 1.0), read(born, 2.0)).preemptions.value == 1


def test_an_estimate_that_falls_is_no_restart() -> None:
    """TGI counts requests before passes."""
    found = between(read(TGI, 1.0), read(TGI.replace("tgi_request_count 10", "tgi_request_count 12"), 2.0))

    assert (found.preemptions.value, found.restarted) == (0, False)


def test_who_is_paused_is_known_only_while_it_is_seen() -> None:
    """Of the gauge, 0 at a moment says nothing of the time between; of the list of iterations it does."""
    gauge = between(
        read(TRTLLM, 1.0),
        read(TRTLLM.replace('requests{model_name="m"} 2.0', 'requests{model_name="m"} 0.0'), 2.0),
    )
    nobody = TRTLLM_JSON.replace('"numPausedRequests": 2', '"numPausedRequests": 0')

    assert gauge.preemptions.value is None
    assert between(read(TRTLLM, 1.0), read(TRTLLM, 2.0)).preemptions.value == 2
    assert between(read(TRTLLM_JSON, 1.0), read(nobody, 2.0)).preemptions.value == 0


def test_a_server_that_fails_is_unknown_since_its_first_failure() -> None:
    """And known again with the next reading, which spans the time between."""
    watched = Watched()
    watched.read(read(vllm(preemptions=1), 10.0))
    watched.failed("nothing listens", 12.0)
    watched.failed("nothing listens", 14.0)

    assert (watched.now.unknown_since, watched.now.problem, watched.now.between) == (
        12.0,
        "nothing listens",
        None,
    )
    watched.read(read(vllm(preemptions=3), 16.0))
    assert (watched.now.unknown_since, watched.now.problem) == (None, None)
    assert [(each.since, each.until, each.preemptions.value) for each in watched.history] == [
        (10.0, 16.0, 2.0)
    ]


def test_another_engine_at_the_address_begins_anew() -> None:
    """Its numbers are not those of the one before."""
    watched = Watched()
    watched.read(read(vllm(), 10.0))
    watched.read(read(SGLANG, 12.0))

    assert list(watched.history) == []


@pytest.mark.parametrize(
    ("start", "length", "engine", "place", "said"),
    [
        (103.4, 7.6, "vllm", "start", "a freeze of 7.6 s that began 0.4 to 1.4 s after a preemption"),
        (102.7, 7.6, "vllm", "start", "a freeze of 7.6 s that began within 0.7 s of a preemption"),
        (95.4, 7.2, "vllm", "end", "a freeze of 7.2 s that ended with a preemption"),
        (101.2, 7.6, "vllm", "during", "a preemption came while it lasted, but not when it began"),
        (105.0, 2.0, "vllm", "none", "without any preemption in its time"),
        (105.0, 2.0, "sglang", "none", "without any retraction in its time"),
        (95.4, 7.2, "sglang", "unknown", "was not read in its time"),
        (200.0, 7.6, "vllm", "unknown", "was not read in its time"),
        (102.7, 7.6, "llamacpp", "never", "llama.cpp never preempts"),
    ],
)
def test_a_freeze_goes_with_what_was_counted_around_it(
    start: float, length: float, engine: str, place: str, said: str
) -> None:
    """One preemption, between 102 and 103, in ten seconds of readings."""
    found = match(start, start + length, counted(0, 0, 1, *[0] * 17, start=100.0), engine)

    assert found.place == place
    assert said in sentence(found, length, engine)


def test_a_freeze_in_time_that_was_not_read_is_not_said_to_have_no_cause() -> None:
    """The page could not be read when it began."""
    found = match(102.5, 106.0, counted(0, 0, None, 0, 0, 0, 0, 0), "vllm")

    assert found.place == "unknown"


def test_a_stream_that_ended_in_its_freeze_may_have_been_preempted_all_the_same() -> None:
    """Its preemption is reported with its next output, and there is none."""
    found = match(102.5, 106.0, counted(*[0] * 10), "vllm")

    assert "does not count a preemption of a request that is given up" in sentence(
        found, 3.5, "vllm", ended=False
    )


def test_chance_is_the_share_of_time_at_a_preemption() -> None:
    """One second of ten with a preemption, half a second more on each side."""
    assert chance(counted(0, 0, 0, 1, 0, 0, 0, 0, 0, 0)) == pytest.approx(0.2)
    assert chance(counted(0, 0, 0, 1, 1, 0, 0, 0, 0, 0)) == pytest.approx(0.3)
    assert chance(counted(0, 0, 0, 1, 0, 0, 0, 0, 0, 0), tries=2) == pytest.approx(0.36)
    assert chance(counted(None, None)) is None


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=30),
    st.floats(90, 140),
    st.floats(0.01, 30),
    st.sampled_from(["vllm", "sglang", "tgi", "trtllm", "llamacpp"]),
)
def test_a_match_always_names_a_preemption_and_its_absence_is_always_covered(
    preemptions: list[int | None], start: float, length: float, engine: str
) -> None:
    """Nothing is claimed that was not read."""
    history = counted(*preemptions)
    found = match(start, start + length, history, engine)

    assert sentence(found, length, engine)
    if found.place in ("start", "end", "during"):
        assert found.preemptions
    if found.place == "none":
        assert history[0].since <= start - 0.5
        assert history[-1].until >= start + 0.5
    chances = chance(history)
    assert chances is None or 0 <= chances <= 1
