"""Brings an engine's room, the answers that clients wait for, and the engine's meters together on an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from midstream.lab.admission import Request
from midstream.lab.drive import Drive, Heard, Turn
from midstream.lab.emulation.answer import Answer, Broken, Queued, Refused, Said, Started
from midstream.lab.emulation.meter import Life, Meter
from midstream.lab.emulation.room import Room

_log = logging.getLogger(__name__)


class Hub:
    """One engine and its clients. `speed` is how many of the engine's seconds pass in one of ours."""

    def __init__(self, drive: Drive, meter: Meter, speed: float) -> None:
        self._drive = drive
        self._meter = meter
        self._speed = speed
        self._room = Room(drive, self)
        self._ids = count()
        self._lives: dict[int, tuple[Life, Answer, int]] = {}
        self._groups: dict[Answer, list[Request]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._origin = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, request: Request, choices: int, answer: Answer, *, fail_at: int | None = None) -> None:
        """Let the engine have a request, once for each choice; `answer` gets what comes of it."""
        now = self._now()
        group = [replace(request, id=next(self._ids)) for _ in range(choices)]
        self._groups[answer] = group
        for choice, each in enumerate(group):
            life = Life(each, now / self._speed, fail_at)
            self._lives[each.id] = life, answer, choice
            self._meter.asked(life)
            self._room.ask(each, now, choice=choice)
        self._wake()

    def hang_up(self, answer: Answer) -> None:
        """Let the engine forget what nobody waits for any more."""
        now = self._now()
        for request in self._groups.pop(answer, ()):
            if request.id in self._lives:
                self._room.hang_up(request, now)
        self._wake()

    def refresh(self) -> None:
        """Play what is due, before somebody reads the meters."""
        self._wake()

    def heard(self, heard: Heard) -> None:
        """See Witness."""
        known = self._lives.get(heard.request.id)
        if known is None:
            return
        life, answer, _ = known
        if heard.hung_up:
            del self._lives[heard.request.id]
            self._meter.left(life)
        elif heard.refusal is not None:
            del self._lives[heard.request.id]
            self._meter.refused(life, heard.refusal)
            answer.put(Refused(heard.refusal))
        else:
            self._meter.queued(life)
            answer.put(Queued())

    def began(self, turn: Turn) -> None:
        """See Witness."""
        now = turn.began_s / self._speed
        # Planned ahead, a step may still hold requests whose clients have left.
        for request_id in turn.step.evicted:
            if request_id in self._lives:
                self._meter.evicted(self._lives[request_id][0])
        for request_id in turn.step.admitted:
            life, answer, _ = self._lives.get(request_id, (None, None, 0))
            if life is not None and answer is not None and life.started_s is None:
                life.started_s = now
                self._meter.started(life)
                answer.put(Started())
        self._meter.began(turn, self._drive.load, self._speed)

    def done(self, turn: Turn) -> None:
        """See Witness."""
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
            answer.put(Said(choice, 1, reason))
            if reason is not None:
                self._end(life, answer)
                self._meter.ended(life, reason)
        for request_id, reason in reasons.items():
            known = self._lives.get(request_id)
            if known is not None:
                life, answer, _ = known
                answer.put(Broken())
                self._end(life, answer)
                self._meter.ended(life, reason)
        self._meter.done(turn, self._drive.load)

    def _fail(self, life: Life, answer: Answer) -> None:
        answer.put(Broken())
        self._end(life, answer)
        self._drive.engine.abort(life.request.id)
        self._meter.ended(life, "error")

    def _end(self, life: Life, answer: Answer) -> None:
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
        slipped_s = self._room.slipped_s
        when = self._room.wake(now)
        if self._room.slipped_s and not slipped_s:
            _log.warning(
                "this machine cannot keep up with the emulated engine, whose clock is set forward: use a lower --speed"
            )
        if when is not None:
            self._timer = self._loop.call_at(self._origin + when / self._speed, self._wake)
