"""The Python API of advice: from records and numbers to values, and the examples of its docstrings."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import pytest

from midstream import advice
from midstream.advice import (
    Caps,
    CompareGoal,
    NotEnoughStreams,
    PoolError,
    Quantile,
    advise_concurrency,
    advise_flags,
    advise_max_tokens,
    compare,
    limit_verdict,
    safe_concurrency,
    verdict,
)
from midstream.stream.model import StreamRecord
from support.records import a_record

ANSWERS = (720, 740, 700, 760, 620, 680, 640, 660)


def streams(froze: int, *, count: int = 64, first_content_s: float = 0.5) -> list[StreamRecord]:
    """Eight users who ask in turn, as in the demo; of each eight answers so many froze."""
    return [
        a_record(
            started_at=1.7e9 + 20.0 * (n // 8),
            duration_s=18.0,
            input_tokens=49,
            output_tokens=ANSWERS[n % 8],
            content_chunks=ANSWERS[n % 8],
            token_limit=1024,
            time_to_first_content_s=first_content_s,
            freeze_after_s=2.0,
            freezes=int(n % 8 < froze),
            max_gap_s=7.0 if n % 8 < froze else 0.2,
            frozen_s=7.0 if n % 8 < froze else 0.0,
            shared=0,
            hidden=0,
        )
        for n in range(count)
    ]


MODULES = ("capacity", "concurrency", "flags", "limits", "timeouts", "before_after")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_the_docstrings_are_true(name: str) -> None:
    """Each function of the API has one, run on streams like the demo's."""
    module = importlib.import_module(f"midstream.advice.{name}")
    known = {"records": streams(4), "records_with_cap": streams(0)}
    found = doctest.testmod(module, extraglobs={**vars(advice), **known})
    assert found.attempted >= 1
    assert found.failed == 0


def test_every_public_name_has_a_docstring() -> None:
    for name in advice.__all__:
        assert (getattr(advice, name).__doc__ or "").strip(), name


def test_the_two_caps_are_those_of_the_write_up() -> None:
    """Its long answers: a cache of 45,000 tokens, prompts of 150, answers of 2,840 on average and 11,076 at p95."""
    answers = [11_076] * 6 + [round((100 * 2840 - 6 * 11_076) / 94)] * 94
    assert safe_concurrency(45_000, [(150, answer) for answer in answers]) == Caps(never=4, average=15)
    assert safe_concurrency(10, [(150, 150)]) == Caps(1, 1)


@pytest.mark.parametrize(
    ("pool", "lengths", "sentence"),
    [
        (1000, [], "there are no lengths"),
        (1000, [(-1, 5)], "a length is a number of tokens, 0 or more"),
        (0, [(1, 5)], "the pool must hold at least one token"),
        (1000, [(0, 0)], "prompts and answers must have a length"),
    ],
)
def test_lengths_that_cannot_be_are_refused(pool: int, lengths: list[tuple[int, int]], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        safe_concurrency(pool, lengths)


def test_a_limit_comes_with_its_verdict() -> None:
    (group,) = advise_max_tokens(streams(0, count=800), cut=0.01).groups
    assert isinstance(group.limit, Quantile)
    assert group.limit.limit == 760
    assert limit_verdict(group).startswith("Set max_tokens to 760: it cuts at most 1 % of answers")


def test_a_change_that_helped_is_better_for_python_as_for_the_command_line() -> None:
    found = compare(streams(4), streams(0))
    assert found.verdict == "better"
    assert verdict(found, CompareGoal()).startswith(
        "Better: the share of streams that froze fell from 50 % to 0 %"
    )
    with pytest.raises(ValueError, match="a side has no records"):
        compare(streams(4), [])


def test_flags_and_concurrency_give_one_cap() -> None:
    """For the same streams and the same cache there is one number, and one way to it."""
    records = streams(4)
    cap = advise_concurrency(records, 3584).cap
    assert cap == 5
    found = advise_flags("vllm", records=records, pool=3584, version=(0, 31))
    assert found.situation.cap == cap
    assert [flag.text for flag in found.flags.flags] == ["--max-num-active-seqs 5"]
    assert found.cap_source.startswith(
        "as `midstream advise concurrency` finds it by simulation, between 4 (never)"
    )


def test_the_pace_is_that_of_the_streams_whatever_machine_is_named() -> None:
    """Another machine's figures are for streams that do not show their pace."""
    from midstream.lab.hardware import PROFILES

    records = streams(4)
    found = {
        name: advise_concurrency(records, 3584, otherwise=profile, seeds=1, requests=60)
        for name, profile in PROFILES.items()
    }
    assert {advice.cap for advice in found.values()} == {5}
    assert {advice.config.hardware.name for advice in found.values()} == {
        "a server that takes 20.4 ms a token, as these streams show"
    }
    burst = [a_record(**{**vars_of(record), "buffered": True}) for record in records]
    unknown = advise_concurrency(burst, 3584, otherwise=PROFILES["h100"], seeds=1, requests=60)
    assert unknown.config.hardware.name == "h100"


def vars_of(record: StreamRecord) -> dict[str, object]:
    """The fields of a record that its lengths and its place in time are."""
    names = ("started_at", "duration_s", "input_tokens", "output_tokens", "content_chunks", "token_limit")
    return {name: getattr(record, name) for name in names}


def test_few_streams_and_small_caches_are_refused_with_a_sentence() -> None:
    with pytest.raises(
        NotEnoughStreams, match=r"49 streams with known lengths are too few .*; 1 more is needed"
    ) as few:
        advise_concurrency(streams(0, count=49), 3584)
    assert few.value.more == 1
    with pytest.raises(PoolError, match="does not hold even one of these requests"):
        advise_concurrency(streams(0), 100)


WITHOUT_SCIPY = """
import sys
sys.modules["scipy"] = None
import midstream
assert "midstream.advice" not in sys.modules
from midstream import advice
assert advice.safe_concurrency(45_000, [(150, 2_840)]).average == 15
from midstream.advice.survival import curve_of
try:
    curve_of([1, 2, 3], [])
except ModuleNotFoundError as missing:
    print(missing)
"""


def test_without_scipy_only_limits_are_missed_and_the_extra_is_named() -> None:
    """And `import midstream` imports nothing of it."""
    ran = subprocess.run([sys.executable, "-c", WITHOUT_SCIPY], capture_output=True, text=True, check=True)
    assert ran.stdout == "limits from measurements need SciPy: pip install 'midstream[lab]'\n"
