"""Drives engines by hand: one step at a time, without any clock."""

from __future__ import annotations

from collections.abc import Iterable

from midstream.lab.admission import AdmissionRule, Request, Step


def submit(engine: AdmissionRule, *requests: Request) -> None:
    """Submit requests, none of which may be refused."""
    for request in requests:
        refusal = engine.submit(request)
        assert refusal is None, refusal


def request(number: int, prompt: int, answer: int | None = 1000, max_tokens: int | None = None) -> Request:
    """Return a request, by default with an answer that is long for any test."""
    return Request(number, prompt, answer, max_tokens)


def take(engine: AdmissionRule, count: int) -> list[Step]:
    """Return the next steps, of which there must be so many."""
    steps = []
    for _ in range(count):
        step = engine.step()
        assert step is not None
        steps.append(step)
    return steps


def run_out(engine: AdmissionRule, most: int = 100_000) -> list[Step]:
    """Return every step until the engine has nothing to do."""
    steps = []
    while (step := engine.step()) is not None:
        steps.append(step)
        assert len(steps) < most, "the engine never comes to an end"
    return steps


def tokens(steps: Iterable[Step], number: int) -> int:
    """Count the tokens that a request got."""
    return sum(step.emitted.count(number) for step in steps)


def endings(steps: Iterable[Step]) -> dict[int, str]:
    """Return how each request ended."""
    return {ended.id: ended.reason for step in steps for ended in step.ended}


def preemptions(steps: Iterable[Step]) -> list[tuple[int, ...]]:
    """Return who was preempted, for each step that preempted anybody."""
    return [step.preempted for step in steps if step.preempted]
