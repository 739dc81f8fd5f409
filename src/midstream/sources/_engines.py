"""What each engine calls its numbers on its own `/metrics`, in which version, and what it means if one is absent.

Read in the engines' sources: vLLM 0.11 to 0.33, SGLang 0.4.6 to 0.5.23, TGI 2.4 to 3.3.7, TensorRT-LLM's Python
server, llama.cpp's server. Names are given newest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from midstream._support.foreign import count
from midstream.sources.page import Page, Read, Reading, Sample, none, total, unknown, worst


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine: how to find each number on its page."""

    key: str
    title: str
    prefixes: tuple[str, ...]
    """What the names of its metrics begin with."""
    eviction: str
    """What it calls an eviction."""
    eviction_plural: str
    running: Read
    waiting: Read
    kv_usage: Read
    evictions: Read
    """Since the server started: a counter."""
    evicted_now: Read
    """How many are out at this moment: a gauge."""
    generated: Read
    """Output tokens since the server started."""
    pool: Read
    """How many tokens its KV cache holds."""
    notes: tuple[str, ...] = ()
    """What must be known to read any of its numbers."""


_VLLM_OFF = "this vLLM does not say it: was it started with --disable-log-stats?"
_SGLANG_LATE = "SGLang makes this series with its first report: it has served nothing yet"
_TGI_LATE = "TGI makes this series when it first has a value: it has served nothing yet"
_TRTLLM_LATE = "TensorRT-LLM makes this series when the first request completes"
_LLAMACPP_OLD = "this llama.cpp does not say it"


def _vllm_pool(page: Page) -> Reading:
    configs = page.named("vllm:cache_config_info")
    if not configs:
        return Reading(
            None, "this vLLM does not show vllm:cache_config_info; see its log for `GPU KV cache size`"
        )
    tokens = 0
    for config in configs:
        blocks, size = (_whole(config.labels.get(name, "")) for name in ("num_gpu_blocks", "block_size"))
        if blocks is None or size is None:
            return Reading(
                None, "vllm:cache_config_info says no number of blocks yet; ask again once it is ready"
            )
        tokens += blocks * size
    return Reading(tokens, f"in {len(configs)} separate pools together" if len(configs) > 1 else "")


def _whole(text: str) -> int | None:
    found = count(text)
    return found if found and text.isascii() and text.isdigit() else None


VLLM = Engine(
    key="vllm",
    title="vLLM",
    # On a TPU it says the same under the same names.
    prefixes=("vllm:",),
    eviction="preemption",
    eviction_plural="preemptions",
    running=total("vllm:num_requests_running", absent=_VLLM_OFF),
    waiting=total("vllm:num_requests_waiting", absent=_VLLM_OFF),
    # 0.11 had the old name only with --show-hidden-metrics-for-version=0.10, 0.12 has it no more.
    kv_usage=worst("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", absent=_VLLM_OFF),
    # Born with the server: where it is absent, nothing is known.
    evictions=total("vllm:num_preemptions_total", "vllm:num_preemptions", absent=_VLLM_OFF),
    evicted_now=none("vLLM counts preemptions and not who is out"),
    generated=total("vllm:generation_tokens_total", "vllm:generation_tokens", absent=_VLLM_OFF),
    pool=_vllm_pool,
)


def first_ranks(samples: Iterable[Sample]) -> list[Sample]:
    """Keep one sample of each data-parallel rank: the other ranks of SGLang repeat what the first one says."""
    kept: dict[tuple[str, ...], tuple[tuple[int, ...], Sample]] = {}
    for sample in samples:
        replica = tuple(sample.labels.get(name, "") for name in ("model_name", "engine_type", "dp_rank"))
        rank = tuple(_rank(sample.labels.get(name, "")) for name in ("tp_rank", "pp_rank", "moe_ep_rank"))
        if replica not in kept or rank < kept[replica][0]:
            kept[replica] = (rank, sample)
    return [sample for _, sample in kept.values()]


def _rank(text: str) -> int:
    return count(text) or 0


def _sglang_retractions(page: Page) -> Reading:
    name = "sglang:num_retracted_requests_total"
    found = total(name, absent="", among=first_ranks)(page)
    if found.value is not None or found.why:
        return found
    # The series is born with the first retraction. That this version would have it, another one of 0.5.9 tells.
    if name in page.declared or page.named("sglang:new_token_ratio"):
        return Reading(0.0, "none yet: SGLang makes this series with the first one")
    if page.named("sglang:num_running_reqs", "sglang:token_usage"):
        return Reading(None, "SGLang counts retractions from 0.5.9 on; its log says `KV cache pool is full`")
    return Reading(None, _SGLANG_LATE)


SGLANG = Engine(
    key="sglang",
    title="SGLang",
    prefixes=("sglang:",),
    eviction="retraction",
    eviction_plural="retractions",
    running=total("sglang:num_running_reqs", absent=_SGLANG_LATE, among=first_ranks),
    waiting=total("sglang:num_queue_reqs", absent=_SGLANG_LATE, among=first_ranks),
    kv_usage=worst("sglang:token_usage", absent=_SGLANG_LATE, among=first_ranks),
    evictions=_sglang_retractions,
    evicted_now=none("its gauge of retractions shows the last batch of them only, and often not even that"),
    generated=total("sglang:generation_tokens_total", absent=_SGLANG_LATE),
    pool=total(
        "sglang:max_total_num_tokens",
        absent="this SGLang does not say it; see its log for `max_total_num_tokens`",
        among=first_ranks,
    ),
    notes=("SGLang renews running, waiting and KV use with each of its reports: up to 40 steps late",),
)


def _tgi_requeues(page: Page) -> Reading:
    """Passes less requests: every pass after an answer's first one went through the queue again."""
    passes = total("tgi_request_input_length_count", absent=_TGI_LATE)(page)
    requests = total("tgi_request_count", "tgi_request_count_total", absent=_TGI_LATE)(page)
    if passes.value is None or requests.value is None:
        return passes if passes.value is None else requests
    early = ("validation", "overloaded", "template")
    refused = sum(
        sample.value
        for sample in page.named("tgi_request_failure", "tgi_request_failure_total")
        if sample.labels.get("err") in early
    )
    return Reading(
        max(0.0, passes.value - requests.value + refused),
        "an estimate: passes less requests, TGI counts none",
    )


TGI = Engine(
    key="tgi",
    title="TGI",
    prefixes=("tgi_",),
    eviction="re-queue",
    eviction_plural="re-queues",
    running=total("tgi_batch_current_size", absent=_TGI_LATE),
    waiting=total("tgi_queue_size", absent=_TGI_LATE),
    kv_usage=unknown(
        "TGI says how much is reserved (tgi_batch_current_max_tokens), not of how much: --max-batch-total-tokens"
    ),
    evictions=_tgi_requeues,
    evicted_now=none(
        "TGI never evicts; from 3.1.1 on it sends an answer to the end of the queue every 1,024 tokens"
    ),
    generated=total("tgi_request_generated_tokens_sum", absent=_TGI_LATE),
    # tgi_batch_total_tokens is described, and in v3 never set.
    pool=total(
        "tgi_batch_total_tokens", absent="TGI does not say it in its metrics; it is --max-batch-total-tokens"
    ),
    notes=("TGI adds an answer's tokens when it is over",),
)


def _trtllm_pool(page: Page) -> Reading:
    blocks = total("trtllm_kv_cache_max_blocks", absent=_TRTLLM_LATE)(page)
    size = worst("trtllm_kv_cache_tokens_per_block", absent="")(page)
    if blocks.value is None:
        return blocks
    if size.value is None:
        return Reading(None, f"{blocks.value:.0f} blocks, but not of how many tokens; see tokens_per_block")
    return Reading(blocks.value * size.value)


def _trtllm_paused(page: Page) -> Reading:
    found = total("trtllm_num_paused_requests", absent=_TRTLLM_LATE)(page)
    return found if found.value is None else Reading(found.value, "as of the last request that completed")


TRTLLM = Engine(
    key="trtllm",
    title="TensorRT-LLM",
    prefixes=("trtllm_",),
    eviction="pause",
    eviction_plural="pauses",
    running=total("trtllm_num_requests_running", absent=_TRTLLM_LATE),
    waiting=total("trtllm_num_requests_waiting", absent=_TRTLLM_LATE),
    kv_usage=worst("trtllm_kv_cache_utilization", absent=_TRTLLM_LATE),
    evictions=unknown("TensorRT-LLM does not count pauses; only who is paused now is known"),
    evicted_now=_trtllm_paused,
    generated=unknown("TensorRT-LLM does not say it here"),
    pool=_trtllm_pool,
    notes=(
        "TensorRT-LLM renews these numbers only when a request completes, so that short pauses are missed",
    ),
)

LLAMACPP = Engine(
    key="llamacpp",
    title="llama.cpp",
    prefixes=("llamacpp:",),
    eviction="eviction",
    eviction_plural="evictions",
    running=total("llamacpp:requests_processing", absent=_LLAMACPP_OLD),
    waiting=total("llamacpp:requests_deferred", absent=_LLAMACPP_OLD),
    kv_usage=worst(
        "llamacpp:kv_cache_usage_ratio", absent="llama.cpp's newer versions do not say it any more"
    ),
    evictions=none("llama.cpp never evicts: when its memory is full, the answers fail with an error"),
    evicted_now=none("llama.cpp never evicts"),
    generated=total("llamacpp:tokens_predicted_total", absent=_LLAMACPP_OLD),
    pool=unknown("llama.cpp does not say it in its metrics; it is -c, the context size"),
)

ENGINES: Mapping[str, Engine] = {engine.key: engine for engine in (VLLM, SGLANG, TGI, TRTLLM, LLAMACPP)}
"""Every engine whose page can be read, by its key: the one of `midstream.lab.admission` as well."""
