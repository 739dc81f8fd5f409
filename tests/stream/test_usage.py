"""Token counts, under every name and in every arrangement that servers have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from midstream.stream.usage import Usage, read_usage, token_count


def chat(prompt: Any, completion: Any, total: Any = None, **more: Any) -> dict[str, Any]:
    counted = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
    return counted if total is None else {**counted, "total_tokens": total}


def reasoning(tokens: Any) -> dict[str, Any]:
    return {"completion_tokens_details": {"reasoning_tokens": tokens}}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        (chat(0, 0, 0), None),
        (chat(3, 5, 8), Usage(3, 5)),
        # Reasoning is part of the output, as OpenAI counts it.
        (chat(32, 320, 352, **reasoning(300)), Usage(32, 320, None, 300)),
        (chat(32, 320, **reasoning(300)), Usage(32, 320, None, 300)),
        # Reasoning is counted beside the output, and the total shows it.
        (chat(32, 20, 352, **reasoning(300)), Usage(32, 320, None, 300)),
        (chat(21, 0, 81, **reasoning(60)), Usage(21, 60, None, 60)),
        (chat(32, 20, 352, reasoning_tokens=300), Usage(32, 320, None, 300)),
        (
            {
                "input_tokens": 32,
                "output_tokens": 20,
                "total_tokens": 352,
                "output_tokens_details": {"reasoning_tokens": 300},
            },
            Usage(32, 320, None, 300),
        ),
        # More reasoning than output: it cannot be part of it, whether there is a total or not.
        (chat(32, 20, **reasoning(300)), Usage(32, 320, None, 300)),
        # The total alone has the thoughts.
        (chat(20, 424, 1016), Usage(20, 996)),
        # What the total has beyond is what the cache had: no output.
        (chat(20, 5, 125, prompt_tokens_details={"cached_tokens": 100}), Usage(20, 5, 100)),
        # A total that is too small, or none, shows nothing.
        (chat(20, 5, 1), Usage(20, 5)),
        (chat(20, 5, 25.0), Usage(20, 5)),
        (chat(20, 5, True), Usage(20, 5)),
        (chat(20, 5, 10**400), Usage(20, 5)),
        # The cache under its two names.
        (chat(9, 1, 10, prompt_cache_hit_tokens=4), Usage(9, 1, 4)),
        (chat(9, 1, 10, prompt_tokens_details={"cached_tokens": 0}), Usage(9, 1, 0)),
        # Counts that are none.
        (chat(10**400, 5), Usage(None, 5)),
        (chat(5, 10**400), Usage(5, None)),
        (chat(2**53, 2**53), Usage(2**53, 2**53)),
        (chat(2**53 + 1, 2**53 + 1), None),
        (chat(-1, 5), Usage(None, 5)),
        (chat(5, 1.0), Usage(5, None)),
        (chat(5, True), Usage(5, None)),
        (chat(5, "7"), Usage(5, None)),
        (chat(5, float("nan")), Usage(5, None)),
        (chat(2, 2**53, 2**53 + 2, **reasoning(2**53)), Usage(2, 2**53, None, 2**53)),
        # The sum of two counts is a count as well, or unknown.
        (chat(2, 2**52 + 5, **reasoning(2**53)), Usage(2, None, None, 2**53)),
    ],
)
@pytest.mark.parametrize("make", [lambda usage: usage, lambda usage: usage and SimpleNamespace(**usage)])
def test_usage_is_read_whatever_form_it_has(usage: Any, expected: Usage | None, make: Any) -> None:
    """Mappings and objects alike; what is no number of tokens is unknown, never 0."""
    assert read_usage(make(usage)) == expected


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (0, 0),
        (7, 7),
        (2**53, 2**53),
        (2**53 + 1, None),
        (-1, None),
        (True, None),
        (7.0, None),
        ("7", None),
        (None, None),
        (float("inf"), None),
    ],
)
def test_number_of_tokens_is_an_integer_within_bounds(value: Any, count: int | None) -> None:
    """Beyond 2**53 floats and databases lose digits."""
    assert token_count(value) == count
