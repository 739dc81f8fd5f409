"""Metrics are pushed when a process becomes idle: at once for few streams, and once a second for many."""

from __future__ import annotations

import threading

from midstream.telemetry.exporters.idle_push import BURST, IdlePush, PushAllowance
from support.waiting import until


def test_a_burst_is_pushed_at_once_and_what_follows_once_a_second() -> None:
    allowance = PushAllowance(0.0)

    assert [allowance.wait_s(0.0) for _ in range(BURST)] == [0.0] * BURST
    assert allowance.wait_s(0.0) == 1.0
    assert allowance.wait_s(1.0) == 1.0
    assert allowance.wait_s(4.0) == 0.0
    assert [allowance.wait_s(1000.0) for _ in range(BURST)] == [0.0] * BURST


def test_each_wake_is_followed_by_a_push_and_several_meanwhile_by_one() -> None:
    started, go_on = threading.Semaphore(0), threading.Semaphore(0)
    pushes: list[int] = []

    def send() -> None:
        started.release()
        go_on.acquire()
        pushes.append(1)

    push = IdlePush(send)
    push.wake()
    started.acquire()
    for _ in range(5):
        push.wake()
    go_on.release()
    started.acquire()
    go_on.release()
    until(lambda: len(pushes) == 2)
    push.close()
    until(lambda: not any(thread.name == "midstream-idle-push" for thread in threading.enumerate()))

    assert len(pushes) == 2
