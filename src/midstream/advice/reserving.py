"""What each engine sets aside for the limit that a request asks for, and so what a lower limit gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

SGLANG_CLIP = 4096
"""SGLang counts no more of a limit than this when it admits (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""

TGI_PASS = 1024
"""TGI from 3.1.1 on sets aside no more than this for one pass; a longer answer then queues again."""

Held: TypeAlias = Callable[[int | None], int | None]
"""From the limit asked for, None for none, to the tokens that are set aside; None if it is all that is left."""


@dataclass(frozen=True, slots=True)
class Reserving:
    """One engine's way: its title, what it holds when it admits a request, and what that means in a sentence."""

    title: str
    held: Held
    meaning: str

    def gain(self, today: int | None, limit: int) -> int | None:
        """Return how many tokens fewer are set aside for each request; None if that cannot be told."""
        before, after = self.held(today), self.held(limit)
        return None if before is None or after is None else before - after


def _nothing(_limit: int | None) -> int:
    return 0


def _clipped(most: int) -> Held:
    return lambda limit: most if limit is None else min(limit, most)


RESERVING: Mapping[str, Reserving] = MappingProxyType(
    {
        "vllm": Reserving(
            "vLLM",
            _nothing,
            "nothing is set aside for a limit: it only cuts answers off, and ends those that would never end",
        ),
        "sglang": Reserving(
            "SGLang",
            _clipped(SGLANG_CLIP),
            "counts up to 4,096 of it when it admits a request: below that, a lower limit lets more run at once",
        ),
        "tgi": Reserving(
            "TGI 3.1.1 and later",
            _clipped(TGI_PASS),
            "sets aside up to 1,024 of it, and sends longer answers through the queue again after each 1,024 tokens, "
            "which freezes them: at 1,024 or less nothing is sent back",
        ),
        "tgi-2.4": Reserving(
            "TGI up to 2.4",
            lambda limit: limit,
            "sets all of it aside: half the limit, nearly twice as many answers at once",
        ),
        "trtllm": Reserving(
            "TensorRT-LLM, GUARANTEED_NO_EVICT",
            lambda limit: limit,
            "sets all of it aside: half the limit, nearly twice as many answers at once; "
            "without one, all that is left of max_seq_len",
        ),
        "trtllm-max-utilization": Reserving(
            "TensorRT-LLM, MAX_UTILIZATION",
            _nothing,
            "nothing is set aside for a limit: it only cuts answers off",
        ),
        "llamacpp": Reserving(
            "llama.cpp",
            _nothing,
            "nothing is set aside for a limit, but without one an answer goes on until the context is full",
        ),
        "hosted": Reserving(
            "a hosted API",
            lambda _limit: None,
            "what it sets aside is not known; some count the limit, and not the answer, against a quota of tokens",
        ),
    }
)
"""By the names of the lab's engines, and `hosted`."""
