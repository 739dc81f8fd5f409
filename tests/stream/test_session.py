"""The books of one stream, kept in the long way and in the short one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midstream.stream.chunks import NOTHING, REASONING, TEXT, TOOL_CALL, Reading
from midstream.stream.model import Outcome
from midstream.stream.session import Session
from midstream.stream.snapshots import record_of
from midstream.testing import DONE, ManualClock, chunk, finish, text
from support.harness import a_client
from support.records import a_call

SECONDS = st.sampled_from([0.0, 1 / 1024, 0.25, 0.5, 1.0, 2.0, 4.5])
READINGS = st.sampled_from(
    [TEXT, TEXT, TEXT, REASONING, TOOL_CALL, NOTHING, Reading(finishes=((0, "stop"),))]
)
FREEZE_AFTER_S = 5.0


def reasoning(thought: str) -> str:
    return chunk({"reasoning_content": thought})


@given(st.lists(st.tuples(READINGS, SECONDS, SECONDS), max_size=40), SECONDS)
@example(
    [(Reading(finishes=((0, "stop"),)), 0.0, 0.0), (TEXT, 0.0, 0.5), (TEXT, 0.0, 0.0), (TEXT, 0.0, 0.5)], 0.0
)
def test_the_short_way_of_keeping_the_books_gives_the_same_record(
    chunks: list[tuple[Reading, float, float]], tail: float
) -> None:
    """More of the same is summed up in place while it is no more than that; the long way gives the same sums."""
    long, short = (Session(a_call(), 0.0, FREEZE_AFTER_S) for _ in range(2))
    now = 0.0
    for reading, hold, wait in chunks:
        now += hold
        long.wait_from = short.wait_from = now
        now += wait
        long.chunk(reading, now)
        if reading is short.steady and now - short.last_event < FREEZE_AFTER_S:
            short.on_steady_chunk(now)
        else:
            short.chunk(reading, now)
        assert (long.chunks, long.open_gap(now), long.fast_path_state) == (
            short.chunks,
            short.open_gap(now),
            short.fast_path_state,
        )
        assert (long.last_content, long.caught_up) == (short.last_content, short.caught_up)
    long.wait_from = short.wait_from = now
    assert long.exhausted(now + tail) == short.exhausted(now + tail)

    assert record_of(short, Outcome.COMPLETED, None) == record_of(long, Outcome.COMPLETED, None)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("pieces", [text("a"), reasoning("a")], ids=["text", "reasoning"])
def test_longest_gap_among_many_has_its_place_and_its_length(kind: str, pieces: str) -> None:
    """Far below the threshold as well, in the middle of an answer that flows."""
    clock = ManualClock()
    moments = [1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 3.25, 3.5, 3.75, 4.25]
    client = a_client(
        kind, [*((moment, pieces) for moment in moments), (4.25, finish()), (4.25, DONE)], clock
    )

    async def read() -> None:
        async for _ in await client.create():
            pass

    asyncio.run(read())

    record = client.seen.record
    assert (record.max_gap_s, record.max_gap_at_s, record.max_interval_s) == (1.0, 2.25, 1.0)
    assert (record.chunks, record.content_chunks, record.waited_s, record.max_hold_s) == (11, 10, 4.25, 0.0)
