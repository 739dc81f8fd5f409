"""One request inside an engine: what was computed, what was emitted, and when it ends."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Many

from midstream.lab.admission._types import Ended, EngineLoad, PrefillChunk, Reason, Request


class Sequence:
    """The mutable state of a request. `cap` is the engine's limit on output tokens for it."""

    __slots__ = (
        "blocks",
        "cap",
        "computed",
        "done",
        "id",
        "limit",
        "output",
        "pending",
        "preemptions",
        "prompt",
        "reached",
        "reason",
        "request",
    )

    def __init__(self, request: Request, cap: int) -> None:
        self.request = request
        self.id = request.id
        self.prompt = request.prompt_tokens
        self.cap = cap
        answer = request.answer_tokens
        self.reason: Reason = "length" if answer is None or answer > cap else "stop"
        self.limit = cap if answer is None else min(answer, cap)
        """Output tokens with which the answer ends. A rule may plan ahead with `cap`, never with this."""
        self.output = 0
        self.pending = 0
        """Tokens that a step in flight will add to the output."""
        self.computed = 0
        """Tokens whose keys and values are in the cache."""
        self.reached = 0
        """What `computed` was when memory was last lost."""
        self.blocks: list[int] = []
        self.preemptions = 0
        self.done = False

    @property
    def known(self) -> int:
        """Tokens that exist: prompt, output, and those that a step in flight will add."""
        return self.prompt + self.output + self.pending

    def compute(self, tokens: int) -> PrefillChunk:
        """Compute that many more tokens, and return which."""
        start = self.computed
        self.computed = start + tokens
        return PrefillChunk(self.id, start, tokens, max(0, min(self.computed, self.reached) - start))

    def emit(self, tokens: int = 1) -> bool:
        """Emit tokens; True if the answer ends with them."""
        self.output += tokens
        self.done = self.output >= self.limit
        return self.done

    def preempt(self) -> None:
        """Forget everything computed; prompt and output stay."""
        self.reached = self.computed
        self.computed = 0
        self.blocks = []
        self.preemptions += 1

    def ended(self) -> Ended:
        """Return how the answer ended."""
        return Ended(self.id, self.reason)


def cap_of(request: Request, room: int) -> int:
    """Return the output limit: what the client asked for, within the room that the engine has."""
    return room if request.max_tokens is None else min(request.max_tokens, room)


def until_an_end(sequences: Iterable[Sequence]) -> int:
    """Return how many tokens each of them can get before the first one ends."""
    return min(sequence.limit - sequence.output for sequence in sequences) - 1


def until_full(computed: Many[int], block: int, free: int) -> int:
    """Return how many tokens each of some requests can get from `free` blocks before one is refused.

    `computed` says how many tokens each has, all held in whole blocks of `block` tokens. A request needs its
    next block when its last is full, and another every `block` tokens; so the n-th block handed out is known
    in advance.
    """
    first_needs = sorted(-tokens % block + 1 for tokens in computed)
    rounds, rest = divmod(free, len(first_needs))
    return rounds * block + first_needs[rest] - 1


def load_of(running: Iterable[Sequence], waiting: int, *, reserved_tokens: int, capacity: int) -> EngineLoad:
    """Count what the running requests hold."""
    used_tokens = [sequence.computed for sequence in running]
    return EngineLoad(len(used_tokens), waiting, sum(used_tokens), reserved_tokens, capacity)
