"""Token counts as servers report them, under the names of every API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from midstream.stream.model import MAX_COUNT


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as one chunk reported them; None where it reported none."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


def token_count(value: object) -> int | None:
    """The value if it can be a number of tokens: an integer from 0 to 2**53. None for everything else."""
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


def read_usage(usage: Any) -> Usage | None:
    """Token counts under the names of either API; None if nothing countable was reported.

    An object of zeros is a placeholder (Ollama puts one on every chunk). Output includes reasoning, as OpenAI counts
    it: where a server counts reasoning beside the output, the sum is taken.
    """
    if usage is None:
        return None
    prompt = _count(usage, "prompt_tokens", "input_tokens")
    output = _count(usage, "completion_tokens", "output_tokens")
    prompt_details = _first(usage, "prompt_tokens_details", "input_tokens_details")
    output_details = _first(usage, "completion_tokens_details", "output_tokens_details")
    reasoning = _count(output_details, "reasoning_tokens")
    if reasoning is None:
        reasoning = _count(usage, "reasoning_tokens")
    cached = _count(prompt_details, "cached_tokens")
    if cached is None:
        cached = _count(usage, "prompt_cache_hit_tokens")
    if output is not None:
        output += _counted_beside(prompt, output, reasoning, cached, _count(usage, "total_tokens"))
    if not prompt and not output:
        return None
    return Usage(
        input_tokens=prompt,
        output_tokens=token_count(output),
        cached_tokens=cached,
        reasoning_tokens=reasoning,
    )


def _counted_beside(
    prompt: int | None, output: int, reasoning: int | None, cached: int | None, total: int | None
) -> int:
    """Reasoning tokens that are not in the output count: the total has room for them, or the output has not.

    xAI, and proxies of Gemini, report `reasoning_tokens` beside `completion_tokens`. Gemini itself shows its thoughts
    in the total only. An excess that equals the cached tokens belongs to the prompt.
    """
    if prompt is None or total is None:
        return reasoning if reasoning is not None and reasoning > output else 0
    excess = total - prompt - output
    if reasoning:
        return reasoning if excess >= reasoning else 0
    return excess if excess > 0 and excess != cached else 0


def _count(owner: Any, *names: str) -> int | None:
    for name in names:
        count = token_count(field_of(owner, name))
        if count is not None:
            return count
    return None


def _first(owner: Any, *names: str) -> Any:
    return next((value for name in names if (value := field_of(owner, name)) is not None), None)


def field_of(owner: Any, name: str) -> Any:
    """A field of a model, a plain object or a mapping; None where there is none."""
    if isinstance(owner, dict):
        return owner.get(name)
    return getattr(owner, name, None)
