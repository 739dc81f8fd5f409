"""How long the caller waits for a hook: never on an event loop, and elsewhere within a budget."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from midstream._support import internal_errors
from midstream.runtime.hooks import HookRunner
from midstream.runtime.host import CalledOnce
from support.records import a_record


def test_event_loop_never_waits_for_a_hook() -> None:
    """A hook of 40 ms, a hundred times: the loop goes on at once, each time."""
    runner = HookRunner(busy=lambda: False)
    done: list[float] = []

    def hook(value: float) -> None:
        time.sleep(0.04)
        done.append(value)

    async def call() -> float:
        slowest = 0.0
        for number in range(10):
            began = time.monotonic()
            runner.call(hook, float(number), wait=True)
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(0.05)
        return slowest

    assert asyncio.run(call()) < 0.035
    assert runner.flush(5.0)
    assert done == [float(number) for number in range(10)]


def test_elsewhere_a_quick_hook_has_run_when_the_caller_goes_on() -> None:
    """That is what the waiting is for."""
    runner = HookRunner(busy=lambda: False)
    done: list[int] = []
    runner.call(done.append, 1, wait=True)
    until = time.monotonic() + 1.0
    while not done and time.monotonic() < until:
        time.sleep(0.001)

    assert done == [1]


def test_elsewhere_waiting_for_slow_hooks_is_bounded_over_time() -> None:
    """Twenty hooks of 30 ms each, one after the other: the caller waits for less than two of them in all."""
    runner = HookRunner(busy=lambda: False)
    waited = 0.0
    for number in range(20):
        began = time.monotonic()
        runner.call(lambda _: time.sleep(0.03), number, wait=True)
        waited += time.monotonic() - began
        runner.flush(5.0)

    assert waited < 0.3


@pytest.mark.parametrize("has_run", [False, True], ids=["still queued", "run already"])
def test_record_that_is_handed_over_twice_calls_its_hook_once(has_run: bool) -> None:
    """The end of a stream that was interrupted is done again from where it was."""
    runner = HookRunner(busy=lambda: False)
    done: list[object] = []
    once, record = CalledOnce(done.append), a_record()

    runner.call(once, record, wait=False)
    if has_run:
        assert runner.flush(60)
    runner.call(once, record, wait=False)

    assert runner.flush(60)
    assert done == [record]


def test_time_limit_that_comes_while_a_hook_is_waited_for_reaches_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exception of a signal handler is none of ours, whatever class it has."""
    monkeypatch.setattr(internal_errors, "RAISE", False)

    def ring(*_: object) -> None:
        raise RuntimeError

    before = signal.signal(signal.SIGALRM, ring)
    runner = HookRunner(busy=lambda: False)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(RuntimeError):
            try:
                runner.call(lambda _: time.sleep(0.5), 1, wait=True)
                time.sleep(0.5)
            except Exception as exc:
                internal_errors.report_internal_error("record", exc)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
