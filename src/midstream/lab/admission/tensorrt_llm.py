"""TensorRT-LLM: two policies. One reserves everything and never pauses a request, the other reserves nothing.

Follows `cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp`, `microBatchScheduler.cpp` and
`kvCacheManager.cpp` (`getRemainingBlocksToCompletion`, `getNeededBlocksOneStep`) of TensorRT-LLM 1.x, with
the V1 KV cache manager and without chunked context, which are the defaults. Left out: LoRA, beams, draft
tokens, and prefixes that prompts share.
"""

from __future__ import annotations

from midstream.engines.tensorrt_llm import TensorRtLlmSettings
from midstream.lab.admission._sequence import Sequence, cap_of, load_of, until_an_end, until_full
from midstream.lab.admission._types import AdmissionRefusal, Ended, EngineLoad, PrefillChunk, Request, Step


class TensorRtLlm:
    """The two schedulers of TensorRT-LLM. `max_utilization` chooses the policy that overcommits."""

    def __init__(self, settings: TensorRtLlmSettings, *, max_utilization: bool = False) -> None:
        self._set = settings
        self._overcommits = max_utilization
        self._block = settings.tokens_per_block
        self._blocks = settings.max_tokens_in_kv_cache // self._block
        self._longest = settings.max_seq_len or self._blocks * self._block
        self._active: list[Sequence] = []
        """Every request inside, in order of arrival: a paused one keeps its place."""
        self._started: list[Sequence] = []
        """Those of them that hold memory, in the same order."""
        self._here: dict[int, Sequence] = {}
        self._quiet = False

    def submit(self, request: Request) -> AdmissionRefusal | None:
        """Queue a request; refuse it if the prompt exceeds what a sequence or a step can hold.

        The answer may take what the sequence length leaves, and without max_tokens all of that is reserved.
        """
        room = self._longest - request.prompt_tokens
        if room < 1:
            return AdmissionRefusal(400, f"the prompt must be shorter than max_seq_len ({self._longest})")
        if request.prompt_tokens > self._set.max_num_tokens:
            return AdmissionRefusal(
                400, f"the prompt must not exceed max_num_tokens ({self._set.max_num_tokens})"
            )
        if request.id in self._here:
            raise ValueError(f"request {request.id} is here already; ids must differ")
        # Behind a head that does not fit, one more request changes nothing.
        self._quiet = self._quiet and not self._active[-1].computed
        sequence = self._here[request.id] = Sequence(request, cap_of(request, room))
        self._active.append(sequence)
        return None

    def abort(self, request_id: int) -> bool:
        """Forget a request."""
        sequence = self._here.pop(request_id, None)
        if sequence is None:
            return False
        self._active.remove(sequence)
        if sequence.computed:
            self._started.remove(sequence)
        self._quiet = False
        return True

    def step(self) -> Step | None:
        """Let the policy choose by memory, then fill the step by tokens."""
        if not self._active:
            return None
        choose = self._choose_overcommitting if self._overcommits else self._choose_reserving
        chosen, paused = choose()
        for sequence in paused:
            sequence.preempt()
            self._started.remove(sequence)
        return self._compute(chosen, paused)

    def quiet_steps(self) -> int:
        """See AdmissionRule. Who does not fit now fits less and less while the others decode."""
        if not self._quiet:
            return 0
        quiet = until_an_end(self._started)
        if self._overcommits:
            computed = [sequence.computed for sequence in self._started]
            quiet = min(quiet, until_full(computed, self._block, self._free()))
        return quiet

    def repeat(self, steps: int) -> None:
        """See AdmissionRule."""
        for sequence in self._started:
            sequence.output += steps
            sequence.computed += steps

    @property
    def load(self) -> EngineLoad:
        """What the reserving policy reserves counts as taken; the other takes only the blocks in use."""
        blocks = sum(map(self._held if self._overcommits else self._to_completion, self._started))
        waiting = len(self._active) - len(self._started)
        return load_of(
            self._started, waiting, reserved_tokens=blocks * self._block, capacity=self._blocks * self._block
        )

    def _running_now(self) -> list[Sequence]:
        """Collect who holds memory; behind the last that started none does."""
        found: list[Sequence] = []
        for sequence in self._active:
            if not sequence.computed and not self._overcommits:
                break
            if sequence.computed:
                found.append(sequence)
        return found

    def _held(self, sequence: Sequence) -> int:
        return -(-sequence.computed // self._block)

    def _to_completion(self, sequence: Sequence) -> int:
        return -(-(sequence.prompt + sequence.cap) // self._block)

    def _free(self) -> int:
        return self._blocks - sum(map(self._held, self._started))

    def _choose_reserving(self) -> tuple[list[Sequence], list[Sequence]]:
        """GUARANTEED_NO_EVICT: all that run, then those that fit to their completion, until one does not."""
        chosen = list(self._started)
        left = self._blocks - sum(map(self._to_completion, chosen))
        for sequence in self._active:
            if not sequence.computed:
                needed = self._to_completion(sequence)
                if len(chosen) >= self._set.max_batch_size or needed > left:
                    break
                left -= needed
                chosen.append(sequence)
        return chosen, []

    def _choose_overcommitting(self) -> tuple[list[Sequence], list[Sequence]]:
        """MAX_UTILIZATION: walk from the oldest; for who does not fit, pause the last one started.

        Nothing behind a paused request is looked at in this step. A paused request that came early may so
        push out younger ones when its turn comes again.
        """
        chosen: list[Sequence] = []
        paused: list[Sequence] = []
        left, index, end = self._free(), 0, len(self._active)
        while index < end:
            sequence = self._active[index]
            needed = -(-(sequence.known) // self._block) - self._held(sequence)
            if needed <= left and len(chosen) < self._set.max_batch_size:
                left -= needed
                chosen.append(sequence)
                index += 1
                continue
            last = next((i for i in range(end - 1, index - 1, -1) if self._active[i].computed), None)
            if last is None:
                break
            left += self._held(self._active[last])
            paused.append(self._active[last])
            end = last
        return chosen, paused

    def _compute(self, chosen: list[Sequence], paused: list[Sequence]) -> Step:
        """Fill the step with whole prompts and single tokens, in order, until the token limit is hit."""
        budget, places = self._set.max_num_tokens, self._set.max_batch_size
        prefill: list[PrefillChunk] = []
        decode: list[int] = []
        emitted: list[int] = []
        ended: list[Ended] = []
        admitted: list[int] = []
        context = 0
        for sequence in chosen[:places]:
            tokens = sequence.known - sequence.computed
            # A paused request may have outgrown the limit; alone it is computed all the same, or it never
            # would be.
            if tokens > budget and emitted:
                break
            budget -= tokens
            if sequence.computed:
                sequence.computed += 1
                context += sequence.computed
                decode.append(sequence.id)
            else:
                prefill.append(sequence.compute(tokens))
                admitted.append(sequence.id)
            emitted.append(sequence.id)
            if sequence.emit():
                ended.append(sequence.ended())
                del self._here[sequence.id]
                self._active.remove(sequence)
        running = len(emitted)
        if prefill or ended:
            self._started = self._running_now()
        self._quiet = not (ended or prefill or paused) and running == len(chosen)
        return Step(
            prefill=tuple(prefill),
            decode=tuple(decode),
            decode_context=context,
            emitted=tuple(emitted),
            ended=tuple(ended),
            admitted=tuple(admitted),
            preempted=tuple(sequence.id for sequence in paused),
        )
