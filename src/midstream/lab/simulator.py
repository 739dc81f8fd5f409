"""Drives an engine's admission rule in virtual time, from event to event."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from midstream.lab._ledger import Ledger
from midstream.lab.admission import AdmissionRule, Step
from midstream.lab.drive import Drive, Turn
from midstream.lab.hardware import HardwareProfile
from midstream.lab.results import Ending, RunResult
from midstream.lab.workload import Workload

Progress: TypeAlias = Callable[[int], None]
"""Called from time to time with the number of requests that have ended."""

_PROGRESS_EVERY = 50


def simulate(
    engine: AdmissionRule,
    workload: Workload,
    hardware: HardwareProfile,
    *,
    freeze_after_s: float = 5.0,
    keep_times: bool = False,
    until_s: float = math.inf,
    skip: bool = True,
    progress: Progress | None = None,
) -> RunResult:
    """Let the workload's clients call the engine on the hardware, until all requests ended or time is up.

    With `until_s` the run stops with the first step that reaches it, and what is under way stays unfinished.
    The same engine, workload and hardware give the same result, to the event. `skip` passes over runs of
    steps in which nothing is decided; the result is the same without, only later.

    The work is about ten decisions a request, each in proportion to the requests that run; so it grows with the
    requests, not with their tokens. Ten thousand requests take one to ten seconds.
    """
    options = _Options(freeze_after_s, keep_times, until_s, skip, progress)
    return _Run(engine, workload, hardware, options).play()


@dataclass(frozen=True, slots=True)
class _Options:
    freeze_after_s: float
    keep_times: bool
    until_s: float
    skip: bool
    progress: Progress | None


class _Run:
    def __init__(
        self, engine: AdmissionRule, workload: Workload, hardware: HardwareProfile, options: _Options
    ) -> None:
        self._engine = engine
        self._hardware = hardware
        self._options = options
        self._ledger = Ledger(options.freeze_after_s, keep_times=options.keep_times)
        self._drive = Drive(engine, hardware)
        self._calls = {call.request.id: call for call in workload.calls}
        self._load = engine.load
        self._now = 0.0
        self._steps = 0
        self._events = 0
        self._used = 0.0
        self._reserved = 0.0
        self._running = 0.0
        self._inside = 0.0
        users = workload.users
        self._turns = iter(workload.calls if users is not None else ())
        for call in workload.calls[:0] if users is not None else workload.calls:
            self._drive.ask(call.request, call.at_s)
        for _ in range(users or 0):
            self._next_turn()

    def play(self) -> RunResult:
        while self._now < self._options.until_s:
            self._let_clients_act()
            turn = self._drive.step(self._now)
            if turn is None:
                self._drive.drop_stale_aborts(lambda request_id: not self._ledger.is_open(request_id))
                acts = self._drive.next_s
                if acts is None:
                    break
                self._pass_time(acts)
                continue
            self._take(turn)
            step = turn.step
            if self._options.skip and step.decode and not (step.prefill or step.ended or step.preempted):
                self._skip_ahead(step)
        self._ledger.close_all(self._now)
        duration = self._now or 1.0
        room = duration * self._load.capacity
        return RunResult(
            requests=tuple(sorted(self._ledger.results, key=lambda result: result.id)),
            duration_s=self._now,
            prefill_tokens=self._ledger.prefilled,
            redone_tokens=self._ledger.redone,
            kv_used=self._used / room,
            kv_reserved=self._reserved / room,
            mean_running=self._running / duration,
            mean_inside=self._inside / duration,
            steps=self._steps,
            events=self._events,
        )

    def _next_turn(self) -> None:
        """Let a user who is free make the next call, if there is one left."""
        call = next(self._turns, None)
        if call is not None:
            self._drive.ask(call.request, self._now + call.at_s)

    def _let_clients_act(self) -> None:
        """Do what clients did up to now, and note who was not served."""
        for client_event in self._drive.deliver(self._now):
            self._events += 1
            request = client_event.request
            if client_event.hung_up:
                if client_event.was_active:
                    self._close(request.id, "left")
                continue
            call = self._calls[request.id]
            self._ledger.open(call, client_event.at_s)
            self._inside += self._now - client_event.at_s
            if client_event.refusal is not None:
                self._close(request.id, "refused")
            elif call.patience_s is not None:
                self._drive.hang_up(request, client_event.at_s + call.patience_s)

    def _take(self, turn: Turn) -> None:
        step = turn.step
        self._steps += 1
        self._events += 1
        self._ledger.admit(step.admitted, self._now)
        self._ledger.preempt(step.preempted)
        self._ledger.prefill(step.prefill)
        self._pass_time(turn.done_s)
        self._ledger.token(step.emitted, self._now)
        for ended in step.ended:
            self._close(ended.id, ended.reason)

    def _skip_ahead(self, step: Step) -> None:
        """Play the steps that only repeat the last one, each longer by the context that the one before added.

        A step that starts when a client has acted must see it, so the last one played starts before that.
        """
        quiet = self._engine.quiet_steps()
        acts = self._drive.next_s
        until = self._options.until_s if acts is None else min(acts, self._options.until_s)
        decode_s, sequences, context = self._hardware.decode_s, len(step.decode), step.decode_context
        now = self._now
        times: list[float] = []
        longest_s, at_s = 0.0, now
        while len(times) < quiet and now < until:
            context += sequences
            then = now + decode_s(sequences, context)
            if then - now >= self._options.freeze_after_s:
                break
            if then - now > longest_s:
                longest_s, at_s = then - now, now
            now = then
            times.append(now)
        if times:
            self._events += 1
            self._steps += len(times)
            self._engine.repeat(len(times))
            self._pass_time(now)
            self._ledger.tokens(step.decode, times, longest_s, at_s)

    def _pass_time(self, until: float) -> None:
        """Move the clock. What fills the engine is averaged over time, as if it changed linearly."""
        before, self._load = self._load, self._engine.load
        half = (until - self._now) / 2
        self._used += half * (before.used_tokens + self._load.used_tokens)
        self._reserved += half * (before.reserved_tokens + self._load.reserved_tokens)
        self._running += half * (before.running + self._load.running)
        self._inside += 2 * half * len(self._ledger)
        self._now = until

    def _close(self, request_id: int, ending: Ending) -> None:
        self._ledger.close(request_id, self._now, ending)
        self._next_turn()
        if self._options.progress is not None and len(self._ledger.results) % _PROGRESS_EVERY == 0:
            self._options.progress(len(self._ledger.results))
