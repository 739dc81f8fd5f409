"""The server's silence as samples of its connection tell it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._silence import SHARP_S, SMALL, Silence
from midstream._wire import Sample

WORD = 160
"""Bytes of a usual chunk of output."""


class Connection:
    """Pieces of data by their moments, sampled as the kernel would tell of them."""

    def __init__(self, *pieces: tuple[float, int]) -> None:
        self.pieces = pieces

    def at(self, moment: float) -> Sample:
        there = [(came, size) for came, size in self.pieces if came <= moment]
        return Sample(moment, there[-1][0], sum(size for _, size in there), len(there))


def looked_at(connection: Connection, moments: list[float], last_read: float = 0.0) -> Silence:
    silence = Silence()
    for moment in moments:
        silence.look(connection.at(moment), last_read, nothing_new=False)
    return silence


def test_silence_counts_once_output_is_read_that_came_after_it() -> None:
    """A silence that ended behind the caller's back is known at the samples, and counts when he has caught up."""
    silence = looked_at(Connection((0, WORD), (10, WORD)), [3, 5, 9.9, 10.05])
    before = silence.longest

    silence.caught_up()

    assert (before, silence.longest) == (None, 10)
    assert silence.hidden[0] == (0, 10)


def test_silence_after_the_last_output_never_counts() -> None:
    """The server may have finished; that nothing more comes is then no silence."""
    silence = looked_at(Connection((0, WORD), (1, WORD)), [0.5, 1.01, 60, 600])

    silence.caught_up(in_answer=False)

    assert silence.longest == 1


def test_silence_that_reached_into_the_callers_return_counts_as_far_as_it_was_seen() -> None:
    """One more piece came unread, then nothing; the caller read it, waited a little, and got more."""
    silence = looked_at(Connection((0, WORD), (1, WORD)), [0.9, 1.05, 3, 4])

    silence.caught_up()

    assert silence.longest == 3


@pytest.mark.parametrize(("tail", "counted"), [(600, None), (3000, 10)])
def test_at_the_end_only_more_bytes_than_a_tail_prove_output(tail: int, counted: float | None) -> None:
    """A late usage chunk is no output; three kilobytes hold some."""
    silence = looked_at(Connection((0, WORD), (10, tail)), [3, 9.9, 10.05])

    silence.settle(WORD + tail)

    assert silence.longest == counted


def test_keep_alive_comments_end_no_silence() -> None:
    """Pieces too small to be output are passed over."""
    comments = [(float(second), 14) for second in range(1, 10)]
    silence = looked_at(Connection((0, WORD), *comments, (10, WORD)), [0.5, 2.5, 5, 7.5, 9.9, 10.05])

    silence.caught_up()

    assert silence.longest == 10


def test_several_pieces_between_two_samples_give_a_lower_bound() -> None:
    """Nobody saw when the first of them came: no later than the last look without it would have shown."""
    silence = looked_at(Connection((0, WORD), (4, WORD), (4.5, WORD), (5, WORD)), [3, 6])

    silence.caught_up()

    assert silence.longest == 3


def test_average_of_pieces_is_a_lower_bound_as_well() -> None:
    """Of four pieces in two seconds, one came half a second or more after the one before it."""
    pieces = [(0.5 * n, WORD) for n in range(5)]
    silence = looked_at(Connection(*pieces), [0.01, 2.01])

    silence.caught_up()

    assert silence.longest == pytest.approx(0.5)


def test_wait_that_began_late_is_part_of_a_longer_silence() -> None:
    """The caller was busy for the first eight of ten seconds; the server was silent for all of them."""
    silence = looked_at(Connection((0, WORD)), [3, 7])

    assert silence.waited(since=0.1, asked=8, until=10) == 0
    assert silence.longest == 10


def test_output_that_lay_ready_ends_no_silence_when_it_is_read() -> None:
    """It ended its silence when it came; that the caller took a moment to read it makes that no longer."""
    silence = looked_at(Connection((0, WORD), (5, WORD), (8, WORD)), [3, 4.99, 5.01, 7.9])

    assert silence.waited(since=0.1, asked=8, until=8.01) is None
    assert silence.longest == 5


@given(
    gaps=st.lists(st.floats(0.01, 5), min_size=2, max_size=12),
    looks=st.lists(st.floats(0.005, 1), min_size=1, max_size=80),
    sizes=st.lists(st.integers(1, 500), min_size=12, max_size=12),
)
def test_no_silence_is_ever_longer_than_the_true_one(
    gaps: list[float], looks: list[float], sizes: list[int]
) -> None:
    """Whatever is sampled when, what counts is a lower bound of the longest silence between pieces of output."""
    moment, pieces = 0.0, [(0.0, WORD)]
    for gap, size in zip(gaps, sizes, strict=False):
        moment += gap
        pieces.append((moment, size))
    moments, now = [], 0.0
    for look in looks:
        now += look
        moments.append(now)
    silence = looked_at(Connection(*pieces), moments)
    read_after = max(now, moment) + 0.01  # the output whose reading proves that the answer went on

    silence.caught_up()

    outputs = [came for came, size in pieces if size > SMALL] + [read_after]
    longest = max(later - earlier for earlier, later in pairwise(outputs))
    assert (silence.longest or 0.0) <= longest + SHARP_S
