"""Text Generation Inference: memory is reserved and no request is preempted; yet answers stop in the middle.

Follows TGI 3.3.7: `backends/v3/src/queue.rs`, `backend.rs` and `block_allocator.rs`,
`router/src/validation.rs` and `router/src/infer/mod.rs`. From 3.1.1 on each pass reserves at most 1,024
tokens of answer; a longer answer is queued again, at the tail, with everything said so far as its prompt. Up
to 2.4 a request reserved all it had asked for. Left out: speculation, sliding windows, and prefixes that
prompts share.
"""

from __future__ import annotations

from collections import deque

from midstream.engines.tgi import PASS_TOKENS, TgiSettings
from midstream.lab.admission._sequence import Sequence, load_of
from midstream.lab.admission._types import AdmissionRefusal, Ended, EngineLoad, PrefillChunk, Request, Step


class Tgi:
    """TGI's batching task and queue. `pass_tokens` is None up to 2.4."""

    def __init__(self, settings: TgiSettings, *, pass_tokens: int | None = PASS_TOKENS) -> None:
        self._set = settings
        self._pass = pass_tokens
        self._blocks = settings.max_batch_total_tokens // settings.block_size - 1
        """Blocks to hand out; the allocator keeps block 0."""
        self._free = self._blocks
        self._total = settings.max_total_tokens or self._blocks * settings.block_size
        self._input = settings.max_input_tokens or self._total - 1
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._here: dict[int, Sequence] = {}
        self._held: dict[int, int] = {}
        self._until: dict[int, int] = {}
        """Output tokens with which the running pass of each request ends."""
        self._since_prefill = 0
        self._decode_is_due = False
        self._quiet = 0

    def submit(self, request: Request) -> AdmissionRefusal | None:
        """Queue a request; refuse it if it could exceed a limit, or if there are too many."""
        if len(self._here) >= self._set.max_concurrent_requests:
            return AdmissionRefusal(429, "Model is overloaded")
        room = self._total - request.prompt_tokens
        wanted = room if request.max_tokens is None else request.max_tokens
        if room < 1 or request.prompt_tokens > self._input:
            return AdmissionRefusal(
                422, f"the prompt must not exceed {min(self._input, self._total - 1)} tokens"
            )
        if self._pass_of(wanted) > room:
            return AdmissionRefusal(
                422, f"prompt and max_tokens together must not exceed {self._total} tokens"
            )
        if request.id in self._here:
            raise ValueError(f"request {request.id} is here already; ids must differ")
        sequence = self._here[request.id] = Sequence(request, self._cap(request.prompt_tokens, wanted, room))
        self._waiting.append(sequence)
        self._quiet = 0
        return None

    def abort(self, request_id: int) -> bool:
        """Forget a request."""
        sequence = self._here.get(request_id)
        if sequence is None:
            return False
        sequence.done = True
        self._leave(sequence)
        self._waiting = deque(other for other in self._waiting if not other.done)
        self._running = [other for other in self._running if not other.done]
        self._quiet = 0
        return True

    def step(self) -> Step | None:
        """Prefill and decode: together with chunking; without, a prefill pass while the others wait."""
        self._quiet = 0
        joins = bool(self._running)
        admitted = [] if self._decode_is_due and joins else self._next_batch()
        batch = self._running
        self._decode_is_due = False
        if admitted and not self._set.prefill_chunking:
            batch = admitted
            self._since_prefill = 0
            self._decode_is_due = joins
        if not batch:
            return None
        self._since_prefill += 1
        return self._compute(batch, admitted)

    def quiet_steps(self) -> int:
        """See AdmissionRule. Who waits goes on waiting until memory is freed, or a prefill is overdue.

        After a request that ran alone the next prefill is due at once, so a step with requests waiting is not repeated.
        """
        return 0 if self._waiting and not self._set.prefill_chunking else self._quiet

    def repeat(self, steps: int) -> None:
        """See AdmissionRule."""
        self._since_prefill += steps
        self._quiet -= steps
        for sequence in self._running:
            sequence.output += steps
            sequence.computed += steps

    @property
    def load(self) -> EngineLoad:
        """Reservations count as taken; the block that the allocator keeps is not part of the capacity."""
        block = self._set.block_size
        reserved_tokens = (self._blocks - self._free) * block
        return load_of(
            self._running, len(self._waiting), reserved_tokens=reserved_tokens, capacity=self._blocks * block
        )

    def _cap(self, prompt: int, wanted: int, room: int) -> int:
        """Return the output with which the last pass ends; whole passes may overshoot max_tokens."""
        if self._pass is None or wanted <= self._pass:
            return wanted
        # A next pass needs room for its prompt, by then all that was said, and for itself.
        passes = min(-(-wanted // self._pass), (self._input - prompt) // self._pass + 1)
        return min(passes, room // self._pass) * self._pass

    def _pass_of(self, wanted: int) -> int:
        return wanted if self._pass is None else min(wanted, self._pass)

    def _next_batch(self) -> list[Sequence]:
        """Take requests from the queue's front, until one does not fit; it goes back to the front."""
        chunking = self._set.prefill_chunking
        budget = self._set.max_batch_prefill_tokens
        least, most = 0, len(self._waiting)
        if chunking:
            budget -= sum(min(s.known - s.computed, budget) for s in self._running)
        else:
            if self._running and self._since_prefill < self._set.max_waiting_tokens:
                least = int(len(self._running) * self._set.waiting_served_ratio)
            if self._set.max_batch_size is not None:
                most = self._set.max_batch_size - len(self._running)
        selected: list[Sequence] = []
        if len(self._waiting) >= least:
            while self._waiting and len(selected) < most:
                sequence = self._waiting[0]
                answer = self._pass_of(sequence.cap - sequence.output)
                blocks = -(-(sequence.known + answer - 1) // self._set.block_size)
                # The launcher sees to it that a prompt alone is within the budget; here it may always go
                # alone.
                fits = budget > 0 if chunking else sequence.known <= budget or not (selected or self._running)
                if blocks > self._free or not fits:
                    break
                self._waiting.popleft()
                self._free -= blocks
                self._held[sequence.id] = blocks
                self._until[sequence.id] = sequence.output + answer
                budget -= sequence.known
                selected.append(sequence)
        if len(selected) < least:
            while selected:
                sequence = selected.pop()
                self._free += self._held.pop(sequence.id)
                self._waiting.appendleft(sequence)
        self._running += selected
        return selected

    def _compute(self, batch: list[Sequence], admitted: list[Sequence]) -> Step:
        budget = self._set.max_batch_prefill_tokens - sum(s.known - s.computed == 1 for s in batch)
        prefill: list[PrefillChunk] = []
        decode: list[int] = []
        emitted: list[int] = []
        ended: list[Ended] = []
        again: list[Sequence] = []
        context = 0
        for sequence in batch:
            missing = sequence.known - sequence.computed
            if missing == 1 and sequence.output:
                sequence.computed += 1
                decode.append(sequence.id)
                context += sequence.computed
            else:
                tokens = min(missing, max(budget, 0)) if self._set.prefill_chunking else missing
                prefill += [sequence.compute(tokens)] if tokens else []
                budget -= tokens
                if tokens < missing:
                    continue
            emitted.append(sequence.id)
            if sequence.emit():
                self._leave(sequence)
                ended.append(sequence.ended())
            elif sequence.output == self._until[sequence.id]:
                self._free += self._held.pop(sequence.id)
                sequence.preempt()
                again.append(sequence)
        if ended or again:
            self._running = [s for s in self._running if not s.done and s not in again]
            self._waiting += again
        elif not prefill:
            self._quiet = self._quiet_for(batch)
        return Step(
            prefill=tuple(prefill),
            decode=tuple(decode),
            decode_context=context,
            emitted=tuple(emitted),
            ended=tuple(ended),
            admitted=tuple(sequence.id for sequence in admitted),
            preempted=tuple(sequence.id for sequence in again),
        )

    def _quiet_for(self, batch: list[Sequence]) -> int:
        quiet = min(min(s.limit, self._until[s.id]) - s.output for s in batch) - 1
        if self._waiting and not self._set.prefill_chunking:
            before_prefill = self._set.max_waiting_tokens - self._since_prefill
            quiet = min(quiet, before_prefill) if before_prefill > 0 else quiet
        return quiet

    def _leave(self, sequence: Sequence) -> None:
        del self._here[sequence.id]
        self._free += self._held.pop(sequence.id, 0)
