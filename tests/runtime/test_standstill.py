"""For how long a process did not run, as the watcher knows it: it sleeps on a timer, and is late."""

from __future__ import annotations

from midstream.runtime.watcher import Roster
from midstream.testing import ManualClock


class Stream:
    """An open stream at which there is nothing to look."""

    def check(self, now: float) -> float | None:
        return None


class Clock(ManualClock):
    """A clock that jumps, once, the second time that it is read after `jump`."""

    jump_s = 0.0
    _reads = 0

    def jump(self, seconds: float) -> None:
        self.jump_s, self._reads = seconds, 0

    def __call__(self) -> float:
        self._reads += 1
        if self._reads == 2 and self.jump_s:
            self.now += self.jump_s
            self.jump_s = 0.0
        return super().__call__()


def roster_that_slept_for(seconds: float) -> tuple[Roster, Clock]:
    clock = Clock()
    clock.advance_to(100.0)
    roster = Roster(clock, threaded=False)
    roster.add(Stream(), None)  # type: ignore[arg-type]  # of which only this is asked
    clock.jump(seconds)
    roster._sleep(None, parked=False)
    return roster, clock


def test_a_standstill_counts_from_when_the_watcher_last_ran() -> None:
    """It would have run half a second later; the process may have been stopped before that."""
    roster, clock = roster_that_slept_for(4.0)

    assert clock.now == 104.0
    assert roster.stood_still_during(99.0, 104.0) == 4.0
    assert roster.stood_still_during(102.0, 104.0) == 2.0
    assert roster.stalled_since(104.0) == 100.5  # since when it is certain, by which a freeze is judged


def test_a_watcher_in_time_has_not_stood_still() -> None:
    roster, _ = roster_that_slept_for(0.6)

    assert roster.stood_still_during(99.0, 100.6) == 0.0
