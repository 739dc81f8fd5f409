"""The targets of `make fuzz`, without a fuzzer: what it found once, and a few mutations of what they begin with."""

from __future__ import annotations

import pytest
from fuzz.targets import targets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TARGETS = targets()

FOUND = [
    ("recording", b'{"request":{"url":"http://[","body":{"model":"m"}}}\n{"t":0,"status":200,"headers":{}}'),
    ("start_up_log", b"GPU KV cache size: , tokens"),
    ("start_up_log", b"max_total_num_tokens=" + b"9" * 5000),
    ("model_config", b'{"num_layers":' + b"5" * 90 + b',"num_key_value_heads":8,"head_dim":128}'),
    ("model_config", b'{"num_layers":2000000000,"num_key_value_heads":8,"head_dim":128}'),
]


@pytest.mark.parametrize(("name", "data"), FOUND, ids=lambda value: value if isinstance(value, str) else "")
def test_what_the_fuzzer_found_is_refused(name: str, data: bytes) -> None:
    """In the parser's own words."""
    TARGETS[name].call(data)


def test_journal_whose_schema_is_no_text_is_damaged() -> None:
    """SQLite quotes it in a message that Python's bindings cannot decode."""
    (seed,) = TARGETS["journal"].seeds

    TARGETS["journal"].call(seed.replace(b"CREATE TABLE streams", b"CREATE\xce TABL\xff streams"))
    TARGETS["journal"].call(seed.replace(b"started_at", b"start\xce\xff_at"))


@pytest.mark.parametrize("name", TARGETS)
def test_target_takes_what_it_begins_with(name: str) -> None:
    """And has something to begin with."""
    target = TARGETS[name]
    assert target.seeds
    for seed in target.seeds:
        target.call(seed)
        target.call(seed[: len(seed) // 2])
    target.call(b"")


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_target_takes_mutations(name: str, data: st.DataObject) -> None:
    """Bytes cut out, put in and repeated anywhere."""
    target = TARGETS[name]
    seed = data.draw(st.sampled_from(target.seeds))
    begin = data.draw(st.integers(0, len(seed)))
    end = data.draw(st.integers(begin, min(len(seed), begin + 60)))
    words = st.sampled_from([word.encode("utf-8", "replace") for word in target.words])
    middle = data.draw(st.one_of(st.binary(max_size=20), words, st.just(seed[begin:end] * 2)))

    target.call(seed[:begin] + middle + seed[end:])
