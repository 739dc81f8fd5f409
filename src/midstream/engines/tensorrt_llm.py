"""TensorRT-LLM: metric names, settings, reservation rule, log lines and dialect.

Read in its Python server, 1.x. Its `/metrics` is a JSON list of iterations, and reading takes them away from every
other reader; `/prometheus/metrics` is a page of metrics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from midstream._support.foreign import ForeignError, json_of, number
from midstream.engines.dialect import UVICORN_HEADERS, Dialect
from midstream.engines.facts import (
    EngineFacts,
    EngineKnob,
    EngineReadings,
    EngineSeries,
    EngineVariant,
    PageReaders,
    PoolLogLine,
    PreemptionCounting,
    PreemptionWords,
    ReservationRule,
    reserves_all,
    reserves_nothing,
    whole_number,
)
from midstream.engines.faults import Faults, flat_body
from midstream.engines.flags import Advice, Flag, Situation, Version
from midstream.engines.page import MetricReading, MetricsPage, highest, not_exposed, total
from midstream.engines.settings import at_least, flag


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


_LATE = "TensorRT-LLM makes this series when the first request completes"


def _pool(page: MetricsPage) -> MetricReading:
    blocks = total("trtllm_kv_cache_max_blocks", absent=_LATE)(page)
    size = highest("trtllm_kv_cache_tokens_per_block", absent="")(page)
    if blocks.value is None:
        return blocks
    if size.value is None:
        return MetricReading(
            None, f"{blocks.value:.0f} blocks, but not of how many tokens; see tokens_per_block"
        )
    return MetricReading(blocks.value * size.value)


def _paused(page: MetricsPage) -> MetricReading:
    found = total("trtllm_num_paused_requests", absent=_LATE)(page)
    return (
        found if found.value is None else MetricReading(found.value, "as of the last request that completed")
    )


PAGE = PageReaders(
    running=total("trtllm_num_requests_running", absent=_LATE),
    waiting=total("trtllm_num_requests_waiting", absent=_LATE),
    kv_usage=highest("trtllm_kv_cache_utilization", absent=_LATE),
    preemptions=not_exposed("TensorRT-LLM does not count pauses; only who is paused now is known"),
    preempted_now=_paused,
    generated=not_exposed("TensorRT-LLM does not expose it here"),
    pool=_pool,
    notes=(
        "TensorRT-LLM renews these numbers only when a request completes, so that short pauses are missed",
    ),
)

Iteration: TypeAlias = Mapping[str, Any]

CONSUMED = (
    "reading TensorRT-LLM's /metrics takes what was read away from every other reader; "
    "its /prometheus/metrics does not, if return_perf_metrics is set"
)
IDLE = "no iteration since the last reading: the server is idle, or another reader took them"


def iterations_of(text: str) -> Sequence[Iteration] | None:
    """Return the iterations, oldest first; None if this is something else."""
    try:
        found = json_of(text)
    except ForeignError:
        return None
    if not isinstance(found, list) or not all(isinstance(each, dict) and "iter" in each for each in found):
        return None
    return found


def read_iterations(text: str) -> EngineReadings | None:
    """Return the numbers of the newest iteration, and the most requests that were paused in any of them.

    None if this is not a list of iterations.
    """
    iterations = iterations_of(text)
    if iterations is None:
        return None
    last = iterations[-1] if iterations else None
    paused = [_read(each, "inflightBatchingStats", "numPausedRequests") for each in iterations]
    blocks = _read(last, "kvCacheStats", "maxNumBlocks")
    return EngineReadings(
        running=_read(last, "numActiveRequests"),
        waiting=_read(last, "numQueuedRequests"),
        kv_usage=_ratio(_read(last, "kvCacheStats", "usedNumBlocks"), blocks),
        preemptions=PAGE.preemptions(MetricsPage()),
        preempted_now=max(paused, key=lambda reading: -1 if reading.value is None else reading.value)
        if paused
        else MetricReading(None, IDLE),
        generated=PAGE.generated(MetricsPage()),
        pool=_product(blocks, _read(last, "kvCacheStats", "tokensPerBlock")),
        notes=(CONSUMED,),
    )


def _read(iteration: Iteration | None, *path: str) -> MetricReading:
    if iteration is None:
        return MetricReading(None, IDLE)
    found: Any = iteration
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    value = None if isinstance(found, str) else number(found, least=0.0)
    if value is None:
        return MetricReading(None, f"its iterations hold no {'.'.join(path)}")
    return MetricReading(value)


def _ratio(part: MetricReading, whole: MetricReading) -> MetricReading:
    if part.value is None or whole.value is None:
        return part if part.value is None else whole
    return (
        MetricReading(part.value / whole.value)
        if whole.value
        else MetricReading(None, "its KV cache has no blocks")
    )


def _product(one: MetricReading, other: MetricReading) -> MetricReading:
    if one.value is None or other.value is None:
        return one if one.value is None else other
    return MetricReading(one.value * other.value)


def _advise(now: Situation, _version: Version | None) -> Advice:
    flags = [
        Flag(
            "config",
            "scheduler_config.capacity_scheduler_policy: GUARANTEED_NO_EVICT",
            "nothing that runs is paused",
        ),
        Flag(
            "config",
            "kv_cache_config.use_kv_cache_manager_v2: false",
            "the V2 manager, automatic for Llama, GPT-OSS, Gemma 3 and 4 and others, makes it MAX_UTILIZATION again",
        ),
    ]
    if now.limit is not None:
        flags.append(
            Flag(
                "request",
                f"max_tokens={now.limit}",
                "all of it is set aside, and without it all of max_seq_len",
            )
        )
    if now.cap is not None:
        flags.append(
            Flag("config", f"max_batch_size: {now.cap}", "where MAX_UTILIZATION must stay: caps what runs")
        )
    return flags, [
        "the V2 manager overrides GUARANTEED_NO_EVICT with one line in the log: look for MAX_UTILIZATION there",
        "with GUARANTEED_NO_EVICT requests wait for their first token instead, and no metric counts them",
    ]


_FIELDS = frozenset(
    re.findall(
        r"\w+",
        """
        model messages prompt input stream stream_options max_tokens max_completion_tokens
        max_output_tokens n tools tool_choice parallel_tool_calls temperature top_p top_k min_p seed
        stop stop_token_ids ignore_eos min_tokens logprobs top_logprobs logit_bias frequency_penalty
        presence_penalty repetition_penalty length_penalty response_format user best_of echo suffix
        store metadata instructions reasoning reasoning_effort include text truncation background
        previous_response_id service_tier use_beam_search early_stopping skip_special_tokens
        add_generation_prompt chat_template chat_template_kwargs lora_request detokenize
        include_stop_str_in_output prompt_ignore_length media_io_kwargs documents
        """,
    )
)


FAULTS = Faults(
    body=flat_body,
    event=lambda fault: {"error": flat_body(fault)},
    prompt_too_long="The sum of prompt length ({prompt}), query length (0) should not exceed max_num_tokens "
    "({context})",
    request_too_long=None,
    busy="The server is overloaded.",
)

DIALECT = Dialect(
    version="1.2",
    owner="tensorrt_llm",
    faults=FAULTS,
    context=lambda settings: settings.max_seq_len,
    headers=UVICORN_HEADERS,
    continuous="with include_usage",
    usage_by_default=True,
    usage={"prompt_tokens_details": {"cached_tokens": 0}},
    choice={"logprobs": None},
    text_choice={"logprobs": None},
    last_choice={"stop_reason": None, "avg_decoded_tokens_per_iter": 1.0},
    delta={"reasoning_content": ""},
    tool_call="whole",
    known_fields=_FIELDS,
    on_failure="break",
)

FACTS = EngineFacts(
    key="trtllm",
    title="TensorRT-LLM",
    prefixes=("trtllm_",),
    words=PreemptionWords("pause", "pauses", "pauses", "paused"),
    page=PAGE,
    dialect=DIALECT,
    advise_flags=_advise,
    series=EngineSeries(
        # /prometheus/metrics with return_perf_metrics; renewed only when a request completes.
        preemptions="trtllm_num_paused_requests",
        kind="gauge",
        usage="trtllm_kv_cache_utilization",
        waiting="trtllm_num_requests_waiting",
        running="trtllm_num_requests_running",
        alert="TrtllmPausedRequests",
        found="Up to [value] requests were paused in [window].",
        remedy="Their answers stand still. "
        "Use capacity_scheduler_policy GUARANTEED_NO_EVICT, or lower max_batch_size.",
        panel="TensorRT-LLM requests paused now",
        cap="max_batch_size",
    ),
    counting=PreemptionCounting(at_end="which TensorRT-LLM shows while it lasts", during=True),
    log_lines=(
        PoolLogLine(
            re.compile(r"Allocated [\d.]{1,40} \w{1,20} for max tokens in paged KV cache \((\d{1,100})\)"),
            lambda matched: whole_number(matched[1]),
        ),
    ),
    read_json=read_iterations,
    variants=(
        EngineVariant(
            "trtllm",
            TensorRtLlmSettings,
            "reserves all of max_tokens (GUARANTEED_NO_EVICT)",
            ReservationRule(
                "TensorRT-LLM, GUARANTEED_NO_EVICT",
                reserves_all,
                "sets all of it aside: half the limit, nearly twice as many answers at once; "
                "without one, all that is left of max_seq_len",
            ),
            EngineKnob("max_tokens_in_kv_cache", "max_batch_size", preempts=False),
            aliases=("tensorrt-llm",),
        ),
        EngineVariant(
            "trtllm-max-utilization",
            TensorRtLlmSettings,
            "reserves nothing; pauses the last one started, which keeps its place (MAX_UTILIZATION)",
            ReservationRule(
                "TensorRT-LLM, MAX_UTILIZATION",
                reserves_nothing,
                "nothing is set aside for a limit: it only cuts answers off",
            ),
            EngineKnob("max_tokens_in_kv_cache", "max_batch_size", preempts=True),
            options={"max_utilization": True},
            aliases=("tensorrt-llm-max-utilization",),
        ),
    ),
)
