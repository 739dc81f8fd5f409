"""One number of seconds for each phase of an answer."""

from __future__ import annotations

from dataclasses import dataclass, fields

from midstream.stream.model import Phase


@dataclass(frozen=True, slots=True)
class PhaseSeconds:
    """A limit in seconds for each phase. None: no limit in that phase."""

    text: float | None = None
    reasoning: float | None = None
    tool_call: float | None = None

    def of(self, phase: Phase) -> float | None:
        """The limit in this phase."""
        limit: float | None = getattr(self, phase)
        return limit

    @property
    def shortest(self) -> float | None:
        """The smallest of the limits; None if there is none."""
        limits = (self.text, self.reasoning, self.tool_call)
        return min((limit for limit in limits if limit is not None), default=None)


@dataclass(frozen=True, slots=True)
class StallLimits:
    """The limits of the stall timeout, in seconds."""

    gap: PhaseSeconds
    first_content_s: float | None = None

    @property
    def shortest(self) -> float | None:
        """The smallest of all limits; None if there is none."""
        limits = (self.gap.shortest, self.first_content_s)
        return min((limit for limit in limits if limit is not None), default=None)


PHASES: tuple[str, ...] = tuple(field.name for field in fields(PhaseSeconds))
