"""The server's silence as samples of its connection tell it."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from midstream.attribution.event_loop_lag import Heartbeat
from midstream.attribution.rule import Attribution
from midstream.attribution.tcp_info import Sample, WireClock
from midstream.attribution.wire_gap import SHARP_S, SMALL, WireGaps
from midstream.stream.chunks import NOTHING, TEXT
from midstream.stream.freezes import Signal
from midstream.stream.model import Call
from midstream.stream.session import Session
from midstream.testing import ManualClock

WORD = 160
"""Bytes of a usual chunk of output."""


class Connection:
    """Pieces of data by their moments, sampled as the kernel would tell of them."""

    def __init__(self, *pieces: tuple[float, int]) -> None:
        self.pieces = pieces

    def at(self, moment: float) -> Sample:
        there = [(came, size) for came, size in self.pieces if came <= moment]
        return Sample(moment, there[-1][0], sum(size for _, size in there), len(there))


def looked_at(connection: Connection, moments: list[float], last_read: float = 0.0) -> WireGaps:
    gaps = WireGaps()
    for moment in moments:
        gaps.look(connection.at(moment), last_read, nothing_new=False)
    return gaps


def test_silence_counts_once_output_is_read_that_came_after_it() -> None:
    """A silence that ended behind the caller's back is known at the samples, and counts when he has caught up."""
    gaps = looked_at(Connection((0, WORD), (10, WORD)), [3, 5, 9.9, 10.05])
    before = gaps.longest

    gaps.caught_up()

    assert (before, gaps.longest) == (None, 10)
    assert gaps.hidden[0] == (0, 10)


def test_silence_after_the_last_output_never_counts() -> None:
    """The server may have finished; that nothing more comes is then no gap."""
    gaps = looked_at(Connection((0, WORD), (1, WORD)), [0.5, 1.01, 60, 600])

    gaps.caught_up(in_answer=False)

    assert gaps.longest == 1


def test_silence_that_reached_into_the_callers_return_counts_as_far_as_it_was_seen() -> None:
    """One more piece came unread, then nothing; the caller read it, waited a little, and got more."""
    gaps = looked_at(Connection((0, WORD), (1, WORD)), [0.9, 1.05, 3, 4])

    gaps.caught_up()

    assert gaps.longest == 3


@pytest.mark.parametrize(("tail", "counted"), [(600, None), (3000, 10)])
def test_at_the_end_only_more_bytes_than_a_tail_prove_output(tail: int, counted: float | None) -> None:
    """A late usage chunk is no output; three kilobytes hold some."""
    gaps = looked_at(Connection((0, WORD), (10, tail)), [3, 9.9, 10.05])

    gaps.settle(WORD + tail)

    assert gaps.longest == counted


def test_keep_alive_comments_end_no_silence() -> None:
    """Pieces too small to be output are passed over."""
    comments = [(float(second), 14) for second in range(1, 10)]
    gaps = looked_at(Connection((0, WORD), *comments, (10, WORD)), [0.5, 2.5, 5, 7.5, 9.9, 10.05])

    gaps.caught_up()

    assert gaps.longest == 10


def test_several_pieces_between_two_samples_give_a_lower_bound() -> None:
    """Nobody saw when the first of them came: no later than the last look without it would have shown."""
    gaps = looked_at(Connection((0, WORD), (4, WORD), (4.5, WORD), (5, WORD)), [3, 6])

    gaps.caught_up()

    assert gaps.longest == 3


def test_average_of_pieces_is_a_lower_bound_as_well() -> None:
    """Of four pieces in two seconds, one came half a second or more after the one before it."""
    pieces = [(0.5 * n, WORD) for n in range(5)]
    gaps = looked_at(Connection(*pieces), [0.01, 2.01])

    gaps.caught_up()

    assert gaps.longest == pytest.approx(0.5)


def test_wait_that_began_late_is_part_of_a_longer_silence() -> None:
    """The caller was busy for the first eight of ten seconds; the server was silent for all of them."""
    gaps = looked_at(Connection((0, WORD)), [3, 7])

    assert gaps.waited(since=0.1, asked=8, until=10) == 0
    assert gaps.longest == 10


def test_output_that_lay_ready_ends_no_silence_when_it_is_read() -> None:
    """It ended its silence when it came; that the caller took a moment to read it makes that no longer."""
    gaps = looked_at(Connection((0, WORD), (5, WORD), (8, WORD)), [3, 4.99, 5.01, 7.9])

    assert gaps.waited(since=0.1, asked=8, until=8.01) is None
    assert gaps.longest == 5


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param(["look", "read"], id="before the caller reads"),
        pytest.param(["read", "look"], id="told after the caller has read"),
        pytest.param(["read", "late"], id="taken after he has read, told with what was true before"),
        pytest.param(["look", "read", "late", "look"], id="all of these"),
    ],
)
def test_silence_that_the_caller_waited_out_is_never_hidden_too(looks: list[str]) -> None:
    """The watcher and the caller look at the same moment, and either may come first."""
    connection = Connection((0, WORD), (10, WORD), (10.05, WORD), (20, WORD))
    gaps = looked_at(connection, [3, 6, 9.9])
    for look in looks:
        if look == "read":
            gaps.waited(since=0, asked=0.1, until=10.001)
        else:
            gaps.look(connection.at(10.0005 if look == "look" else 10.002), 0, nothing_new=True)

    gaps.caught_up()

    assert [length for length in gaps.hidden if length[1] - length[0] > SHARP_S] == []
    assert gaps.longest == pytest.approx(10, abs=0.01)


def test_large_pings_within_a_wait_hide_nothing() -> None:
    """They look like output on the wire; the caller, who waited all the while, knows better."""
    gaps = looked_at(Connection((0, WORD), (1, WORD), (8, WORD)), [0.5, 1.01, 4, 7.9, 8.01])

    gaps.waited(since=0, asked=0.1, until=10)
    gaps.caught_up()

    assert gaps.hidden == []
    assert gaps.longest == 10


class Kernel:
    """A socket whose TCP_INFO tells of pieces that came in, by a manual clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.pieces: list[tuple[float, int]] = [(clock(), 300)]
        self.coming = (0.0, 0)

    def arrive(self) -> None:
        if self.clock() >= self.coming[0] > self.pieces[-1][0]:
            self.pieces.append(self.coming)

    def getsockopt(self, _level: int, _option: int, size: int) -> bytes:
        info = bytearray(size)
        age_ms = round(1000 * (self.clock() - self.pieces[-1][0]))
        struct.pack_into("=I", info, 52, age_ms)
        struct.pack_into("=Q", info, 128, sum(length for _, length in self.pieces))
        struct.pack_into("=I", info, 152, len(self.pieces))
        return bytes(info)


def test_slow_thread_that_reads_what_lay_there_has_not_caught_up() -> None:
    """Its wait of some milliseconds was for the processor; the server's silence goes on, and is one."""
    clock = ManualClock(100.0)
    kernel = Kernel(clock)
    attribution = Attribution(1.0, WireClock(kernel, clock))
    session = Session(Call("chat", "openai", "host", 80, "m", clock(), 0.0), clock(), 1.0)
    kernel.pieces += [(100.0 + 0.1 * n, 160) for n in range(1, 6)]  # silent from 100.5 s to 103.5 s
    for asked in (100.6, 101.2, 101.8, 102.4, 103.0, 103.6):
        clock.advance_to(asked)
        session.wait_from = asked
        if asked > 103.5:
            kernel.pieces += [(103.5, 160), (103.55, 160)] if len(kernel.pieces) == 6 else []
        attribution.look(session, clock())
        clock.advance(0.004)
        session.chunk(TEXT, clock())
        for _ in range(50):
            clock.advance(0.01)
            attribution.look(session, clock())
    attribution.ending(session, clock())

    ((begun, length),) = attribution.take_hidden_gaps(1.0)
    assert begun == pytest.approx(100.5, abs=0.002)
    assert length == pytest.approx(3.0, abs=0.2)


class SteadyLoop(Heartbeat):
    """A loop that is never blocked."""

    def __init__(self) -> None:
        pass

    def busy_at(self, now: float) -> float | None:
        return None

    def busy_since(self, now: float) -> float | None:
        return None


@pytest.mark.parametrize("pulse", [None, SteadyLoop()], ids=["sync", "async"])
@pytest.mark.parametrize("slow", [0.0001, 0.004])
@pytest.mark.parametrize("burst", [1, 3])
def test_silence_goes_on_for_whoever_reads_what_lay_there_and_then_waits(
    pulse: Heartbeat | None, slow: float, burst: int
) -> None:
    """Busy from 0.5 to 2 s, silent from 1 to 3 s: he waited for half of it, however slowly he read what lay there."""
    clock = ManualClock(100.0)
    kernel = Kernel(clock)
    attribution = Attribution(1.1, WireClock(kernel, clock), pulse)
    session = Session(Call("chat", "openai", "host", 80, "m", clock(), 0.0), clock(), 1.1)
    sent = [100.0 + 0.05 * n for n in range(1, 21)] + [103.0 + 0.0001 * n for n in range(burst)]

    def until(moment: float) -> None:
        while clock() < moment - 1e-9:
            clock.advance(min(0.01, moment - clock()))
            kernel.pieces += [(at, 160) for at in sent if kernel.pieces[-1][0] < at <= clock()]
            attribution.look(session, clock())

    for number, came in enumerate(sent[:21], 1):
        session.wait_from = clock()
        until(max(came, clock() + slow))
        blocked = 0.0
        if clock() - session.last_event >= attribution.long_s:
            blocked = attribution.blocked_seconds(session, clock(), spoke=True)
        session.chunk(TEXT, clock(), blocked)
        until(102.0 if number == 10 else clock())
    attribution.ending(session, clock())

    ((begun, length),) = attribution.take_hidden_gaps(1.1)
    assert begun == pytest.approx(101.0, abs=0.02)
    assert length == pytest.approx(2.0, abs=0.03)
    assert attribution.wire_gap(session.max_gap) == pytest.approx(2.0, abs=0.03)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["word", "word", "ping"]),
        st.one_of(st.just(0.0), st.floats(0.0, 2.0)),
        st.floats(0.01, 3.0),
        st.lists(st.floats(0.0, 1.0), max_size=6),
    ),
    min_size=1,
    max_size=25,
)


@given(prefill=st.floats(0.01, 5.0), large=st.booleans(), steps=STEPS)
def test_each_silence_is_one_freeze_or_one_hidden_freeze_and_never_both(
    prefill: float, large: bool, steps: list[tuple[str, float, float, list[float]]]
) -> None:
    """The caller holds and waits, words and pings come while he waits, and the watcher looks at any time.

    A silence of a second of which he waited for a second is one freeze; one that he held for in part may be hidden,
    once; the time before the first word is neither. Large pings pass for output if he holds, so then there are none.
    """
    clock = ManualClock(100.0)
    kernel = Kernel(clock)
    attribution = Attribution(1.0, WireClock(kernel, clock))
    session = Session(Call("chat", "openai", "host", 80, "m", clock(), 0.0), clock(), 1.0)
    waited, gap_from, freezes, expected = 0.0, clock(), 0, 0
    hidden: list[tuple[float, float]] = []
    long_gaps: list[tuple[float, float]] = []
    for number, (what, busy, wait, looks) in enumerate([("word", 0.0, prefill, [0.5]), *steps]):
        hold = 0.0 if large else busy
        asks, comes = clock() + hold, clock() + hold + wait
        kernel.coming = (comes, 160 if what == "word" else 200 if large else 14)
        for moment in sorted([asks, comes, *(clock() + (hold + wait) * look for look in looks)]):
            clock.advance_to(moment)
            if moment == asks and not session.waiting:
                session.wait_from = moment
            if moment in (asks, comes):
                kernel.arrive()
            attribution.look(session, moment)
        reading = TEXT if what == "word" else NOTHING
        blocked = 0.0
        if comes - session.last_event >= attribution.long_s:
            blocked = attribution.blocked_seconds(session, comes, spoke=what == "word")
        if session.chunk(reading, comes, blocked) is Signal.THAWED:
            session.thaw()
            attribution.thawed(session)
            freezes += 1
        waited += wait
        if what == "word":
            assume(
                abs(waited - 1.0) > 1e-6 and abs(comes - gap_from - 1.0) > 0.002
            )  # the kernel counts in ms
            if number and waited >= 1.0:
                expected += 1
            elif number and comes - gap_from >= 1.0:
                long_gaps.append((gap_from, comes))
            waited, gap_from = 0.0, comes
        attribution.look(session, comes)
        hidden += attribution.take_hidden_gaps(1.0)
    assert freezes == expected
    for start, length in hidden:
        owners = [s for s in long_gaps if s[0] - SHARP_S <= start and start + length <= s[1] + SHARP_S]
        assert len(owners) == 1, (start, length)
        long_gaps.remove(owners[0])


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
    found = looked_at(Connection(*pieces), moments)
    read_after = max(now, moment) + 0.01  # the output whose reading proves that the answer went on

    found.caught_up()

    outputs = [came for came, size in pieces if size > SMALL] + [read_after]
    longest = max(later - earlier for earlier, later in pairwise(outputs))
    assert (found.longest or 0.0) <= longest + SHARP_S
