"""Flags by engine and version, programs that hold back by themselves, and what speaks against it all."""

from __future__ import annotations

import asyncio
import sys
import threading
import types
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from midstream.advice.client_side import async_program, threaded_program
from midstream.advice.doubts import doubts
from midstream.advice.engines import FLAGS, flags_for
from midstream.advice.load import load_of
from midstream.advice.reserving import RESERVING
from midstream.engines.flags import Flag, Situation, version_of
from midstream.lab.admission import ENGINES
from midstream.sources.server import view_of
from midstream.stream.model import Outcome, StreamRecord
from support.records import a_record

KNOWN = Situation(cap=12, limit=2048, longest_prompt=1000, pool_tokens=30_240)


def texts(engine: str, situation: Situation = KNOWN, version: str | None = None) -> list[str]:
    """What is to be set."""
    told = None if version is None else version_of(version)
    return [flag.text for flag in flags_for(engine, situation, told).flags]


def traps(engine: str, version: str | None = None) -> str:
    """What to beware of, in one text."""
    return " ".join(flags_for(engine, KNOWN, None if version is None else version_of(version)).traps)


# Flags


def test_every_engine_of_the_lab_is_known_and_a_hosted_api() -> None:
    """An engine that is added there must be added here."""
    assert FLAGS.keys() == RESERVING.keys() == {*ENGINES, "hosted"}


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.33.0", ["--max-num-active-seqs 12"]),
        ("0.31.0rc1", ["--max-num-active-seqs 12"]),
        ("v0.30.2", ["--max-num-seqs 12"]),
        (None, ["--max-num-active-seqs 12", "--max-num-seqs 12"]),
    ],
)
def test_vllms_flag_depends_on_its_version(version: str | None, flags: list[str]) -> None:
    """From 0.31 on there is one that caps what runs and nothing else."""
    assert texts("vllm", version=version) == flags


def test_vllms_watermark_is_a_trap_where_it_exists() -> None:
    """From 0.24 on."""
    assert "--watermark" in traps("vllm", "0.24")
    assert "--watermark" not in traps("vllm", "0.23")
    assert "a lower max_tokens changes nothing here" in traps("vllm")


@pytest.mark.parametrize(
    ("seen", "flag"),
    [
        (
            {"preemptions_per_minute": 4.0, "kv_usage": 0.99, "waiting": 3.0},
            "--schedule-conservativeness 1.3",
        ),
        ({"preemptions_per_minute": 0.0, "kv_usage": 0.6, "waiting": 3.0}, "--schedule-conservativeness 0.3"),
        (
            {"preemptions_per_minute": 0.5, "kv_usage": 0.97, "waiting": 3.0},
            "--schedule-conservativeness 1.0",
        ),
        ({"preemptions_per_minute": 0.0, "kv_usage": 0.6, "waiting": 0.0}, "--schedule-conservativeness 1.0"),
        ({}, None),
        ({"kv_usage": 0.97, "waiting": 3.0}, None),
    ],
)
def test_sglangs_conservativeness_follows_its_metrics(seen: dict[str, Any], flag: str | None) -> None:
    """Up when it retracts often, down when it holds back; and nothing is said if nothing is known."""
    assert texts("sglang", Situation(cap=12, **seen)) == [
        "--max-running-requests 12",
        *([flag] if flag else []),
    ]


def test_tgis_two_limits_are_told_apart() -> None:
    """The pool is for all, and max-total-tokens for one request."""
    assert texts("tgi") == [
        "--max-batch-total-tokens 30240",
        "--max-total-tokens 3048",
        "max_tokens=2048",
        "at most 12 streams at once",
    ]
    assert flags_for("tgi", KNOWN, (2, 4)).flags[2].why == "all of it is set aside"
    assert flags_for("tgi-2.4", KNOWN).flags[2].why == "all of it is set aside"


def test_tensorrt_llms_policy_needs_its_other_manager() -> None:
    """The V2 manager overrides it."""
    assert texts("trtllm") == [
        "scheduler_config.capacity_scheduler_policy: GUARANTEED_NO_EVICT",
        "kv_cache_config.use_kv_cache_manager_v2: false",
        "max_tokens=2048",
        "max_batch_size: 12",
    ]
    assert "overrides GUARANTEED_NO_EVICT" in traps("trtllm")


def test_llamacpps_context_must_hold_every_slot() -> None:
    """12 slots of 1,000 + 2,048 tokens."""
    assert texts("llamacpp") == ["--parallel 12", "--ctx-size 36576", "--predict 2048"]


def test_a_hosted_api_is_capped_in_the_client() -> None:
    """There is no flag to set."""
    assert flags_for("hosted", KNOWN).flags[0] == Flag(
        "client", "at most 12 streams at once", "of all your processes together: divide it among them"
    )


def test_nothing_known_is_nothing_to_set() -> None:
    """No value is made up."""
    assert texts("vllm", Situation()) == []
    assert texts("hosted", Situation()) == []


def test_other_names_and_versions_are_refused() -> None:
    """With what there is."""
    with pytest.raises(ValueError, match="there is no engine ollama; choose from vllm, sglang"):
        flags_for("ollama", KNOWN)
    with pytest.raises(ValueError, match=r"'latest' is no version; write it as in 0\.31\.0"):
        version_of("latest")


@pytest.mark.parametrize(
    ("engine", "today", "limit", "gain"),
    [
        ("vllm", 16384, 2048, 0),
        ("trtllm", 16384, 2048, 14336),
        ("tgi-2.4", 16384, 2048, 14336),
        ("sglang", 16384, 2048, 2048),
        ("sglang", 16384, 8192, 0),
        ("sglang", None, 2048, 2048),
        ("tgi", 16384, 2048, 0),
        ("tgi", 16384, 512, 512),
        ("trtllm", None, 2048, None),
        ("hosted", 16384, 2048, None),
    ],
)
def test_what_a_lower_limit_gains(engine: str, today: int | None, limit: int, gain: int | None) -> None:
    """All of it where all is set aside, up to 4,096 on SGLang, up to 1,024 on TGI, nothing on vLLM."""
    assert RESERVING[engine].gain(today, limit) == gain


# Programs


class _Count:
    """A server that counts how many streams are open."""

    def __init__(self) -> None:
        self.open = self.most = 0

    def opened(self) -> None:
        self.open += 1
        self.most = max(self.most, self.open)


def _as_openai(monkeypatch: pytest.MonkeyPatch, name: str, create: Any) -> None:
    """Let `from openai import NAME` find a client whose chat completions are made by `create`."""
    completions = types.SimpleNamespace(create=create)
    client = types.SimpleNamespace(chat=types.SimpleNamespace(completions=completions))
    module = types.ModuleType("openai")
    setattr(module, name, lambda: client)
    monkeypatch.setitem(sys.modules, "openai", module)


def test_the_asyncio_program_keeps_to_its_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine callers, three streams at most, and every chunk arrives."""
    count = _Count()

    async def create(**_: Any) -> AsyncIterator[int]:
        async def stream() -> AsyncIterator[int]:
            count.opened()
            for chunk in range(4):
                await asyncio.sleep(0)
                yield chunk
            count.open -= 1

        return stream()

    _as_openai(monkeypatch, "AsyncOpenAI", create)
    names: dict[str, Any] = {}
    exec(async_program(3), names)  # noqa: S102 - what users are told to run

    async def read() -> list[int]:
        return [chunk async for chunk in names["answer"]([], model="m")]

    async def all_at_once() -> list[list[int]]:
        return await asyncio.gather(*(read() for _ in range(9)))

    assert asyncio.run(all_at_once()) == [[0, 1, 2, 3]] * 9
    assert count.most == 3


def test_the_threaded_program_keeps_to_its_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three get in, and the third when one has read to the end."""
    count, lock, go = _Count(), threading.Lock(), threading.Event()

    def create(**_: Any) -> Iterator[int]:
        with lock:
            count.opened()
        go.wait(10)
        yield from range(4)
        with lock:
            count.open -= 1

    _as_openai(monkeypatch, "OpenAI", create)
    names: dict[str, Any] = {}
    exec(threaded_program(2), names)  # noqa: S102 - what users are told to run
    read: list[list[int]] = []
    threads = [threading.Thread(target=lambda: read.append(list(names["answer"]([])))) for _ in range(6)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(10)
    assert read == [[0, 1, 2, 3]] * 6
    assert count.most <= 2


# Doubts


def frozen(count: int, **fields: Any) -> list[StreamRecord]:
    """Streams that froze once each."""
    return [a_record(freezes=1, frozen_s=9.0, shared=0, suspected="stall", **fields) for _ in range(count)]


def grounds(records: list[StreamRecord], **known: Any) -> list[str]:
    """What speaks against a cap, in a word each."""
    return [doubt.ground for doubt in doubts(records, **known)]


LEFT = a_record(outcome=Outcome.LEFT_EARLY)


def test_freezes_of_single_streams_that_people_left_raise_no_doubt() -> None:
    """That is what a cap is for."""
    assert doubts([*frozen(9), LEFT]) == []


def test_without_a_freeze_there_is_nothing_to_end() -> None:
    """However full the server is."""
    assert [doubt.sentence for doubt in doubts([a_record()] * 30)] == [
        "None of 30 streams froze: there is nothing for a cap to end."
    ]


def test_a_pool_that_never_fills_is_not_the_cause() -> None:
    """Ten streams of 4 tokens, in a pool of 1,000; a pool of 40 they fill."""
    records = [*frozen(9), LEFT]
    load = load_of(records)
    assert load.in_flight == 40
    assert grounds(records, load=load, pool_tokens=1000) == ["pool never full"]
    assert grounds(records, load=load, pool_tokens=40) == []


def test_a_server_that_has_preempted_nothing_is_not_the_cause() -> None:
    """What it says itself counts; what it does not say is not 0."""
    records = [*frozen(9), LEFT]
    told = view_of("vllm:num_preemptions_total 0.0\nvllm:num_requests_running 3\n")
    assert grounds(records, view=told) == ["no preemption"]
    assert grounds(records, view=view_of("vllm:num_preemptions_total 7.0\n")) == []
    assert grounds(records, view=view_of("vllm:num_requests_running 3\n")) == []


def test_freezes_of_the_whole_server_are_no_preemptions() -> None:
    """Most of them shared."""
    together = [a_record(freezes=1, frozen_s=9.0, shared=1, suspected="stall") for _ in range(8)]
    assert grounds([*frozen(5), *together, LEFT]) == ["whole server"]


def test_output_that_was_held_back_is_no_preemption() -> None:
    """The tokens came all at once."""
    held = [a_record(freezes=1, frozen_s=9.0, shared=0, suspected="withheld") for _ in range(8)]
    assert grounds([*held, LEFT]) == ["withheld"]


def test_work_that_nobody_watches_needs_no_cap() -> None:
    """Every frozen stream was waited for."""
    assert grounds(frozen(9)) == ["nobody watches"]


def test_a_queue_is_out_of_capacity() -> None:
    """Five in a hundred wait for more than ten seconds before the first token."""
    slow = [a_record(time_to_first_content_s=20.0) for _ in range(10)]
    quick = [a_record(time_to_first_content_s=0.5) for _ in range(90)]
    assert grounds([*frozen(9, time_to_first_content_s=0.5), *quick, *slow, LEFT]) == ["out of capacity"]


def test_a_cap_that_nobody_would_have_reached_is_told() -> None:
    """Ten streams at once, and a cap of ten."""
    records = [*frozen(9), LEFT]
    assert grounds(records, load=load_of(records), cap=10) == ["never reached"]
    assert grounds(records, load=load_of(records), cap=9) == []
