"""SGLang: part of each answer is reserved, and when memory runs out the shortest answer so far goes.

Follows SGLang 0.5.23: `srt/managers/schedule_policy.py` (`PrefillAdder`), `schedule_batch.py`
(`retract_decode`), `scheduler.py` (`get_next_batch_to_run`, `update_running_batch`) and
`scheduler_components/new_token_ratio_tracker.py`. Left out: priorities, speculative decoding, mixed chunks,
the overlap of scheduling with computing, and prefixes that prompts share; what finished requests leave in the
radix cache can be evicted at once and counts as free.
"""

from __future__ import annotations

from midstream.engines.sglang import CLIP_MAX_NEW_TOKENS, SglangSettings
from midstream.lab.admission._prefill import PrefillAdder
from midstream.lab.admission._sequence import Sequence, cap_of, load_of, until_an_end, until_full
from midstream.lab.admission._types import AdmissionRefusal, Ended, EngineLoad, PrefillChunk, Request, Step

INIT_RATIO = 0.7
MIN_RATIO_FACTOR = 0.14
RATIO_DECAY_STEPS = 600
RETRACT_DECODE_STEPS = 20
"""Constants of `srt/environ.py`."""

_OMITTED = 1 << 30
"""What an omitted max_tokens counts as, before the limits of context and pool."""


class Sglang:
    """SGLang's scheduler."""

    def __init__(self, settings: SglangSettings) -> None:
        self._set = settings
        self._page = settings.page_size
        self._pool = settings.max_total_tokens // self._page * self._page
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._prefilled: list[Sequence] = []
        """The batch of the last prefill step: it joins those that run at the next."""
        self._chunked: Sequence | None = None
        self._here: dict[int, Sequence] = {}
        self._full = False
        self._floor = min(INIT_RATIO * MIN_RATIO_FACTOR * settings.schedule_conservativeness, 1.0)
        self._initial = min(INIT_RATIO * settings.schedule_conservativeness, 1.0)
        self._base = self._initial
        self._clean_steps = 0
        self._quiet = False

    @property
    def new_token_ratio(self) -> float:
        """The share of each running answer's rest that is reserved: it falls with every quiet step."""
        if not self._clean_steps:
            return self._base
        decay = (self._initial - self._floor) / RATIO_DECAY_STEPS
        return max(self._base - decay * self._clean_steps, self._floor)

    def submit(self, request: Request) -> AdmissionRefusal | None:
        """Queue a request; refuse it if the prompt is too long, or if the queue is full."""
        # `max_req_len` of the model worker, then `init_req_max_new_tokens` of the scheduler.
        longest = min(self._set.context_length or self._pool, self._pool) - 1
        pages = -(-request.prompt_tokens // self._page) * self._page
        room = min(longest - request.prompt_tokens - 1, self._pool - pages - self._page - 1)
        if room < 1:
            return AdmissionRefusal(
                400, f"the prompt of {request.prompt_tokens} tokens leaves no room for an answer"
            )
        if self._queue_is_full():
            return AdmissionRefusal(503, "the request queue is full")
        if request.id in self._here:
            raise ValueError(f"request {request.id} is here already; ids must differ")
        sequence = self._here[request.id] = Sequence(request, min(cap_of(request, _OMITTED), room))
        self._quiet = self._quiet and self._full
        self._waiting.append(sequence)
        return None

    def abort(self, request_id: int) -> bool:
        """Forget a request."""
        sequence = self._here.pop(request_id, None)
        if sequence is None:
            return False
        sequence.done = True
        sequence.computed = 0
        self._waiting = [other for other in self._waiting if not other.done]
        self._prefilled = [other for other in self._prefilled if not other.done]
        if self._chunked is sequence:
            self._chunked = None
        self._quiet = False
        return True

    def step(self) -> Step | None:
        """Prefill if anything can be admitted, else decode, else rest."""
        self._quiet = False
        self._running += self._join()
        admitted = self._new_prefill_batch()
        if self._prefilled or self._chunked is not None:
            return self._prefill(admitted)
        return self._decode()

    def quiet_steps(self) -> int:
        """See AdmissionRule. Once the batch is full no request is admitted until it shrinks."""
        if not self._quiet:
            return 0
        computed = [sequence.computed for sequence in self._running]
        return min(until_an_end(self._running), until_full(computed, self._page, self._free() // self._page))

    def repeat(self, steps: int) -> None:
        """See AdmissionRule."""
        self._clean_steps += steps
        for sequence in self._running:
            sequence.output += steps
            sequence.computed += steps

    @property
    def load(self) -> EngineLoad:
        """Pages held count as taken; what the ratio reserves is an estimate and does not."""
        inside = [s for s in (*self._running, *self._prefilled, *self._partial()) if not s.done]
        reserved_tokens = self._pool - self._free()
        return load_of(inside, len(self._waiting), reserved_tokens=reserved_tokens, capacity=self._pool)

    def _partial(self) -> list[Sequence]:
        return [] if self._chunked is None or self._chunked in self._prefilled else [self._chunked]

    def _queue_is_full(self) -> bool:
        most = self._set.max_queued_requests
        return most is not None and len(self._waiting) >= most

    def _free(self) -> int:
        held = (*self._running, *self._prefilled, *self._partial())
        return self._pool - sum(self._pages(sequence.computed) for sequence in held if not sequence.done)

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self._page) * self._page

    def _join(self) -> list[Sequence]:
        """Hand over the last prefill batch, less those that are done and the one that is not through."""
        batch, self._prefilled = self._prefilled, []
        joining = [sequence for sequence in batch if not sequence.done and sequence is not self._chunked]
        if len(joining) < len(batch):
            self._full = False
        return joining

    def _new_prefill_batch(self) -> list[int]:
        """Fill the next prefill batch: first with the prompt that was begun, then in the queue's order."""
        if (self._full or not self._waiting) and self._chunked is None:
            return []
        ratio = self.new_token_ratio
        reserved = 0.0
        for sequence in self._running:
            rest = min(sequence.cap - sequence.output, CLIP_MAX_NEW_TOKENS)
            reserved += rest if sequence.request.answer_tokens is None else rest * ratio
        adder = PrefillAdder(
            memory=self._free() - reserved,
            inputs=self._set.max_prefill_tokens,
            chunk=self._set.chunked_prefill_size,
            page=self._page,
        )
        if self._chunked is not None:
            adder.resume(self._chunked)
        resumed = len(adder.batch)
        slots = self._set.max_running_requests - len(self._running)
        for sequence in self._waiting:
            self._full = self._full or len(adder.batch) >= slots
            if self._full:
                break
            verdict = adder.add(sequence)
            self._full = verdict == "no memory"
            if verdict != "go on":
                break
        self._prefilled, self._chunked = adder.batch, adder.partial
        admitted = adder.batch[resumed:]
        del self._waiting[: len(admitted)]
        return [sequence.id for sequence in admitted]

    def _prefill(self, admitted: list[int]) -> Step:
        chunks: list[PrefillChunk] = []
        emitted: list[int] = []
        ended: list[Ended] = []
        for sequence in self._prefilled:
            tokens, sequence.pending = sequence.pending, 0
            chunks.append(sequence.compute(tokens))
            if sequence is not self._chunked:
                emitted.append(sequence.id)
                if sequence.emit():
                    ended.append(self._leave(sequence))
        return Step(
            prefill=tuple(chunks), emitted=tuple(emitted), ended=tuple(ended), admitted=tuple(admitted)
        )

    def _decode(self) -> Step | None:
        before = len(self._running)
        self._running = [sequence for sequence in self._running if not sequence.done]
        if not self._running:
            self._full = False
            if not self._waiting:
                self._base, self._clean_steps = self._initial, 0
                return None
            return self.step()
        retracted: list[Sequence] = []
        ended: list[Ended] = []
        if self._needed() > self._free():
            retracted = self._retract()
        else:
            self._clean_steps += 1
        if len(self._running) < before:
            self._full = False
        for sequence in retracted:
            if self._queue_is_full():
                ended.append(Ended(self._leave(sequence).id, "error"))
            else:
                self._waiting.append(sequence)
        context = 0
        for sequence in self._running:
            sequence.computed += 1
            context += sequence.computed
            if sequence.emit():
                ended.append(self._leave(sequence))
        decode = tuple(sequence.id for sequence in self._running)
        self._quiet = not ended and not retracted and (self._full or not self._waiting)
        return Step(
            decode=decode,
            decode_context=context,
            emitted=decode,
            ended=tuple(ended),
            preempted=tuple(sequence.id for sequence in retracted),
        )

    def _needed(self) -> int:
        """Tokens of memory that the next decode step asks for: a page for each whose last one is full."""
        return sum(self._page for sequence in self._running if sequence.computed % self._page == 0)

    def _retract(self) -> list[Sequence]:
        """Retract those with the least output, the longest prompt first among equals, until one step fits."""
        order = sorted(self._running, key=lambda sequence: (sequence.output, -sequence.prompt), reverse=True)
        retracted: list[Sequence] = []
        self._running = order
        while len(self._running) > 1 and (not retracted or self._needed() > self._free()):
            victim = self._running.pop()
            victim.preempt()
            retracted.append(victim)
        output = sum(sequence.output for sequence in self._running)
        asked = sum(sequence.cap for sequence in self._running)
        estimate = (output + RETRACT_DECODE_STEPS * len(self._running)) / (asked + 1)
        self._base, self._clean_steps = min(1.0, estimate), 0
        return retracted

    def _leave(self, sequence: Sequence) -> Ended:
        sequence.done = True
        sequence.computed = 0
        del self._here[sequence.id]
        return sequence.ended()
