"""A server's own page of metrics: every engine's, older names, absent series, and pages that are none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engines import EngineFacts
from midstream.sources.server import ENGINES, NothingYetError, PageError, ServerView, view_of
from support.metrics_pages import LLAMACPP, RECORDED, SGLANG, TGI, TRTLLM, TRTLLM_JSON, vllm


def numbers(view: ServerView) -> dict[str, float | None]:
    """The numbers of a view, by name."""
    names = ("running", "waiting", "kv_usage", "preemptions", "preempted_now", "generated", "pool_tokens")
    return {name: getattr(view, name).value for name in names}


def test_a_recorded_page_of_vllm_is_read_in_full() -> None:
    """28 blocks of 128 tokens, and four preemptions."""
    view = view_of(RECORDED.read_text())

    assert (view.engine, view.models) == ("vllm", ("tiny",))
    assert numbers(view) == {
        "running": 0.0,
        "waiting": 0.0,
        "kv_usage": 0.0,
        "preemptions": 4.0,
        "preempted_now": None,
        "generated": 7589.0,
        "pool_tokens": 3584,
    }
    assert dict(view.unknown()) == {}
    assert view_of("process_start_time_seconds 5\n" + vllm()).started_at == 5


@pytest.mark.parametrize(
    ("page", "engine", "expected"),
    [
        (
            SGLANG,
            "sglang",
            {
                "running": 3,
                "waiting": 2,
                "kv_usage": 0.25,
                "preemptions": 0,
                "pool_tokens": 20000,
                "generated": 500,
            },
        ),
        (TGI, "tgi", {"running": 2, "waiting": 4, "kv_usage": None, "preemptions": 4, "generated": 900}),
        (
            TRTLLM,
            "trtllm",
            {"running": 5, "waiting": 1, "kv_usage": 0.75, "preempted_now": 2, "pool_tokens": 3200},
        ),
        (
            TRTLLM_JSON,
            "trtllm",
            {"running": 4, "waiting": 1, "kv_usage": 0.5, "preempted_now": 2, "pool_tokens": 3200},
        ),
        (LLAMACPP, "llamacpp", {"running": 2, "waiting": 7, "kv_usage": None, "generated": 70}),
    ],
    ids=["sglang", "tgi", "trtllm", "trtllm-json", "llamacpp"],
)
def test_every_engine_is_known_by_its_page(page: str, engine: str, expected: dict[str, float | None]) -> None:
    """And what it does not tell is None and not 0."""
    view = view_of(page)

    assert view.engine == engine
    found = numbers(view)
    assert {name: found[name] for name in expected} == expected


OBSERVED = [facts for facts in ENGINES.values() if facts.series is not None]


@pytest.mark.parametrize("facts", OBSERVED, ids=lambda facts: facts.key)
def test_the_names_that_alerts_use_are_the_names_that_are_read(facts: EngineFacts) -> None:
    """Two tables of the same names would drift apart."""
    assert facts.series is not None
    names = (facts.series.running, facts.series.waiting, facts.series.usage, facts.series.preemptions)
    view = view_of("".join(f'{name}{{model_name="m"}} 0.5\n' for name in names))

    assert view.engine == facts.key
    preempted = view.preempted_now if view.preempted_now.exists else view.preemptions
    assert [view.running.value, view.waiting.value, view.kv_usage.value, preempted.value] == [0.5] * 4


@pytest.mark.parametrize("prefix", ["ray_vllm_", "ray_vllm:"])
def test_ray_serves_names_of_vllms_metrics_are_understood(prefix: str) -> None:
    """Ray exports them through its own agent, with its own labels, one series for each worker."""
    worker = 'WorkerId="{0}",ReplicaId="r{0}",SessionName="s",model_name="m",engine="0"'
    page = "ray_node_cpu_count 8\n" + "".join(
        f"{prefix}{name}{{{worker.format(number)}}} {value}\n"
        for number in (1, 2)
        for name, value in (
            ("num_requests_running", 3),
            ("num_requests_waiting", 2),
            ("kv_cache_usage_perc", 0.25 * number),
            ("num_preemptions_total", 7),
            ("generation_tokens_total", 100),
        )
    )

    view = view_of(page)

    assert (view.engine, view.models) == ("vllm", ("m",))
    assert (view.running.value, view.waiting.value, view.kv_usage.value) == (6, 4, 0.5)
    assert (view.preemptions.value, view.generated.value) == (14, 200)
    assert view.pool_tokens.value is None


def test_a_page_of_ray_without_an_engines_metrics_says_how_to_get_them() -> None:
    """`log_engine_metrics` of Ray Serve's LLM configuration."""
    with pytest.raises(PageError, match="set log_engine_metrics"):
        view_of("ray_node_cpu_count 8\n")


def test_the_old_name_of_kv_use_is_understood() -> None:
    """It was gpu_cache_usage_perc in vLLM 0.11."""
    view = view_of(vllm(usage=0.5).replace("kv_cache_usage_perc", "gpu_cache_usage_perc"))

    assert view.kv_usage.value == 0.5


def test_data_parallel_engines_are_added_up_and_the_fullest_counts() -> None:
    """One pool each: preemptions begin when the first of them is full."""
    page = vllm(running=3, usage=0.2) + vllm(running=4, usage=0.9).replace('engine="0"', 'engine="1"')
    view = view_of(page)

    assert (view.running.value, view.kv_usage.value, view.pool_tokens.value) == (7, 0.9, 3200)
    assert view.pool_tokens.why == "in 2 separate pools together"


def test_a_series_that_is_there_twice_is_one() -> None:
    """Adding it up would make numbers that no server had; the first line counts, as it does for Prometheus."""
    view = view_of(vllm(running=3, usage=0.2) + vllm(running=4, usage=0.9))

    assert (view.running.value, view.kv_usage.value, view.pool_tokens.value) == (3, 0.2, 1600)


def test_the_other_ranks_of_sglang_are_not_added() -> None:
    """With --enable-metrics-for-all-schedulers each tensor-parallel rank repeats the same numbers."""
    twice = SGLANG + SGLANG.replace('tp_rank="0"', 'tp_rank="1"')
    two_replicas = SGLANG.replace("model_name", 'dp_rank="0",model_name') + SGLANG.replace(
        "model_name", 'dp_rank="1",model_name'
    )

    assert view_of(twice).running.value == 3
    assert view_of(twice).pool_tokens.value == 20000
    assert view_of(two_replicas).running.value == 6


def test_sglang_without_its_counter_has_retracted_nothing_or_is_too_old_to_tell() -> None:
    """The series is born with the first retraction, from 0.5.9 on; new_token_ratio is of 0.5.9, too."""
    old = "\n".join(line for line in SGLANG.splitlines() if "new_token_ratio" not in line) + "\n"
    declared = old + "# TYPE sglang:num_retracted_requests_total counter\n"
    counted = SGLANG + 'sglang:num_retracted_requests_total{model_name="m",tp_rank="0"} 7.0\n'

    assert view_of(SGLANG).preemptions.value == 0
    assert "with the first one" in view_of(SGLANG).preemptions.why
    assert view_of(old).preemptions.value is None
    assert "from 0.5.9 on" in view_of(old).preemptions.why
    assert view_of(declared).preemptions.value == 0
    assert view_of(counted).preemptions.value == 7


def test_a_vllm_without_statistics_says_how_it_was_started() -> None:
    """With --disable-log-stats a few names of vLLM's remain."""
    view = view_of('vllm:tool_call_parser_invocations_total{model_name="m"} 3.0\n')

    assert set(dict(view.unknown())) == {
        "running",
        "waiting",
        "kv_usage",
        "preemptions",
        "generated",
        "pool_tokens",
    }
    assert "--disable-log-stats" in view.running.why


def test_a_pool_without_a_number_is_not_known() -> None:
    """It says None until it has measured its memory."""
    view = view_of(vllm().replace('num_gpu_blocks="100"', 'num_gpu_blocks="None"'))

    assert view.pool_tokens.value is None
    assert "no number of blocks yet" in view.pool_tokens.why


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1.5"])
def test_a_value_that_cannot_be_is_not_known(value: str) -> None:
    """NaN is what a gauge says that nobody has set."""
    view = view_of(
        vllm().replace('kv_cache_usage_perc{engine="0",model_name="m"} 0.5', f"kv_cache_usage_perc {value}")
    )

    assert view.kv_usage.value is None
    assert view.kv_usage.why


def test_reading_trtllms_json_says_that_it_consumes() -> None:
    """A second reader steals from the first."""
    assert "takes what was read away" in view_of(TRTLLM_JSON).notes[0]


def test_no_iteration_of_trtllm_is_no_zero() -> None:
    """An idle server has none since the last reading."""
    view = view_of("[]")

    assert view.engine == "trtllm"
    assert {name for name, value in numbers(view).items() if value is not None} == set()
    assert "the server is idle, or another reader took them" in view.running.why


def test_an_iteration_without_its_parts_is_read_as_far_as_it_goes() -> None:
    """Statistics of in-flight batching are absent without it."""
    view = view_of('[{"iter": 1, "numActiveRequests": 2}]')

    assert (view.running.value, view.waiting.value, view.kv_usage.value) == (2, None, None)
    assert view.preempted_now.why == "its iterations hold no inflightBatchingStats.numPausedRequests"


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<!DOCTYPE html><p>Welcome", "a web page"),
        ('{"error": "not here"}', "JSON, but not the iterations"),
        ("[1, 2]", "JSON, but not the iterations"),
        ("litellm_requests_metric_total 3\n", "LiteLLM proxy"),
        ("stream_max_gap_seconds_count 3\n", "midstream's own page"),
        ("prometheus_tsdb_head_series 3\n", "Prometheus' own page"),
        ("python_info 1\n", "none of vLLM, SGLang, TGI"),
        ("Hello there, this is a server\n", "no page of metrics"),
        ("vllm:num_requests_running{a 1\n", "no page of metrics"),
        (SGLANG + vllm(), "the page of vLLM and SGLang at once; say with --engine"),
    ],
)
def test_what_is_no_page_of_an_engine_is_said(page: str, said: str) -> None:
    """Each in words that tell what to do."""
    with pytest.raises(PageError, match=said):
        view_of(page)


def test_an_engine_that_is_named_settles_a_page_that_does_not_tell() -> None:
    """One of several, or one that has nothing to say yet."""
    assert view_of(SGLANG + vllm(), engine="vllm").engine == "vllm"
    with pytest.raises(NothingYetError):
        view_of("")
    fresh = view_of("", engine="sglang")
    assert {name for name, value in numbers(fresh).items() if value is not None} == set()


def test_openmetrics_is_read_as_well() -> None:
    """Whoever asks for it gets another format."""
    page = (
        "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n"
        "# TYPE vllm:num_preemptions counter\nvllm:num_preemptions_total 2\n# EOF\n"
    )
    view = view_of(page, "application/openmetrics-text; version=1.0.0")

    assert (view.running.value, view.preemptions.value) == (3, 2)


@given(st.text())
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    """Whatever answers at an address, there is a view or a sentence."""
    try:
        engine = view_of(text).engine
    except PageError:
        return
    assert engine in ENGINES


@given(st.sampled_from([vllm(preemptions=3, tokens=9), SGLANG, TGI, TRTLLM, LLAMACPP]), st.data())
def test_a_page_that_lost_lines_never_reads_zero_for_them(page: str, data: st.DataObject) -> None:
    """Except for SGLang's retractions, where absence is what zero looks like."""
    lines = page.splitlines(keepends=True)
    kept = [line for line in lines if data.draw(st.booleans(), label=line)]
    whole = numbers(view_of(page))
    try:
        view = view_of("".join(kept))
    except PageError:
        return
    for name, value in numbers(view).items():
        if view.engine == "tgi" and name == "preemptions":
            continue  # an estimate from three of its series
        assert value is None or math.isclose(value, whole[name] or 0), name
