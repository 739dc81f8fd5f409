"""The freezes of a stream, one by one, as its record keeps them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest
from benchmarks.wire import WireServer
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI

from midstream import FreezeSpan
from midstream.stream.freezes import MOST_SPANS, keep
from midstream.testing import CUT, DONE, ManualClock, chunk, collect, finish, scripted, text
from support.harness import ASK, a_client, stream_of

KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


def a_span(at_s: float, length_s: float) -> FreezeSpan:
    return FreezeSpan(at_s, length_s, "text", hidden=False, shared=False, open=False)


def read(kind: str, script: list[tuple[float, str]], **settings: Any) -> Any:
    client = a_client(kind, script, ManualClock(), **settings)

    async def drive() -> None:
        async for _ in await stream_of(client):
            pass

    with contextlib.suppress(Exception):  # a connection that breaks is the caller's to see
        asyncio.run(drive())
    return client.seen.record


@KINDS
def test_record_has_every_freeze_with_its_place_length_and_phase(kind: str) -> None:
    """Offsets count from the call, as that of the longest gap does."""
    script = [
        (1.0, chunk({"reasoning": "hm"})),
        (7.5, chunk({"reasoning": "so"})),
        (8.0, text("It ")),
        (9.0, text("is ")),
        (29.0, text("two.")),
        (29.0, finish() + DONE),
    ]
    record = read(kind, script)

    assert record.freeze_spans == (
        FreezeSpan(at_s=1.0, length_s=6.5, phase="reasoning", hidden=False, shared=False, open=False),
        FreezeSpan(at_s=9.0, length_s=20.0, phase="text", hidden=False, shared=False, open=False),
    )
    assert (record.max_gap_at_s, record.max_gap_s) == (9.0, 20.0)


@KINDS
def test_freeze_that_no_chunk_ended_is_open(kind: str) -> None:
    """The connection broke while the caller waited."""
    record = read(kind, [(1.0, text("a")), (2.0, text("b")), (14.0, CUT)])

    assert record.max_gap_open
    assert record.freeze_spans == (FreezeSpan(2.0, 12.0, "text", hidden=False, shared=False, open=True),)


@KINDS
def test_stream_without_a_freeze_has_no_spans(kind: str) -> None:
    """A gap below the threshold is a gap and no freeze; with freezes switched off there are none at all."""
    assert read(kind, [(1.0, text("a")), (5.9, text("b")), (6.0, finish() + DONE)]).freeze_spans == ()
    off = read(kind, [(1.0, text("a")), (99.0, text("b")), (99.0, finish() + DONE)], freeze_after_s=None)
    assert off.freeze_spans == ()


def test_freezes_of_a_whole_server_are_marked_as_shared() -> None:
    """Two streams of one server fall silent together: the later one to be noticed has company, and so has the first."""
    clock = ManualClock()
    seen = collect(clock=clock)
    scripts = [
        [(1.0, text("a")), (1.5, text("b")), (20.0, text("c")), (20.0, finish() + DONE)],
        [(0.5, text("a")), (0.6, text("b")), (21.0, text("c")), (21.0, finish() + DONE)],
    ]
    clients = [OpenAI(api_key="none", http_client=scripted(script, clock)) for script in scripts]
    streams = [seen.monitor(one).chat.completions.create(**ASK, stream=True) for one in clients]
    for _ in range(2):
        for stream in streams:
            next(stream)
    # One thread reads both: while it waits for the first, the second is not waited for, but has been silent before.
    for stream in streams:
        list(stream)

    assert [len(record.freeze_spans) for record in seen.records] == [
        record.freezes for record in seen.records
    ]
    assert [sum(span.shared for span in record.freeze_spans) for record in seen.records] == [
        record.shared for record in seen.records
    ]


def test_freeze_that_the_caller_did_not_wait_for_is_hidden() -> None:
    """The connection shows it; it has a place in the stream like any other."""
    script = [*((0.05 * n, text("word ")) for n in range(1, 11))]
    script += [(1.5 + 0.05 * n, text("word ")) for n in range(1, 21)]
    with WireServer([*script, (2.6, finish()), (2.6, DONE)]) as wire:
        client = OpenAI(api_key="none", base_url=wire.base_url)
        seen = collect(client, freeze_after_s=0.6)
        for number, _ in enumerate(client.chat.completions.create(**ASK, stream=True), 1):
            if number == 10:
                time.sleep(1.4)  # the caller's own work
        client.close()

    (span,) = seen.record.freeze_spans
    assert (span.hidden, span.shared, span.open, span.phase) == (True, False, False, "text")
    assert span.length_s == pytest.approx(1.05, abs=0.2)
    assert span.at_s == pytest.approx(0.5, abs=0.3)


@given(
    gaps=st.lists(st.floats(min_value=0.01, max_value=30.0), min_size=1, max_size=12),
    cut=st.booleans(),
)
def test_spans_always_add_up_to_what_the_record_says_of_freezes(gaps: list[float], cut: bool) -> None:
    """As many as `freezes`, as long as `frozen_s`, the longest of them the longest gap, and none overlaps the next."""
    moments = [sum(gaps[:n]) for n in range(1, len(gaps) + 1)]
    script = [(moment, text("x")) for moment in moments]
    script[-1] = (moments[-1], CUT) if cut else (moments[-1], text("x") + finish() + DONE)
    record = read("sync", script)

    assert len(record.freeze_spans) == record.freezes
    assert sum(span.length_s for span in record.freeze_spans) == pytest.approx(record.frozen_s)
    assert all(span.length_s >= 5.0 for span in record.freeze_spans)
    assert all(
        span.at_s + span.length_s <= after.at_s + 1e-6
        for span, after in zip(record.freeze_spans, record.freeze_spans[1:], strict=False)
    )
    if record.freeze_spans:
        assert max(span.length_s for span in record.freeze_spans) == record.max_gap_s


def test_of_more_freezes_than_a_record_holds_the_longest_are_kept_in_order() -> None:
    """A hundred freezes, of which the short ones in the middle go."""
    kept: tuple[FreezeSpan, ...] = ()
    lengths = [50.0 + n if n < 32 or n >= 68 else 5.0 + n / 100 for n in range(100)]
    for number, length in enumerate(lengths):
        kept = keep(kept, a_span(100.0 * number, length))

    assert len(kept) == MOST_SPANS == 64
    assert [span.at_s for span in kept] == [100.0 * n for n in [*range(32), *range(68, 100)]]
