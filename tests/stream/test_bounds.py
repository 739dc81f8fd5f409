"""What a server can make us keep of one answer: little, however long it talks and whatever it calls things.

SECURITY.md says that a server cannot grow our memory with its answers, and that nothing of an answer's text is kept.
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress

import pytest
from openai import OpenAI

from midstream.testing import DONE, ManualClock, Script, chunk, collect, finish, scripted, text
from support.harness import ASK

MOST_CHARACTERS = 20_000
"""Of the record as a whole, all names in it included."""

FLOODS: dict[str, Script] = {
    "many chunks": [(1.0, text("a" * 100)) for _ in range(3000)],
    "many choices": [(1.0, text("a", index=number)) for number in range(3000)],
    "many usages": [(1.0, text("a", usage={"completion_tokens": 10**number})) for number in range(300)],
    "many models": [(1.0, text("a", model=f"m{number}")) for number in range(3000)],
    "many ends": [(1.0, finish("stop")) for _ in range(3000)],
    "many ends of many choices": [(1.0, finish(f"r{number}", index=number)) for number in range(3000)],
    "a long reason": [(1.0, text("a")), (1.0, finish("r" * 1_000_000))],
    "a long model": [(1.0, text("a", model="m" * 1_000_000))],
    "a huge number": [(1.0, text("a", usage={"completion_tokens": 10**4000}))],
    "long unknown fields": [(1.0, chunk({"content": "a"}, id="i" * 100_000, extra=["x" * 100_000]))],
}


@pytest.mark.parametrize("flood", FLOODS)
def test_record_stays_small_whatever_a_server_sends(flood: str) -> None:
    """The caller gets it all, and the record names the first of it at most."""
    clock = ManualClock()
    script = [*FLOODS[flood], (2.0, DONE)]
    client = OpenAI(api_key="none", http_client=scripted(script, clock), max_retries=0)
    seen = collect(client, clock=clock)

    chunks = len(list(client.chat.completions.create(**ASK, stream=True)))

    assert chunks == seen.record.chunks == len(FLOODS[flood])
    assert len(repr(seen.record)) < MOST_CHARACTERS
    client.close()


@pytest.mark.parametrize(
    "name", ["\ud800", "a\x00b\x1b[31m", "m" * 1_000_000], ids=["a surrogate", "controls", "a megabyte"]
)
def test_names_are_kept_as_valid_text_of_256_characters_at_most(name: str) -> None:
    """In the answer and in the request alike; what is sent stays as the caller wrote it."""
    clock = ManualClock()
    script = [(1.0, text("a", model=name)), (2.0, finish(name)), (2.0, DONE)]
    client = OpenAI(api_key="none", http_client=scripted(script, clock), max_retries=0)
    seen = collect(client, clock=clock, attributes={"team": name})
    with suppress(UnicodeEncodeError):  # the SDK cannot send a lone surrogate
        list(client.chat.completions.create(**{**ASK, "model": name}, stream=True))

    if seen.records:
        record = seen.record
        names = [
            record.request_model,
            record.response_model,
            record.attributes["team"],
            *record.finish_reasons,
        ]
        for kept in names:
            assert kept is not None
            assert len(kept) == min(len(name), 256)
            assert kept.isprintable()
    client.close()


def test_open_stream_holds_little_of_its_choices() -> None:
    """Thousands of choices take no more room than the 128 that can be asked for."""
    sizes = []
    for choices in (128, 5000):
        clock = ManualClock()
        script = [(1.0, text("a", index=number)) for number in range(choices)]
        client = OpenAI(api_key="none", http_client=scripted(script, clock), max_retries=0)
        seen = collect(client, clock=clock)
        stream = client.chat.completions.create(**ASK, stream=True)
        for _ in range(choices):
            next(stream)
        (tracker,) = seen.process.roster
        sizes.append(size_of(tracker.session))  # type: ignore[attr-defined]
        stream.close()
        client.close()

    assert sizes[1] < sizes[0] + 1000


def size_of(root: object) -> int:
    """The bytes of an object and of all that it alone can hold: its own parts and plain values."""
    seen: dict[int, object] = {}
    left = [root]
    while left:
        thing = left.pop()
        ours = type(thing).__module__.startswith("midstream")
        if id(thing) not in seen and (
            ours or isinstance(thing, set | frozenset | dict | list | tuple | str | int)
        ):
            seen[id(thing)] = thing
            left += gc.get_referents(thing)
    return sum(sys.getsizeof(thing) for thing in seen.values())
