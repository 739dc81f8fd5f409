"""llama.cpp's server: a fixed number of slots and nothing reserved; when memory runs out all fail.

Follows `tools/server/server.cpp` (`update_slots`) as vendored in llama-cpp-python 0.3.36, with its defaults:
context shift off. What idle slots keep of earlier requests is cleared when memory is short, and counts as
free.
"""

from __future__ import annotations

from collections import deque

from midstream.engines.llamacpp import LlamaCppSettings
from midstream.lab.admission._sequence import Sequence, cap_of, load_of, until_an_end
from midstream.lab.admission._types import AdmissionRefusal, Ended, EngineLoad, PrefillChunk, Request, Step


class LlamaCpp:
    """The slots of llama.cpp's server."""

    def __init__(self, settings: LlamaCppSettings) -> None:
        self._set = settings
        self._slot = settings.ctx_size if settings.kv_unified else settings.ctx_size // settings.parallel
        """Tokens that one request may have, prompt and answer together."""
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._here: dict[int, Sequence] = {}
        self._quiet = False

    def submit(self, request: Request) -> AdmissionRefusal | None:
        """Queue a request until a slot is free; refuse it if the prompt fills a slot."""
        room = self._slot - request.prompt_tokens
        if room < 1:
            return AdmissionRefusal(
                400, f"the request exceeds the available context size of {self._slot} tokens"
            )
        if request.id in self._here:
            raise ValueError(f"request {request.id} is here already; ids must differ")
        sequence = self._here[request.id] = Sequence(request, cap_of(request, room))
        self._quiet = self._quiet and len(self._running) == self._set.parallel
        self._waiting.append(sequence)
        return None

    def abort(self, request_id: int) -> bool:
        """Forget a request."""
        sequence = self._here.pop(request_id, None)
        if sequence is None:
            return False
        sequence.done = True
        self._waiting = deque(other for other in self._waiting if not other.done)
        self._running = [other for other in self._running if not other.done]
        self._quiet = False
        return True

    def step(self) -> Step | None:
        """Fill the batch with a token for each answer under way, then with prompts; fail if too much."""
        admitted: list[int] = []
        while self._waiting and len(self._running) < self._set.parallel:
            sequence = self._waiting.popleft()
            self._running.append(sequence)
            admitted.append(sequence.id)
        if not self._running:
            return None
        decoding = [sequence for sequence in self._running if sequence.output]
        budget = self._set.batch_size - len(decoding)
        parts: list[tuple[Sequence, int]] = []
        for sequence in self._running:
            tokens = 0 if sequence.output else min(sequence.prompt - sequence.computed, budget)
            if tokens > 0:
                parts.append((sequence, tokens))
                budget -= tokens
        asked = len(decoding) + sum(tokens for _, tokens in parts)
        if asked > self._set.ctx_size - sum(sequence.computed for sequence in self._running):
            return self._fail(admitted)
        return self._compute(decoding, parts, admitted)

    def quiet_steps(self) -> int:
        """See AdmissionRule."""
        if not self._quiet:
            return 0
        free = self._set.ctx_size - sum(sequence.computed for sequence in self._running)
        return min(until_an_end(self._running), free // len(self._running))

    def repeat(self, steps: int) -> None:
        """See AdmissionRule."""
        for sequence in self._running:
            sequence.output += steps
            sequence.computed += steps

    @property
    def load(self) -> EngineLoad:
        """Only what is written counts as taken."""
        used_tokens = sum(sequence.computed for sequence in self._running)
        return load_of(
            self._running, len(self._waiting), reserved_tokens=used_tokens, capacity=self._set.ctx_size
        )

    def _compute(
        self, decoding: list[Sequence], parts: list[tuple[Sequence, int]], admitted: list[int]
    ) -> Step:
        prefill: list[PrefillChunk] = []
        emitting = list(decoding)
        ended: list[Ended] = []
        context = 0
        for sequence in decoding:
            sequence.computed += 1
            context += sequence.computed
        for sequence, tokens in parts:
            prefill.append(sequence.compute(tokens))
            if sequence.computed == sequence.prompt:
                emitting.append(sequence)
        for sequence in emitting:
            if sequence.emit():
                ended.append(sequence.ended())
                del self._here[sequence.id]
        if ended:
            self._running = [sequence for sequence in self._running if not sequence.done]
        self._quiet = not ended and not prefill
        return Step(
            prefill=tuple(prefill),
            decode=tuple(sequence.id for sequence in decoding),
            decode_context=context,
            emitted=tuple(sequence.id for sequence in emitting),
            ended=tuple(ended),
            admitted=tuple(admitted),
        )

    def _fail(self, admitted: list[int]) -> Step:
        """End every request in a slot: smaller batches were tried, and "Context size has been exceeded"."""
        failed = tuple(Ended(sequence.id, "error") for sequence in self._running)
        for sequence in self._running:
            del self._here[sequence.id]
        self._running = []
        self._quiet = False
        return Step(ended=failed, admitted=tuple(admitted))
