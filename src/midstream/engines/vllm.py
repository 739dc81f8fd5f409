"""vLLM: metric names, flags by version, reservation rule, log lines and dialect.

Read in its sources: 0.11 to 0.33.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from midstream._support.foreign import count
from midstream.engines.dialect import UVICORN_HEADERS, Dialect
from midstream.engines.facts import (
    EngineFacts,
    EngineKnob,
    EngineSeries,
    EngineVariant,
    PageReaders,
    PoolLogLine,
    PreemptionCounting,
    PreemptionWords,
    ReservationRule,
    reserves_nothing,
    whole_number,
)
from midstream.engines.faults import Faults, openai_body
from midstream.engines.flags import Advice, Flag, Situation, Version
from midstream.engines.page import MetricReading, MetricsPage, highest, not_in_this_engine, total
from midstream.engines.settings import at_least, flag

BLOCK_TOKENS = 16
"""The usual size of a KV block."""


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


_OFF = "this vLLM does not expose it: was it started with --disable-log-stats?"


def _pool(page: MetricsPage) -> MetricReading:
    configs = page.named("vllm:cache_config_info")
    if not configs:
        return MetricReading(
            None, "this vLLM does not show vllm:cache_config_info; see its log for `GPU KV cache size`"
        )
    tokens = 0
    for config in configs:
        blocks, size = (_whole(config.labels.get(name, "")) for name in ("num_gpu_blocks", "block_size"))
        if blocks is None or size is None:
            return MetricReading(
                None, "vllm:cache_config_info has no number of blocks yet; ask again once it is ready"
            )
        tokens += blocks * size
    return MetricReading(tokens, f"in {len(configs)} separate pools together" if len(configs) > 1 else "")


def _settings(page: MetricsPage) -> dict[str, int | bool]:
    """Read the block size and whether prefixes are cached, where all replicas agree."""
    found: dict[str, int | bool] = {}
    configs = page.named("vllm:cache_config_info")
    sizes = {_whole(config.labels.get("block_size", "")) for config in configs}
    caching = {config.labels.get("enable_prefix_caching") for config in configs}
    if len(sizes) == 1 and (size := sizes.pop()) is not None:
        found["block_size"] = size
    if len(caching) == 1 and (cached := caching.pop()) in ("True", "False"):
        found["enable_prefix_caching"] = cached == "True"
    return found


def _whole(text: str) -> int | None:
    found = count(text)
    return found if found and text.isascii() and text.isdigit() else None


PAGE = PageReaders(
    running=total("vllm:num_requests_running", absent=_OFF),
    waiting=total("vllm:num_requests_waiting", absent=_OFF),
    # 0.11 had the old name only with --show-hidden-metrics-for-version=0.10, 0.12 has it no more.
    kv_usage=highest("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", absent=_OFF),
    # Born with the server: where it is absent, nothing is known.
    preemptions=total("vllm:num_preemptions_total", "vllm:num_preemptions", absent=_OFF),
    preempted_now=not_in_this_engine("vLLM counts preemptions and not who is out"),
    generated=total("vllm:generation_tokens_total", "vllm:generation_tokens", absent=_OFF),
    pool=_pool,
    settings=_settings,
)


def _advise(now: Situation, version: Version | None) -> Advice:
    flags = []
    if now.cap is not None:
        if version is None or version >= (0, 31):
            flags.append(
                Flag(
                    "server",
                    f"--max-num-active-seqs {now.cap}",
                    "vLLM 0.31 and later: caps what runs, and nothing else",
                )
            )
        if version is None or version < (0, 31):
            flags.append(
                Flag(
                    "server",
                    f"--max-num-seqs {now.cap}",
                    "before 0.31: also sizes its buffers and CUDA graphs",
                )
            )
    traps = []
    if version is None or version >= (0, 31):
        traps.append(
            "--max-num-active-seqs must not exceed --max-num-seqs, and does not preempt what runs already"
        )
    if version is None or version >= (0, 24):
        traps.append(
            "do not use --watermark for this (0.24 and later): what was preempted must clear it, too, to come back; "
            "in a published simulation 0.2 took the median freeze from 58 s to 247 s"
        )
    if version is not None and version < (0, 23):
        traps.append(
            "before 0.23 only the first chunk of a prompt must fit to be admitted, so that long prompts come and go"
        )
    traps.append("a lower max_tokens changes nothing here but where answers are cut")
    return flags, traps


FAULTS = Faults(
    body=openai_body,
    event=openai_body,
    prompt_too_long="This model's maximum context length is {context} tokens. However, your prompt contains at "
    "least {prompt} input tokens, which exceeds this limit even without any output tokens. Please reduce the "
    "length of the input prompt. (parameter=input_tokens, value={prompt})",
    request_too_long="This model's maximum context length is {context} tokens. However, you requested {limit} "
    "output tokens and your prompt contains at least {prompt} input tokens, for a total of at least {total} "
    "tokens. Please reduce the length of the input prompt or the number of requested output tokens. "
    "(parameter=input_tokens, value={prompt})",
    busy="The server is overloaded: too many requests are waiting.",
)

DIALECT = Dialect(
    version="0.33.0",
    owner="vllm",
    faults=FAULTS,
    context=lambda settings: settings.max_model_len,
    headers=UVICORN_HEADERS,
    model_card=lambda model, context: {"root": model, "parent": None, "max_model_len": context},
    model="checked",
    continuous="with include_usage",
    choice={"logprobs": None, "token_ids": None},
    text_choice={"logprobs": None, "stop_reason": None, "prompt_token_ids": None, "token_ids": None},
    last_choice={"stop_reason": None},
    merges=True,
    continues=True,
    text_limit=16,
    keep_alive=b": keep-alive\n\n",
)

FACTS = EngineFacts(
    key="vllm",
    title="vLLM",
    prefixes=("vllm:",),  # on a TPU it has the same names
    # Ray Serve exports them through Ray's own metrics, older versions with the colon.
    renamed={"ray_vllm_": "vllm:", "ray_vllm:": "vllm:"},
    words=PreemptionWords("preemption", "preemptions", "preempts", "preempted"),
    page=PAGE,
    dialect=DIALECT,
    advise_flags=_advise,
    series=EngineSeries(
        # 0.12 and later; 0.11 called the usage gpu_cache_usage_perc.
        preemptions="vllm:num_preemptions_total",
        kind="counter",
        usage="vllm:kv_cache_usage_perc",
        waiting="vllm:num_requests_waiting",
        running="vllm:num_requests_running",
        alert="VllmPreemptions",
        found="[value] preemptions in [window].",
        remedy="Each one freezes an answer while it is computed again. "
        "Lower --max-num-active-seqs (--max-num-seqs before 0.31) until they are near zero.",
        panel="vLLM preemptions",
        cap="--max-num-active-seqs (--max-num-seqs before 0.31)",
    ),
    counting=PreemptionCounting(
        at_end="which vLLM counts then if its scheduling is not asynchronous",
        during=True,
        lost="vLLM does not count a preemption of a request that is given up in it",
    ),
    log_lines=(
        PoolLogLine(
            re.compile(r"\b[A-Z]{1,20} KV cache size: ([\d,]{1,100}) tokens"),
            lambda matched: whole_number(matched[1]),
        ),
        # V0 counted blocks, of 16 tokens by default.
        PoolLogLine(
            re.compile(r"# (?:GPU|TPU) blocks: (\d{1,100})"),
            lambda matched: BLOCK_TOKENS * whole_number(matched[1]),
        ),
    ),
    variants=(
        EngineVariant(
            "vllm",
            VllmSettings,
            "reserves nothing; preempts the last one admitted, to the front",
            ReservationRule(
                "vLLM",
                reserves_nothing,
                "nothing is set aside for a limit: it only cuts answers off, and ends those that would never end",
            ),
            EngineKnob(
                "num_gpu_blocks",
                "max_num_active_seqs",
                preempts=True,
                block="block_size",
                at_least={"max_num_seqs": 256},
            ),
        ),
    ),
)
