"""SGLang's `PrefillAdder`: what one prefill batch may still take in.

Follows `srt/managers/schedule_policy.py` and `srt/mem_cache/prefill_budget.py`, 0.5.23.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from midstream.engines.sglang import CLIP_MAX_NEW_TOKENS
from midstream.lab.admission._sequence import Sequence

Verdict: TypeAlias = Literal["go on", "no memory", "enough"]
"""Whether another request may be tried. Without memory, none will be until the running batch shrinks."""


class PrefillAdder:
    """A prefill batch being filled. `pending` of a member says how much of its prompt the batch computes."""

    def __init__(self, *, memory: float, inputs: int, chunk: int, page: int) -> None:
        self.batch: list[Sequence] = []
        self.partial: Sequence | None = None
        """The one member whose prompt is not through with this batch."""
        self._memory = memory
        self._inputs = inputs
        self._chunk = chunk
        self._page = page

    def resume(self, sequence: Sequence) -> None:
        """Take in the next part of a prompt that was begun; it always goes on, whatever the memory says."""
        rest = sequence.known - sequence.computed
        memory = int(self._memory)
        self._add(sequence, min(rest, self._chunk, memory if memory > 0 else self._chunk), rest)

    def add(self, sequence: Sequence) -> Verdict:
        """Take in a waiting request, if its prompt and the rest of its answer, clipped, fit in memory."""
        extend = sequence.known
        if extend + min(sequence.cap - sequence.output, CLIP_MAX_NEW_TOKENS) + self._page >= self._memory:
            return "no memory"
        if self.batch and self._whole_pages(extend) >= self._inputs:
            return "enough"
        tokens = extend
        if self._whole_pages(extend) > self._chunk:
            tokens = self._chunk // self._page * self._page
            if tokens <= 0:
                return "enough"
        self._add(sequence, tokens, extend)
        if self._memory <= 0:
            return "no memory"
        return "enough" if self._chunk <= 0 or self._inputs <= 0 else "go on"

    def _add(self, sequence: Sequence, tokens: int, wanted: int) -> None:
        sequence.pending = tokens
        self.batch.append(sequence)
        pages = self._whole_pages(tokens)
        self._memory -= pages
        self._chunk -= pages
        self._inputs -= pages
        if tokens < wanted:
            self.partial = sequence
        else:
            self._memory -= self._page + min(sequence.cap, CLIP_MAX_NEW_TOKENS)

    def _whole_pages(self, tokens: int) -> int:
        return -(-tokens // self._page) * self._page
