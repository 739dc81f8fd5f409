"""A guard keeps one part's failures away from the caller, and leaves the part alone only while it keeps failing."""

from __future__ import annotations

import logging

import pytest

from midstream._support import internal_errors
from midstream._support.internal_errors import Guard
from midstream.testing import ManualClock


@pytest.fixture(autouse=True)
def in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let our own failures be logged, as they are outside of tests."""
    monkeypatch.setattr(internal_errors, "RAISE", False)
    monkeypatch.setattr(internal_errors, "_internal_errors", internal_errors.OnceLog())


def fail(guard: Guard, times: int) -> None:
    for _ in range(times):
        with guard:
            int("secret words")


def succeed(guard: Guard) -> None:
    with guard:
        pass


def test_failures_that_are_not_in_a_row_never_switch_a_part_off() -> None:
    guard = Guard("part", ManualClock())
    for _ in range(100):
        fail(guard, 4)
        succeed(guard)

    assert guard.ok


def test_a_part_that_keeps_failing_is_off_for_longer_each_time() -> None:
    """One minute, then two, up to an hour; each time one more failure is enough."""
    clock = ManualClock()
    guard = Guard("part", clock)
    fail(guard, 4)
    states = [guard.ok]
    fail(guard, 1)
    lengths = []
    for _ in range(8):
        off_s = 0.0
        while not guard.ok:
            clock.advance(30.0)
            off_s += 30.0
        lengths.append(off_s)
        fail(guard, 1)

    assert states == [True]
    assert lengths == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]


def test_the_log_gets_the_first_failure_the_end_of_trying_and_the_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However often it failed meanwhile, and without the words of the exception."""
    caplog.set_level(logging.INFO, logger="midstream")
    clock = ManualClock()
    guard = Guard("part", clock)
    fail(guard, 5)
    for _ in range(3):
        clock.advance(3600.0)
        fail(guard, 1)
    clock.advance(3600.0)
    succeed(guard)
    assert guard.ok

    assert [record.getMessage() for record in caplog.records] == [
        "the part failed with ValueError; your stream is unaffected",
        (
            "the part failed 5 times in a row, the last time with ValueError; that part is switched off and "
            "tried again after 60 s, your streams are unaffected"
        ),
        "the part: works again after 8 failures",
    ]


def test_an_interrupt_is_the_users() -> None:
    guard = Guard("part", ManualClock())
    with pytest.raises(KeyboardInterrupt), guard:
        raise KeyboardInterrupt
    assert guard.ok


def test_under_test_a_failure_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_errors, "RAISE", True)
    with pytest.raises(ValueError, match="invalid literal"):
        fail(Guard("part"), 1)
