"""What an answer turned out to be, gathered chunk by chunk: finishes, usage, model, failure. It knows no clock."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from midstream._support.sanitize import valid_name
from midstream.stream.chunks import Reading, Usage
from midstream.stream.finish_reasons import failed_finish, finish_label

MOST_CHOICES = 128
"""As many as OpenAI's API can be asked for. What a server sends beyond them is passed on, and not looked at."""
_NONE: frozenset[int] = frozenset()
_FIRST = frozenset({0})
_NO_FINISHES: Mapping[int, str] = MappingProxyType({})


class Answer:
    """The running account of one answer. Constant in size, however long the answer is."""

    __slots__ = (
        "_finishes",
        "_spoken",
        "_usage_seen_after_content",
        "cached_tokens",
        "error",
        "input_tokens",
        "model",
        "output_tokens",
        "reasoning_tokens",
    )

    def __init__(self) -> None:
        self.model: str | None = None
        self.error: str | None = None
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self._spoken = _NONE  # shared as long as it can be: most answers have one choice
        self._finishes: Mapping[int, str] = _NO_FINISHES
        self._usage_seen_after_content = False

    def speak(self, choices: tuple[int, ...]) -> bool:
        """Note that these choices carried output; True if one of them was still unfinished."""
        self._usage_seen_after_content = False
        if not self._spoken.issuperset(choices) and len(self._spoken) < MOST_CHOICES:
            more = _FIRST if choices == (0,) else frozenset(choices[:MOST_CHOICES])
            self._spoken = self._spoken | more if self._spoken else more
        return any(choice in self._spoken and choice not in self._finishes for choice in choices)

    def note(self, reading: Reading) -> None:
        """Take over what a chunk said beside its output."""
        for index, reason in reading.finishes:
            # A second finish chunk repeats the first; a later choice of the same index cannot exist.
            if len(self._finishes) < MOST_CHOICES:
                self._finishes = {index: valid_name(reason), **self._finishes}
            if failed_finish(reason):
                self.error = self.error or valid_name(reason)
        if reading.usage is not None:
            self._count(reading.usage)
            self._usage_seen_after_content = True
        if reading.error is not None:
            self.error = self.error or reading.error

    @property
    def finished(self) -> bool:
        """True once every choice that carried output, and at least one, has its finish reason."""
        return bool(self._finishes) and self._spoken <= self._finishes.keys()

    @property
    def finish_reasons(self) -> tuple[str | None, ...]:
        """Raw reasons in index order, None for a choice without one; empty if none came at all."""
        if not self._finishes:
            return ()
        return tuple(self._finishes.get(index) for index in sorted(self._spoken | self._finishes.keys()))

    @property
    def usage_complete(self) -> bool:
        """True if the last report of usage came with or after the last output of a finished answer."""
        return self.finished and self._usage_seen_after_content

    def limit_hit(self, limit: int | None, choices: int) -> bool:
        """Whether the output reached the limit asked for, whatever the finish reason says.

        Usage is summed over choices, so several choices hit the limit surely only together, or when one says so.
        Without usage the finish reason is all there is.
        """
        if limit is None:
            return False
        cut = any(finish_label(reason) == "length" for reason in self._finishes.values())
        if self.output_tokens is None:
            return cut
        several = max(choices, len(self._spoken), 1)
        return self.output_tokens >= limit * several or (several > 1 and cut and self.output_tokens >= limit)

    def _count(self, usage: Usage) -> None:
        # Reports are cumulative, so the largest is the latest; a zero or partial one must not undo it.
        self.input_tokens = _larger(self.input_tokens, usage.input_tokens)
        self.output_tokens = _larger(self.output_tokens, usage.output_tokens)
        self.cached_tokens = _larger(self.cached_tokens, usage.cached_tokens)
        self.reasoning_tokens = _larger(self.reasoning_tokens, usage.reasoning_tokens)


def _larger(known: int | None, reported: int | None) -> int | None:
    if known is None or reported is None:
        return reported if known is None else known
    return max(known, reported)
