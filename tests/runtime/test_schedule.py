"""Which stream the watcher looks at next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from midstream.runtime.schedule import SPARE, Schedule


def test_only_what_is_due_comes_up_the_earliest_first() -> None:
    """Three keys, two of them due; the third says when to come back."""
    schedule = Schedule()
    for key, moment in ((1, 7.0), (2, 3.0), (3, 5.0)):
        schedule.put(key, moment)

    assert list(schedule.due(5.0)) == [2, 3]
    assert schedule.next({1, 2, 3}) == 7.0
    assert list(schedule.due(5.0)) == []


def test_a_later_moment_replaces_the_earlier() -> None:
    """A key comes up once, at the moment it was given last, be that later or sooner."""
    schedule = Schedule()
    schedule.put(1, 3.0)
    schedule.put(1, 9.0)
    schedule.put(2, 9.0)
    schedule.put(2, 4.0)

    assert list(schedule.due(8.0)) == [2]
    assert list(schedule.due(9.0)) == [1]
    assert len(schedule) == 0


def test_nobody_is_woken_for_what_has_ended() -> None:
    """The next moment is that of something still open."""
    schedule = Schedule()
    schedule.put(1, 3.0)
    schedule.put(2, 8.0)

    assert schedule.next({2}) == 8.0
    assert schedule.next(set()) is None
    assert len(schedule) == 0


def test_what_has_ended_is_not_carried_along_for_ever() -> None:
    """Behind one long-lived key, a hundred thousand short-lived ones leave no more than the spare room."""
    schedule = Schedule()
    schedule.put(0, 1.0)
    most = 0
    for key in range(1, 100_000):
        schedule.put(key, 1e9 + key)
        schedule.next({0, key})
        most = max(most, len(schedule))

    assert schedule.next({0}) == 1.0
    assert most <= 2 * 2 + SPARE + 1


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 10)), max_size=40), st.floats(0, 10))
def test_what_comes_up_is_what_is_due(puts: list[tuple[int, float]], now: float) -> None:
    """Whatever the order of putting, the keys due are those whose last moment has come."""
    schedule = Schedule()
    for key, moment in puts:
        schedule.put(key, moment)
    last = dict(puts)

    due = list(schedule.due(now))

    assert sorted(due) == sorted(key for key, moment in last.items() if moment <= now)
    assert [last[key] for key in due] == sorted(last[key] for key in due)
