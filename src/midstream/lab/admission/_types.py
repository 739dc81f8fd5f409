"""The values that every admission rule takes and gives, and the one interface that drives them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

Reason: TypeAlias = Literal["stop", "length", "error"]
"""Why an answer ended: by itself, at a token limit, or because the engine gave it up."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for. Lengths are in tokens.

    `answer_tokens` is how long the answer would become; no rule looks at it before that many tokens are out.
    None stands for an answer that never ends by itself (`ignore_eos`). `max_tokens` is what the client sent,
    if anything.
    """

    id: int
    prompt_tokens: int
    answer_tokens: int | None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        """Refuse lengths below one token."""
        for name in ("prompt_tokens", "answer_tokens", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}; leave it out for no limit")


@dataclass(frozen=True, slots=True)
class AdmissionRefusal:
    """A request that the engine does not take, with the HTTP status it answers instead."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Part of a prompt that one step computes: `tokens` of them from position `start` on.

    For a request that is resumed after a preemption, its own output is part of the prompt; `redone` says how
    many of the tokens had been computed before.
    """

    id: int
    start: int
    tokens: int
    redone: int


@dataclass(frozen=True, slots=True)
class Ended:
    """An answer that ends with this step."""

    id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Step:
    """What the engine computes next, and what follows from it.

    `admitted` and `preempted` happen before the step is computed. A preempted request lost its memory in
    mid-answer: preempted, retracted, paused, or re-queued by the engine's own rule. Every request in
    `emitted` gets one token when the step is done, and those in `ended` end then. `decode_context` is the
    number of tokens of context that the decoding requests read, all together.
    """

    prefill: tuple[PrefillChunk, ...] = ()
    decode: tuple[int, ...] = ()
    decode_context: int = 0
    emitted: tuple[int, ...] = ()
    ended: tuple[Ended, ...] = ()
    admitted: tuple[int, ...] = ()
    preempted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """How full an engine is. Memory is counted in tokens of KV cache.

    `used_tokens` hold computed keys and values; `reserved_tokens` are what no other request can use: reservations
    and the unused ends of blocks included.
    """

    running: int
    waiting: int
    used_tokens: int
    reserved_tokens: int
    capacity: int


class AdmissionRule(Protocol):
    """One engine's admission rule. It holds no clock: a step is done when its driver asks for the next.

    Whatever is submitted or aborted between two calls of `step` is seen by the second.
    """

    def submit(self, request: Request) -> AdmissionRefusal | None:
        """Queue a request, or say why not. Its id must not be in use."""

    def abort(self, request_id: int) -> bool:
        """Forget a request whose client is gone; False if it is not here. It emits nothing more."""

    def step(self) -> Step | None:
        """Decide the next step; None when there is nothing to do until something is submitted."""

    def quiet_steps(self) -> int:
        """Return how often the step just made can be repeated without anything else happening.

        Until something is submitted or aborted, that many steps do nothing but give each request in `decode`
        one token more: no admission, no preemption, no end. It may return fewer than there are, such as 0.
        """

    def repeat(self, steps: int) -> None:
        """Make the step just made `steps` times more; not more often than `quiet_steps` says."""

    @property
    def load(self) -> EngineLoad:
        """How full the engine is now."""
