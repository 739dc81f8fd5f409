"""What engines say of themselves on their own `/metrics`: the few series that explain a freeze."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine's names. Read in its sources, see the field's comment for the version."""

    key: str
    title: str
    evictions: str
    """Requests thrown out of memory: what freezes their streams."""
    kind: Literal["counter", "late counter", "gauge"]
    """late counter: absent until the first event. gauge: how many are out now, there is no total."""
    usage: str
    """Share of the KV cache in use, 0 to 1."""
    waiting: str
    running: str
    cap: str
    """The flag that caps admission."""
    preempts: str
    preempted: str
    preemptions: str
    """What the engine calls a preemption: verb, past tense, noun."""


VLLM = Engine(
    # vLLM 0.12 and later; its 0.11 called the usage gpu_cache_usage_perc.
    key="vllm",
    title="vLLM",
    evictions="vllm:num_preemptions_total",
    kind="counter",
    usage="vllm:kv_cache_usage_perc",
    waiting="vllm:num_requests_waiting",
    running="vllm:num_requests_running",
    cap="--max-num-active-seqs (--max-num-seqs before 0.31)",
    preempts="preempts",
    preempted="preempted",
    preemptions="preemptions",
)
SGLANG = Engine(
    # SGLang 0.5.9 and later, with --enable-metrics.
    key="sglang",
    title="SGLang",
    evictions="sglang:num_retracted_requests_total",
    kind="late counter",
    usage="sglang:token_usage",
    waiting="sglang:num_queue_reqs",
    running="sglang:num_running_reqs",
    cap="--max-running-requests, or --schedule-conservativeness",
    preempts="retracts",
    preempted="retracted",
    preemptions="retractions",
)
TRTLLM = Engine(
    # TensorRT-LLM, /prometheus/metrics with return_perf_metrics; renewed only when a request completes.
    key="trtllm",
    title="TensorRT-LLM",
    evictions="trtllm_num_paused_requests",
    kind="gauge",
    usage="trtllm_kv_cache_utilization",
    waiting="trtllm_num_requests_waiting",
    running="trtllm_num_requests_running",
    cap="max_batch_size",
    preempts="pauses",
    preempted="paused",
    preemptions="pauses",
)

ENGINES = (VLLM, SGLANG, TRTLLM)
