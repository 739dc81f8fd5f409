"""The flags of each engine that bear on admission, by its own names and with its own defaults.

The pools default to what the engines report for Qwen3-8B in BF16 on one NVIDIA L4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def flag(default: Any, help: str) -> Any:  # noqa: A002 - it is what command lines call it
    """Declare a setting that goes by its name as a flag of the engine, with its explanation."""
    return field(default=default, metadata={"help": help})


def at_least(minimum: float, **settings: float | None) -> None:
    """Raise ValueError for the first setting below `minimum`; those left out pass."""
    for name, value in settings.items():
        if value is not None and value < minimum:
            raise ValueError(f"{name.replace('_', '-')} must be at least {minimum:g}, got {value:g}")


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """The flags of `vllm serve` that bear on admission, by their names there."""

    num_gpu_blocks: int = flag(1890, "KV blocks, one of which vLLM keeps for itself")
    block_size: int = flag(16, "tokens in a block")
    max_num_seqs: int = flag(256, "requests that run at once")
    max_num_active_seqs: int | None = flag(None, "a lower cap on the same, vLLM 0.31 and later")
    max_num_batched_tokens: int = flag(2048, "tokens that one step computes")
    watermark: float = flag(0.0, "share of the blocks kept free when admitting, vLLM 0.24 and later")
    scheduler_reserve_full_isl: bool = flag(True, "admit only if the whole prompt fits")
    enable_chunked_prefill: bool = flag(True, "spread a long prompt over several steps")
    long_prefill_token_threshold: int = flag(0, "tokens of one prompt in a step; 0 is no limit")
    enable_prefix_caching: bool = flag(True, "find again what a preempted request left in memory")
    max_model_len: int | None = flag(None, "prompt and answer together; left out: what fits in the pool")
    async_scheduling: bool = flag(False, "plan one step ahead, as vLLM does on GPUs")
    max_num_queued_reqs: int | None = flag(None, "waiting requests before new ones get a 503")

    def __post_init__(self) -> None:
        """Refuse what vLLM refuses."""
        at_least(2, num_gpu_blocks=self.num_gpu_blocks)
        at_least(
            1,
            block_size=self.block_size,
            max_num_seqs=self.max_num_seqs,
            max_num_active_seqs=self.max_num_active_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=self.max_model_len,
        )
        at_least(0, long_prefill_token_threshold=self.long_prefill_token_threshold)
        at_least(0, max_num_queued_reqs=self.max_num_queued_reqs)
        if not 0 <= self.watermark < 1:
            raise ValueError(f"watermark must be from 0 up to, not including, 1; got {self.watermark:g}")
        if self.max_num_active_seqs is not None and self.max_num_active_seqs > self.max_num_seqs:
            raise ValueError(
                f"max-num-active-seqs must not exceed max-num-seqs ({self.max_num_seqs}), "
                f"got {self.max_num_active_seqs}"
            )
        room = (self.num_gpu_blocks - 1) * self.block_size
        if self.max_model_len is not None and self.max_model_len > room:
            raise ValueError(
                f"max-model-len must fit in the pool of {room} tokens, got {self.max_model_len}; "
                "vLLM could never finish a request of that length"
            )


@dataclass(frozen=True, slots=True)
class SglangSettings:
    """The flags of `sglang.launch_server` that bear on admission, by their names there."""

    max_total_tokens: int = flag(25224, "tokens of KV cache")
    max_running_requests: int = flag(2048, "requests that run at once")
    schedule_conservativeness: float = flag(1.0, "scales the share of each answer that is reserved")
    chunked_prefill_size: int = flag(2048, "tokens of prompts that one prefill step computes")
    max_prefill_tokens: int = flag(16384, "tokens of prompts that one prefill step starts")
    page_size: int = flag(1, "tokens in a page")
    context_length: int | None = flag(None, "prompt and answer together; left out: what fits in the pool")
    max_queued_requests: int | None = flag(None, "waiting requests before new and retracted ones get a 503")

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(
            1,
            max_total_tokens=self.max_total_tokens,
            max_running_requests=self.max_running_requests,
            chunked_prefill_size=self.chunked_prefill_size,
            max_prefill_tokens=self.max_prefill_tokens,
            page_size=self.page_size,
            context_length=self.context_length,
        )
        at_least(0, max_queued_requests=self.max_queued_requests)
        if not self.schedule_conservativeness > 0:
            raise ValueError(
                f"schedule-conservativeness must be above 0, got {self.schedule_conservativeness:g}"
            )
        if self.chunked_prefill_size < self.page_size:
            raise ValueError(
                f"chunked-prefill-size must be at least a page ({self.page_size}), "
                f"got {self.chunked_prefill_size}"
            )


@dataclass(frozen=True, slots=True)
class TgiSettings:
    """The flags of `text-generation-launcher` that bear on admission, by their names there."""

    max_batch_total_tokens: int = flag(30240, "tokens of KV cache")
    max_total_tokens: int | None = flag(None, "prompt and answer together; left out: what fits in the pool")
    max_input_tokens: int | None = flag(None, "prompt; left out: one less than max-total-tokens")
    max_batch_prefill_tokens: int = flag(4096, "tokens of prompts that one pass computes")
    max_batch_size: int | None = flag(None, "requests that run at once; only without chunking")
    max_concurrent_requests: int = flag(128, "requests inside, waiting ones included, before a 429")
    waiting_served_ratio: float = flag(
        0.3, "waiting to running requests that justify a prefill; only without chunking"
    )
    max_waiting_tokens: int = flag(20, "decode steps after which a prefill needs no justification")
    block_size: int = flag(1, "tokens in a block: 1 with flashinfer, 256 with flashdecoding, 16 with paged")
    prefill_chunking: bool = flag(True, "prefill and decode in one pass")

    def __post_init__(self) -> None:
        """Refuse what the launcher refuses."""
        at_least(
            1,
            max_total_tokens=self.max_total_tokens,
            max_input_tokens=self.max_input_tokens,
            max_batch_prefill_tokens=self.max_batch_prefill_tokens,
            max_batch_size=self.max_batch_size,
            max_concurrent_requests=self.max_concurrent_requests,
            block_size=self.block_size,
        )
        at_least(2 * self.block_size, max_batch_total_tokens=self.max_batch_total_tokens)
        at_least(
            0, waiting_served_ratio=self.waiting_served_ratio, max_waiting_tokens=self.max_waiting_tokens
        )
        total = self.max_total_tokens
        if total is not None and total > self.max_batch_total_tokens - self.block_size:
            raise ValueError(
                f"max-total-tokens must fit in max-batch-total-tokens less one block "
                f"({self.max_batch_total_tokens - self.block_size}), got {total}"
            )
        if total is not None and self.max_input_tokens is not None and self.max_input_tokens >= total:
            raise ValueError(
                f"max-input-tokens must be below max-total-tokens ({total}), got {self.max_input_tokens}"
            )


@dataclass(frozen=True, slots=True)
class TensorRtLlmSettings:
    """The settings of `trtllm-serve` that bear on admission, by their names in its configuration."""

    max_tokens_in_kv_cache: int = flag(32800, "tokens of KV cache (kv_cache_config.max_tokens)")
    tokens_per_block: int = flag(32, "tokens in a block")
    max_batch_size: int = flag(2048, "requests that run at once")
    max_num_tokens: int = flag(8192, "tokens that one step computes")
    max_seq_len: int | None = flag(None, "prompt and answer together; left out: what fits in the pool")

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(
            1,
            tokens_per_block=self.tokens_per_block,
            max_batch_size=self.max_batch_size,
            max_num_tokens=self.max_num_tokens,
            max_seq_len=self.max_seq_len,
        )
        at_least(self.tokens_per_block, max_tokens_in_kv_cache=self.max_tokens_in_kv_cache)
        room = self.max_tokens_in_kv_cache // self.tokens_per_block * self.tokens_per_block
        if self.max_seq_len is not None and self.max_seq_len > room:
            raise ValueError(f"max-seq-len must fit in the pool of {room} tokens, got {self.max_seq_len}")


@dataclass(frozen=True, slots=True)
class LlamaCppSettings:
    """The flags of `llama-server` that bear on admission, by their names there."""

    ctx_size: int = flag(8192, "tokens of KV cache, shared by all slots")
    parallel: int = flag(4, "slots: requests that run at once")
    batch_size: int = flag(2048, "tokens that one step computes")
    kv_unified: bool = flag(True, "one cache for all slots; without, each slot has its equal part")

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(1, parallel=self.parallel, batch_size=self.batch_size)
        at_least(2 * self.parallel, ctx_size=self.ctx_size)
