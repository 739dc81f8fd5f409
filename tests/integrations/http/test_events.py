"""The bytes of a body in events, wherever its pieces end, and in bounded memory."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.integrations.http.events import LONGEST_EVENT, EventSplitter, LineSplitter

FRAGMENTS = [
    b"data: a", b"data:b", b"data", b"data:", b"database: no", b": comment", b"event: error", b"id: 7", b"retry: 1",
    b"x", b"\xff\xfe", "data: \u00e9\u4f60".encode(), b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n",
]  # fmt: skip
BODIES = st.lists(
    st.sampled_from(FRAGMENTS),
    max_size=30,
).map(b"".join)


def cut(body: bytes, cuts: list[int]) -> list[bytes]:
    """The body in pieces that end at these places."""
    places = [0, *sorted(place % (len(body) + 1) for place in cuts), len(body)]
    return [body[start:end] for start, end in pairwise(places)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
def test_events_are_split_at_every_kind_of_line_end(end: bytes) -> None:
    """Comments and unknown fields are passed over, `data` lines are joined, an event cut off by the end is none."""
    body = end.join(
        [
            b"\xef\xbb\xbf: hello",
            b"id: 1",
            b"data: a",
            b"data: b",
            b"",
            b"event: error",
            b"data:c",
            b"",
            b"data: cut",
        ]
    )
    splitter = EventSplitter()

    assert splitter.split(body) == [(b"", b"a\nb"), (b"error", b"c")]
    assert splitter.pending
    assert splitter.rest() == []


@given(BODIES, st.lists(st.integers(0, 200), max_size=8))
def test_where_pieces_end_makes_no_difference(body: bytes, cuts: list[int]) -> None:
    """The same events, whether the body comes in one piece or in many."""
    whole, parts = EventSplitter(), EventSplitter()

    assert [event for piece in cut(body, cuts) for event in parts.split(piece)] == whole.split(body)


@given(BODIES, st.lists(st.integers(0, 200), max_size=8))
def test_json_lines_are_split_wherever_pieces_end(body: bytes, cuts: list[int]) -> None:
    """Every line that is not empty, the last one without an end as well."""
    splitter = LineSplitter()

    lines = [line for piece in cut(body, cuts) for _, line in splitter.split(piece)]
    lines += [line for _, line in splitter.rest()]

    assert lines == [line for line in body.splitlines() if line]


@pytest.mark.parametrize("kind", [EventSplitter, LineSplitter], ids=["events", "lines"])
def test_a_line_without_an_end_costs_bounded_memory(kind: type[EventSplitter | LineSplitter]) -> None:
    """What is longer than an event may be is no event; what comes after it is read again."""
    splitter = kind()
    piece = b"x" * 65536
    tracemalloc.start()
    try:
        found = [event for _ in range(400) for event in splitter.split(b"data: " + piece)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert found == []
    assert peak < 4 * LONGEST_EVENT
    after = splitter.split(b"\n\ndata: y\n\n")
    assert [data for _, data in after] == ([b"y"] if kind is EventSplitter else [b"data: y"])


def test_an_event_of_endless_lines_costs_bounded_memory() -> None:
    """Many `data` lines of one event are as long as one long line."""
    splitter = EventSplitter()
    lines = b"data: 0123456789\n" * 1000
    tracemalloc.start()
    try:
        found = [event for _ in range(400) for event in splitter.split(lines)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert found == []
    assert peak < 16 * LONGEST_EVENT
    assert splitter.split(b"\ndata: y\n\n") == [(b"", b"y")]
