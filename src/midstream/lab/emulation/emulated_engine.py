"""Connects an engine's runner, the mailboxes of its clients and its meters on an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from midstream.lab.admission import Request
from midstream.lab.drive import ClientEvent, Drive, Turn
from midstream.lab.emulation.mailbox import (
    AnswerMailbox,
    EngineFailed,
    Queued,
    Refused,
    Started,
    TokensEmitted,
)
from midstream.lab.emulation.meter import Meter, RequestState
from midstream.lab.emulation.runner import EngineRunner

_log = logging.getLogger(__name__)


class EmulatedEngine:
    """One engine and its clients. `speed` is how many of the engine's seconds pass in one of ours."""

    def __init__(self, drive: Drive, meter: Meter, speed: float) -> None:
        self._drive = drive
        self._meter = meter
        self._speed = speed
        self._runner = EngineRunner(drive, self)
        self._ids = count()
        self._lives: dict[int, tuple[RequestState, AnswerMailbox, int]] = {}
        self._groups: dict[AnswerMailbox, list[Request]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._origin = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ask(
        self, request: Request, choices: int, answer: AnswerMailbox, *, fail_at: int | None = None
    ) -> None:
        """Submit a request, once for each choice; `answer` receives its events."""
        now = self._now()
        group = [replace(request, id=next(self._ids)) for _ in range(choices)]
        self._groups[answer] = group
        for choice, each in enumerate(group):
            life = RequestState(each, now / self._speed, fail_at)
            self._lives[each.id] = life, answer, choice
            self._meter.asked(life)
            self._runner.ask(each, now, choice=choice)
        self._wake()

    def hang_up(self, answer: AnswerMailbox) -> None:
        """Abort the requests of an answer whose client has left."""
        now = self._now()
        for request in self._groups.pop(answer, ()):
            if request.id in self._lives:
                self._runner.hang_up(request, now)
        self._wake()

    def refresh(self) -> None:
        """Run what is due, before the meters are read."""
        self._wake()

    def client_event(self, client_event: ClientEvent) -> None:
        """See EngineObserver."""
        known = self._lives.get(client_event.request.id)
        if known is None:
            return
        life, answer, _ = known
        if client_event.hung_up:
            del self._lives[client_event.request.id]
            self._meter.left(life)
        elif client_event.refusal is not None:
            del self._lives[client_event.request.id]
            self._meter.refused(life, client_event.refusal)
            answer.put(Refused(client_event.refusal))
        else:
            self._meter.queued(life)
            answer.put(Queued())

    def began(self, turn: Turn) -> None:
        """See EngineObserver."""
        now = turn.began_s / self._speed
        # Planned ahead, a step may still hold requests whose clients have left.
        for request_id in turn.step.preempted:
            if request_id in self._lives:
                self._meter.preempted(self._lives[request_id][0])
        for request_id in turn.step.admitted:
            life, answer, _ = self._lives.get(request_id, (None, None, 0))
            if life is not None and answer is not None and life.started_s is None:
                life.started_s = now
                self._meter.started(life)
                answer.put(Started())
        self._meter.began(turn, self._drive.load, self._speed)

    def done(self, turn: Turn) -> None:
        """See EngineObserver."""
        step, now = turn.step, turn.done_s / self._speed
        reasons = {ended.id: ended.reason for ended in step.ended}
        for request_id in step.emitted:
            known = self._lives.get(request_id)
            if known is None:
                continue  # its client has left meanwhile
            life, answer, choice = known
            reason = reasons.pop(request_id, None)
            life.said(now)
            self._meter.said(life)
            if life.fail_at is not None and life.tokens >= life.fail_at and reason is None:
                self._fail(life, answer)
                continue
            answer.put(TokensEmitted(choice, 1, reason))
            if reason is not None:
                self._end(life, answer)
                self._meter.ended(life, reason)
        for request_id, reason in reasons.items():
            known = self._lives.get(request_id)
            if known is not None:
                life, answer, _ = known
                answer.put(EngineFailed())
                self._end(life, answer)
                self._meter.ended(life, reason)
        self._meter.done(turn, self._drive.load)

    def _fail(self, life: RequestState, answer: AnswerMailbox) -> None:
        answer.put(EngineFailed())
        self._end(life, answer)
        self._drive.engine.abort(life.request.id)
        self._meter.ended(life, "error")

    def _end(self, life: RequestState, answer: AnswerMailbox) -> None:
        life.ended_s = life.last_s
        del self._lives[life.request.id]
        group: Sequence[Request] = self._groups.get(answer, ())
        if not any(request.id in self._lives for request in group):
            self._groups.pop(answer, None)

    def _now(self) -> float:
        """Return the engine's time; it begins with the first request."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._origin = self._loop.time()
        return (self._loop.time() - self._origin) * self._speed

    def _wake(self) -> None:
        now = self._now()
        assert self._loop is not None  # noqa: S101 - for the type checker: _now() has set it
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        slipped_s = self._runner.slipped_s
        when = self._runner.wake(now)
        if self._runner.slipped_s and not slipped_s:
            _log.warning(
                "this machine cannot keep up with the emulated engine, whose clock is set forward: use a lower --speed"
            )
        if when is not None:
            self._timer = self._loop.call_at(self._origin + when / self._speed, self._wake)
