"""`midstream.testing`: mistakes in a test are named, and not taken for a result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from openai import OpenAI

from midstream.testing import (
    DONE,
    Collected,
    ManualClock,
    collect,
    finish,
    scripted,
    scripted_openai,
    text,
)
from support.harness import ASK

__all__ = ["scripted_openai"]
FROZEN = [(0.1, text("a")), (0.2, text("b")), (9.2, text("c")), (9.3, finish()), (9.3, DONE)]


def test_scripted_client_brings_its_clock() -> None:
    """Or its freezes would be measured by a clock that nothing moves, and none would be counted."""
    client = OpenAI(api_key="none", http_client=scripted(FROZEN, ManualClock()))
    seen = collect(client)
    list(client.chat.completions.create(**ASK, stream=True))

    assert (seen.record.freezes, seen.record.max_gap_s) == (1, 9.0)


def test_scripted_client_of_another_clock_is_refused() -> None:
    """Whichever way it comes to be monitored."""
    client = OpenAI(api_key="none", http_client=scripted(FROZEN, ManualClock()))

    with pytest.raises(ValueError, match="scripted with another clock"):
        collect(client, clock=ManualClock())
    with pytest.raises(ValueError, match="scripted with another clock"):
        collect().monitor(client)


def test_missing_record_of_an_open_stream_is_explained() -> None:
    """A stream has its record when it has ended."""
    client = OpenAI(api_key="none", http_client=scripted(FROZEN, ManualClock()))
    seen = collect(client)
    stream = client.chat.completions.create(**ASK, stream=True)
    next(stream)

    with pytest.raises(
        AssertionError, match=r"expected one record, got 0: \[\]; not ended yet.*OpenStream 'm' holding"
    ):
        _ = seen.record


def test_script_out_of_order_is_refused() -> None:
    """Time does not go back."""
    with pytest.raises(ValueError, match=r"in the order of its times .*0\.2 comes after 0\.5"):
        scripted([(0.5, text("a")), (0.2, text("b"))], ManualClock())


def test_fixture_makes_a_client_and_collects(
    scripted_openai: Callable[..., tuple[Any, Collected]],
) -> None:
    """With the keywords of `collect()`."""
    client, seen = scripted_openai(FROZEN, freeze_after_s=2.0)
    list(client.chat.completions.create(**ASK, stream=True))

    assert [freeze.gap_s for freeze in seen.freezes] == [2.0]
    values = json.loads(json.dumps(seen.record.to_dict()))
    assert (values["outcome"], values["max_gap_s"], values["freeze_spans"][0]["length_s"]) == (
        "completed",
        9.0,
        9.0,
    )
    assert repr(seen.record) == (
        "<StreamRecord 'm' completed in 9.30 s: 3 content chunks, max_gap 9.00 s, 1 freezes, 0 hidden>"
    )


def test_state_of_an_open_stream_shows_that_it_is_frozen() -> None:
    """Beside waiting and holding."""
    clock = ManualClock()
    client = OpenAI(api_key="none", http_client=scripted(FROZEN, clock))
    states: list[str] = []

    def on_freeze(_: Any) -> None:
        states.extend(one.state for one in seen.streams())

    seen = collect(client, on_freeze=on_freeze)
    for _ in client.chat.completions.create(**ASK, stream=True):
        states.extend(one.state for one in seen.streams())

    assert states == ["holding", "holding", "frozen", "holding", "holding"]
