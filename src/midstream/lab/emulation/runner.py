"""Runs an engine against a clock that its driver reads: what is due by now happens, in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from midstream.lab.admission import Request
from midstream.lab.drive import ClientEvent, Drive, Turn

MOST_TURNS = 100
"""Overdue steps that are run at once, before other tasks of the event loop get their turn."""

LATEST_S = 1.0
"""A delay longer than this is not caught up: the engine's clock is set forward instead."""


class EngineObserver(Protocol):
    """Receives what happens in an engine, in order."""

    def client_event(self, client_event: ClientEvent) -> None:
        """Handle what a client did, when the engine receives it."""

    def began(self, turn: Turn) -> None:
        """Handle the start of a step: its admissions and preemptions are decided."""

    def done(self, turn: Turn) -> None:
        """Handle the end of a step: its tokens are emitted."""


class EngineRunner:
    """Runs an engine step by step. Time is an argument: seconds on a monotonic clock.

    Steps follow each other without a pause, whenever `wake` is called. A late driver delays only when a step
    becomes visible: neither the steps nor their decisions change.
    """

    def __init__(self, drive: Drive, observer: EngineObserver) -> None:
        self._drive = drive
        self._observer = observer
        self._turn: Turn | None = None
        self._free_s = 0.0
        self.slipped_s = 0.0
        """How far the clock was set forward, all in all, because the machine could not keep up."""

    def ask(self, request: Request, now: float, *, choice: int = 0) -> None:
        """Submit a client's request; `choice` numbers the answers to one call."""
        self._drive.ask(request, now, choice=choice)

    def hang_up(self, request: Request, now: float) -> None:
        """Abort a request, since its client has left."""
        self._drive.hang_up(request, now)

    def wake(self, now: float) -> float | None:
        """Run what is due by `now`; return when the next event is due, or None if only clients can cause one."""
        for _ in range(MOST_TURNS):
            turn = self._turn
            if turn is None:
                acts = self._drive.next_s
                if acts is None or acts > now:
                    return acts
                self._begin(max(acts, self._free_s))
                continue
            self._deliver(min(now, turn.done_s))
            if turn.done_s > now:
                acts = self._drive.next_s
                return turn.done_s if acts is None else min(acts, turn.done_s)
            self._observer.done(turn)
            self._free_s = turn.done_s
            self._begin(turn.done_s)
        if self._turn is not None and now - self._turn.done_s > LATEST_S:
            self.slipped_s += now - self._turn.done_s
            self._turn = replace(self._turn, done_s=now)
        return now

    def _begin(self, at_s: float) -> None:
        self._deliver(at_s)
        self._turn = self._drive.step(at_s)
        if self._turn is not None:
            self._observer.began(self._turn)

    def _deliver(self, now: float) -> None:
        for client_event in self._drive.deliver(now):
            self._observer.client_event(client_event)
