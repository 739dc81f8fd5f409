"""What an engine's own metrics are made of: the life of each request, and every step. Engines count differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from midstream.lab.admission import AdmissionRefusal, EngineLoad, Reason, Request
from midstream.lab.drive import Turn

PageContent: TypeAlias = "tuple[str, bytes]"
"""A content type and a body."""


class RequestState:
    """One request inside the server. Times are seconds of its clients, from when the server began."""

    __slots__ = (
        "asked_s",
        "ended_s",
        "fail_at",
        "first_s",
        "gap_s",
        "last_s",
        "preemptions",
        "request",
        "started_s",
        "tokens",
        "unreported",
    )

    def __init__(self, request: Request, asked_s: float, fail_at: int | None = None) -> None:
        self.request = request
        self.asked_s = asked_s
        self.fail_at = fail_at
        self.started_s: float | None = None
        self.first_s: float | None = None
        self.last_s = asked_s
        self.ended_s: float | None = None
        self.gap_s: float | None = None
        """From the token before to the last one; None if there is but one."""
        self.tokens = 0
        self.preemptions = 0
        self.unreported = 0
        """Preemptions that the engine's own counter does not include yet."""

    def said(self, now: float) -> None:
        """Note a token."""
        self.tokens += 1
        if self.first_s is None:
            self.first_s = now
        else:
            self.gap_s = now - self.last_s
        self.last_s = now


class Meter:
    """Receives every event and counts none. An engine's own meter counts what that engine counts."""

    def asked(self, life: RequestState) -> None:
        """Note that a client asks."""

    def queued(self, life: RequestState) -> None:
        """Note that the engine took a request into its queue."""

    def refused(self, life: RequestState, refusal: AdmissionRefusal) -> None:
        """Note that the engine did not take a request."""

    def started(self, life: RequestState) -> None:
        """Note that a request gets memory for the first time."""

    def preempted(self, life: RequestState) -> None:
        """Note that a request lost its memory."""
        life.preemptions += 1

    def said(self, life: RequestState) -> None:
        """Note a token; `life` knows when."""

    def ended(self, life: RequestState, reason: Reason) -> None:
        """Note an end."""

    def left(self, life: RequestState) -> None:
        """Note that a client hung up before the end."""

    def began(self, turn: Turn, load: EngineLoad, speed: float) -> None:
        """Note that a step begins, with the load that it brings."""

    def done(self, turn: Turn, load: EngineLoad) -> None:
        """Note that a step is done."""

    def pages(self) -> Mapping[str, Callable[[], PageContent]]:
        """Return what to answer at which path."""
        return {}
