"""The emulated vLLM held to the real one: the same eight clients, and what `monitor()` records of them."""

from __future__ import annotations

import pytest
from benchmarks.reality_live import emulated, observed, records, wall_s

from midstream import StreamRecord

pytestmark = pytest.mark.alone

SPEED = 4.0
"""The emulated server runs four times as fast as the real one; what is measured is stretched again."""


@pytest.fixture(scope="module")
def over8() -> list[StreamRecord]:
    """Return the records of eight clients in a pool of 28 blocks."""
    return records(observed(), emulated(SPEED, num_gpu_blocks=28))


def gap_s(record: StreamRecord) -> float:
    """Return the longest gap, at the real server's pace."""
    return (record.max_gap_s or 0.0) * SPEED


def test_every_stream_ends_as_it_did(over8: list[StreamRecord]) -> None:
    """700 tokens each, and the limit as the reason."""
    assert [record.output_tokens for record in over8] == [700] * 8
    assert {record.finish_reasons for record in over8} == {("length",)}
    assert all(record.outcome == "completed" and record.limit_hit for record in over8)


def test_the_same_streams_freeze_in_the_same_order(over8: list[StreamRecord]) -> None:
    """Stream 7 and 6 first, then 5, then 4; nobody else for two seconds."""
    frozen = {number: record for number, record in enumerate(over8) if gap_s(record) >= 1.5}
    assert set(frozen) == {4, 5, 6, 7}
    began = {number: r.started_at + (r.max_gap_at_s or 0.0) for number, r in frozen.items()}
    assert max(began[6], began[7]) < began[5] < began[4]


@pytest.mark.parametrize("stream", [4, 5, 6, 7])
def test_each_freeze_is_about_as_long_as_the_real_one(stream: int, over8: list[StreamRecord]) -> None:
    """The real ones were 2.6, 4.9, 7.6 and 8.1 s."""
    assert gap_s(over8[stream]) == pytest.approx(observed().streams[stream].longest_gap_s, abs=1.2)


def test_what_passes_in_all_agrees(over8: list[StreamRecord]) -> None:
    """Within 15 %, stretched; and each stream within two seconds."""
    load = observed()
    assert wall_s(over8) * SPEED == pytest.approx(load.wall_s, rel=0.15)
    for stream, record in zip(load.streams, over8, strict=True):
        assert record.duration_s * SPEED == pytest.approx(stream.end_s - stream.start_s, abs=2.0)


def test_with_the_cap_nobody_freezes_and_half_of_them_wait() -> None:
    """As recorded: streams 4 to 7 had their first token after 11.9 s, and no gap exceeded 0.1 s."""
    load = observed("cap4_active")
    found = records(load, emulated(SPEED, num_gpu_blocks=28, max_num_active_seqs=4))
    assert max(gap_s(record) for record in found) < 1.5
    waits = [(record.time_to_first_content_s or 0.0) * SPEED for record in found]
    assert max(waits[:4]) < 2.0
    assert all(wait == pytest.approx(11.9, abs=1.5) for wait in waits[4:])
