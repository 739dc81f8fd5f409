"""Plays an engine against a clock that somebody else reads: whatever is due by now happens, in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from midstream.lab.admission import Request
from midstream.lab.drive import ClientEvent, Drive, Turn

MOST_TURNS = 100
"""Steps made up for at once; others may then do something before it goes on."""

LATEST_S = 1.0
"""A step that could not be played for so long is not made up for: the engine's clock is set forward instead."""


class EngineObserver(Protocol):
    """Who is told what happens, in the order in which it does."""

    def client_event(self, client_event: ClientEvent) -> None:
        """The engine learnt what a client did."""

    def began(self, turn: Turn) -> None:
        """A step began: who is admitted and who is evicted is settled."""

    def done(self, turn: Turn) -> None:
        """A step is done: its tokens are out."""


class EngineRunner:
    """An engine at work. Time is an argument: seconds on a clock that never goes back.

    Steps follow each other without a pause, whenever `wake` is called. So a driver that comes late delays what is
    seen of a step, and neither the steps nor what they decide.
    """

    def __init__(self, drive: Drive, observer: EngineObserver) -> None:
        self._drive = drive
        self._observer = observer
        self._turn: Turn | None = None
        self._free_s = 0.0
        self.slipped_s = 0.0
        """How far the clock was set forward, all in all, because the machine could not keep up."""

    def ask(self, request: Request, now: float, *, choice: int = 0) -> None:
        """Let a client ask; `choice` numbers the answers to one call."""
        self._drive.ask(request, now, choice=choice)

    def hang_up(self, request: Request, now: float) -> None:
        """Let a client leave."""
        self._drive.hang_up(request, now)

    def wake(self, now: float) -> float | None:
        """Play what is due by `now`; return when there is more to play, or None if that is up to the clients."""
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
