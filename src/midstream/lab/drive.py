"""An engine on its hardware: client events reach it with latency, and each of its steps takes time.

The simulator drives this in virtual time and the emulator in real time; so both admit alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from midstream.lab.admission import AdmissionRefusal, AdmissionRule, EngineLoad, Request, Step
from midstream.lab.hardware import HardwareProfile


@dataclass(frozen=True, slots=True)
class ClientEvent:
    """A client's request or abort at `at_s`, as it reaches the engine; a request may be refused.

    `was_here` says whether the engine still had the request of a client who hung up.
    """

    request: Request
    at_s: float
    hung_up: bool
    refusal: AdmissionRefusal | None = None
    was_active: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """A step in time: its tokens are out at `done_s`."""

    step: Step
    began_s: float
    done_s: float


class Drive:
    """One engine, the hardware that it runs on, and client events that have not reached it yet."""

    def __init__(self, engine: AdmissionRule, hardware: HardwareProfile) -> None:
        self.engine = engine
        self.hardware = hardware
        self._order = count()
        self._free_s = 0.0
        """Until when the front end is busy with calls that the engine has heard of."""
        self._acts: list[tuple[float, int, Request, float, bool]] = []
        """A heap of (when, order, request, seconds of the front end, whether its client hangs up)."""

    @property
    def load(self) -> EngineLoad:
        """How full the engine is now."""
        return self.engine.load

    @property
    def next_s(self) -> float | None:
        """When the next client event reaches the engine; None if there is none."""
        if not self._acts:
            return None
        when, _, _, work_s, _ = self._acts[0]
        return max(when + self.hardware.latency_s, self._free_s) + work_s

    def ask(self, request: Request, at_s: float, *, choice: int = 0) -> None:
        """Let a client ask at that time. Only the first choice of a call costs the front end anything."""
        work_s = 0.0 if choice else self.hardware.front_end_s
        heappush(self._acts, (at_s, next(self._order), request, work_s, False))

    def hang_up(self, request: Request, at_s: float) -> None:
        """Let a client leave at that time. It takes the front end no time, but must wait for its turn."""
        heappush(self._acts, (at_s, next(self._order), request, 0.0, True))

    def deliver(self, now: float) -> Iterator[ClientEvent]:
        """Deliver to the engine what has passed the front end by `now`, one event after the other."""
        while (heard_s := self.next_s) is not None and heard_s <= now:
            when, _, request, _, hangs_up = heappop(self._acts)
            self._free_s = heard_s
            if hangs_up:
                yield ClientEvent(request, when, True, was_active=self.engine.abort(request.id))
            else:
                yield ClientEvent(request, when, False, self.engine.submit(request))

    def drop_stale_aborts(self, is_over: Callable[[int], bool]) -> None:
        """Drop aborts of answers that are over: they would have no effect."""
        while self._acts and self._acts[0][4] and is_over(self._acts[0][2].id):
            heappop(self._acts)

    def step(self, now: float) -> Turn | None:
        """Begin the engine's next step; None when there is nothing to do until a request comes or goes."""
        step = self.engine.step()
        return None if step is None else Turn(step, now, now + self.hardware.duration_s(step))
