"""vLLM: nothing is reserved for answers, and when memory runs out the last one admitted goes.

Follows V1 of vLLM 0.33.0: `vllm/v1/core/sched/scheduler.py` (`schedule`, `_preempt_request`),
`async_scheduler.py` and `vllm/v1/core/kv_cache_manager.py` (`allocate_slots`). Left out: priorities,
speculative decoding, LoRA, KV connectors, sliding windows, and prefixes that prompts share.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from midstream.engines.vllm import VllmSettings
from midstream.lab.admission._blocks import BlockPool
from midstream.lab.admission._sequence import Sequence, cap_of, load_of, until_an_end, until_full
from midstream.lab.admission._types import AdmissionRefusal, Ended, EngineLoad, PrefillChunk, Request, Step


@dataclass(slots=True)
class _Plan:
    """A step that was scheduled: which requests, which of them sample a token, and what is computed."""

    rows: list[Sequence] = field(default_factory=list)
    samples: list[bool] = field(default_factory=list)
    prefill: list[PrefillChunk] = field(default_factory=list)
    decode: list[int] = field(default_factory=list)
    context: int = 0
    admitted: list[int] = field(default_factory=list)
    preempts: bool = False

    def add(self, sequence: Sequence, tokens: int) -> None:
        known = sequence.known
        if tokens == 1 and sequence.computed + 1 == known > sequence.prompt:
            sequence.computed = known
            self.decode.append(sequence.id)
            self.context += known
        else:
            self.prefill.append(sequence.compute(tokens))
        samples = sequence.computed == known
        sequence.pending += samples
        self.rows.append(sequence)
        self.samples.append(samples)


class Vllm:
    """vLLM's scheduler."""

    def __init__(self, settings: VllmSettings) -> None:
        self._set = settings
        self._pool = BlockPool(settings.num_gpu_blocks - 1)
        self._model_len = settings.max_model_len or self._pool.size * settings.block_size
        self._most = settings.max_num_active_seqs or settings.max_num_seqs
        self._watermark = int(settings.watermark * settings.num_gpu_blocks)
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._here: dict[int, Sequence] = {}
        self._in_flight: _Plan | None = None
        self._preempted: list[int] = []
        """Requests preempted since the last step was delivered."""
        self._quiet = False

    def submit(self, request: Request) -> AdmissionRefusal | None:
        """Queue a request; refuse it if the prompt leaves no room for an answer, or if the queue is full."""
        room = self._model_len - request.prompt_tokens
        if room < 1:
            return AdmissionRefusal(
                400, f"the prompt must be shorter than the {self._model_len} tokens of the model"
            )
        most = self._set.max_num_queued_reqs
        if most is not None and len(self._waiting) >= most:
            return AdmissionRefusal(503, f"{most} requests are waiting already")
        if request.id in self._here:
            raise ValueError(f"request {request.id} is here already; ids must differ")
        sequence = self._here[request.id] = Sequence(request, cap_of(request, room))
        # Behind a head that does not fit, one more request changes nothing.
        self._quiet = self._quiet and bool(self._waiting)
        self._waiting.append(sequence)
        return None

    def abort(self, request_id: int) -> bool:
        """Forget a request; a token of its own that is in flight is dropped."""
        sequence = self._here.get(request_id)
        if sequence is None:
            return False
        sequence.done = True
        self._leave([sequence])
        self._quiet = False
        return True

    def step(self) -> Step | None:
        """Schedule a step and deliver it; in async scheduling, deliver the one scheduled before."""
        plan = self._in_flight or self._schedule()
        if plan is None:
            return None
        self._in_flight = self._schedule() if self._set.async_scheduling else None
        return self._deliver(plan)

    def quiet_steps(self) -> int:
        """See AdmissionRule. A head that does not fit now fits less and less while the others decode."""
        if not self._quiet:
            return 0
        running = self._running
        computed = [sequence.computed for sequence in running]
        return min(until_an_end(running), until_full(computed, self._set.block_size, self._pool.free))

    def repeat(self, steps: int) -> None:
        """See AdmissionRule."""
        for sequence in self._running:
            sequence.output += steps
            sequence.computed += steps
            self._hold(sequence, sequence.computed)
        if self._in_flight is not None:
            self._in_flight.context += steps * len(self._in_flight.rows)

    @property
    def load(self) -> EngineLoad:
        """Blocks held count as taken; the block that vLLM keeps for itself is not part of the capacity."""
        size, reserved_tokens = self._pool.size, self._pool.size - self._pool.free
        block = self._set.block_size
        return load_of(
            self._running, len(self._waiting), reserved_tokens=reserved_tokens * block, capacity=size * block
        )

    def _schedule(self) -> _Plan | None:
        plan = _Plan()
        budget = self._schedule_running(plan, self._set.max_num_batched_tokens)
        if not plan.preempts:
            self._schedule_waiting(plan, budget)
        return plan if plan.rows or plan.preempts else None

    def _schedule_running(self, plan: _Plan, budget: int) -> int:
        """Give each running request, in order of admission, its tokens; return what is left of the budget."""
        index = 0
        while index < len(self._running) and budget > 0:
            sequence = self._running[index]
            index += 1
            if sequence.pending and sequence.output + sequence.pending >= sequence.cap:
                continue  # the token in flight is its last, and the scheduler knows it
            tokens = min(self._threshold(sequence.known - sequence.computed), budget)
            while not self._hold(sequence, sequence.computed + tokens):
                victim = self._running.pop()
                self._preempt(victim)
                plan.preempts = True
                if victim is sequence:
                    return budget
            plan.add(sequence, tokens)
            budget -= tokens
        return budget

    def _schedule_waiting(self, plan: _Plan, budget: int) -> None:
        """Admit from the head of the queue, in order, until one does not fit."""
        block = self._set.block_size
        while self._waiting and budget > 0 and len(self._running) < self._most:
            sequence = self._waiting[0]
            known = sequence.known
            found = self._pool.find(sequence.id, (known - 1) // block) if sequence.preemptions else []
            wanted = self._threshold(known - len(found) * block)
            if wanted > budget and not self._set.enable_chunked_prefill:
                return
            tokens = min(wanted, budget)
            # Found blocks lie in the free list too: taking them uses it up just as new ones do.
            whole = known if self._set.scheduler_reserve_full_isl else len(found) * block + tokens
            spare = self._watermark if self._running else 0
            if -(-whole // block) + spare > self._pool.free:
                return
            self._waiting.popleft()
            self._running.append(sequence)
            self._pool.reclaim(found)
            sequence.blocks = found
            sequence.computed = len(found) * block
            self._hold(sequence, sequence.computed + tokens)
            plan.admitted.append(sequence.id)
            plan.add(sequence, tokens)
            budget -= tokens

    def _deliver(self, plan: _Plan) -> Step:
        emitted: list[int] = []
        ended: list[Ended] = []
        gone: list[Sequence] = []
        for sequence, samples in zip(plan.rows, plan.samples, strict=True):
            if sequence.done or not samples:
                continue
            sequence.pending -= 1
            emitted.append(sequence.id)
            if sequence.emit():
                ended.append(sequence.ended())
                gone.append(sequence)
        self._leave(gone)
        preempted, self._preempted = self._preempted, []
        ahead = self._in_flight if self._set.async_scheduling else plan
        self._quiet = not (gone or preempted) and all(
            each is not None and not each.prefill and each.rows == self._running for each in (plan, ahead)
        )
        return Step(
            prefill=tuple(plan.prefill),
            decode=tuple(plan.decode),
            decode_context=plan.context,
            emitted=tuple(emitted),
            ended=tuple(ended),
            admitted=tuple(plan.admitted),
            preempted=tuple(preempted),
        )

    def _threshold(self, tokens: int) -> int:
        threshold = self._set.long_prefill_token_threshold
        return min(tokens, threshold) if threshold else tokens

    def _hold(self, sequence: Sequence, tokens: int) -> bool:
        """Let a request hold blocks for that many tokens; False if there are too few."""
        missing = -(-tokens // self._set.block_size) - len(sequence.blocks)
        if missing > 0:
            if missing > self._pool.free:
                return False
            sequence.blocks += self._pool.take(missing)
        return True

    def _preempt(self, victim: Sequence) -> None:
        """Free a victim's memory and put it at the queue's front: of several, the oldest ends up first."""
        full = victim.computed // self._set.block_size if self._set.enable_prefix_caching else 0
        self._pool.give_back(victim.blocks, owner=victim.id, full=full)
        victim.preempt()
        self._preempted.append(victim.id)
        self._waiting.appendleft(victim)

    def _leave(self, gone: list[Sequence]) -> None:
        for sequence in gone:
            del self._here[sequence.id]
            self._pool.give_back(sequence.blocks)
            sequence.blocks = []
        if gone:
            self._running = [sequence for sequence in self._running if not sequence.done]
            if not all(sequence.computed for sequence in gone):
                self._waiting = deque(sequence for sequence in self._waiting if not sequence.done)
