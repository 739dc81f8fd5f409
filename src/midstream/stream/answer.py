"""What the chunks of an answer amount to: finish reasons, usage, model, failure. Nothing here depends on time."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from midstream.stream.chunks import Reading
from midstream.stream.finish_reasons import finish_label, is_failure_reason
from midstream.stream.usage import Usage

MOST_CHOICES = 128
"""As many as OpenAI's API can be asked for. What a server sends beyond them is passed on, and not read."""
_NONE: frozenset[int] = frozenset()
_FIRST = frozenset({0})
_NO_FINISHES: Mapping[int, str] = MappingProxyType({})


class AnswerState:
    """The running account of one answer. Constant in size, however long the answer is."""

    __slots__ = (
        "_error_event",
        "_finishes",
        "_usage_seen_after_content",
        "_with_output",
        "cached_tokens",
        "input_tokens",
        "model",
        "output_tokens",
        "reasoning_tokens",
        "reopened",
        "response_id",
    )

    def __init__(self) -> None:
        self.model: str | None = None
        self.response_id: str | None = None
        self.reopened = False
        """Whether output came after a finish reason of the same choice."""
        self._error_event: str | None = None
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self._with_output = _NONE  # shared as long as it can be: most answers have one choice
        self._finishes: Mapping[int, str] = _NO_FINISHES
        self._usage_seen_after_content = False

    def name(self, model: str | None, response_id: str | None) -> bool:
        """Take over what a chunk names the model and the answer; the first names count. Whether both are known."""
        self.model = self.model or model
        self.response_id = self.response_id or response_id
        return self.model is not None and self.response_id is not None

    def on_output(self, choices: tuple[int, ...]) -> None:
        """These choices carried output. One that had finished is open again: some gateways finish every chunk."""
        self._usage_seen_after_content = False
        if not self._with_output.issuperset(choices) and len(self._with_output) < MOST_CHOICES:
            more = _FIRST if choices == (0,) else frozenset(choices[:MOST_CHOICES])
            self._with_output = self._with_output | more if self._with_output else more
        if self._finishes and not self._finishes.keys().isdisjoint(choices):
            self._finishes = {
                index: reason for index, reason in self._finishes.items() if index not in choices
            }
            self.reopened = True

    def on_reading(self, reading: Reading) -> None:
        """Take over what a chunk carried beside its output. The last finish reason of a choice counts."""
        for index, reason in reading.finishes:
            if index in self._finishes or len(self._finishes) < MOST_CHOICES:
                self._finishes = {**self._finishes, index: reason}
        if reading.usage is not None:
            self._count(reading.usage)
            self._usage_seen_after_content = True
        if reading.error is not None:
            self._error_event = self._error_event or reading.error

    @property
    def error(self) -> str | None:
        """Why the answer failed, if it did: an error event, or a finish reason that means failure."""
        if self._error_event is not None:
            return self._error_event
        return next((reason for reason in self._finishes.values() if is_failure_reason(reason)), None)

    @property
    def finished(self) -> bool:
        """True once every choice that carried output, and at least one, has its finish reason."""
        return bool(self._finishes) and self._with_output <= self._finishes.keys()

    @property
    def finish_reasons(self) -> tuple[str | None, ...]:
        """Raw reasons in index order, None for a choice without one; empty if none came at all."""
        if not self._finishes:
            return ()
        return tuple(self._finishes.get(index) for index in sorted(self._with_output | self._finishes.keys()))

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
        several = max(choices, len(self._with_output), 1)
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
