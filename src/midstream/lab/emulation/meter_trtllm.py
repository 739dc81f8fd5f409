"""TensorRT-LLM's `/metrics` and `/prometheus/metrics`, and what is odd about them.

The first is a JSON array with one object for each iteration since it was read last: reading removes it, so a
second reader steals. The gauges of the second show the latest iteration, but only as of the last request that
completed; the one of paused requests is easily missed, and there is no counter of pauses.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from midstream.lab.admission import EngineLoad, Reason, TensorRtLlmSettings
from midstream.lab.drive import Turn
from midstream.lab.emulation.meter import Meter, PageContent, RequestState

MOST_ITERATIONS = 1000
"""Iterations that wait for a reader (`iter_stats_max_iterations`); older ones are dropped."""

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
            80.0, 160.0)  # fmt: skip
_GAUGES = ("num_requests_running", "num_requests_waiting", "num_paused_requests", "kv_cache_utilization",
           "kv_cache_max_blocks", "kv_cache_free_blocks", "kv_cache_used_blocks")  # fmt: skip


class TensorRtLlmMeter(Meter):
    """Counts what TensorRT-LLM counts, with enable_iter_perf_stats and return_perf_metrics."""

    def __init__(self, model: str, flags: TensorRtLlmSettings) -> None:
        self._flags = flags
        self._iterations: deque[dict[str, Any]] = deque(maxlen=MOST_ITERATIONS)
        self._number = 0
        self._latest: dict[str, float] = {}
        self._registry = registry = CollectorRegistry()
        labels = {"model_name": model, "engine_type": "pytorch"}

        def histogram(name: str) -> Histogram:
            made = Histogram(f"trtllm_{name}", name, [*labels], buckets=_SECONDS, registry=registry)
            return made.labels(**labels)

        self._gauges = {
            name: Gauge(f"trtllm_{name}", name, [*labels], registry=registry).labels(**labels)
            for name in _GAUGES
        }
        success = Counter(
            "trtllm_request_success", "requests", [*labels, "finished_reason"], registry=registry
        )
        self._success = {
            reason: success.labels(**labels, finished_reason=reason) for reason in ("stop", "length", "error")
        }
        self._ttft = histogram("time_to_first_token_seconds")
        self._per_token = histogram("time_per_output_token_seconds")
        self._queue = histogram("request_queue_time_seconds")
        self._whole = histogram("e2e_request_latency_seconds")

    def ended(self, life: RequestState, reason: Reason) -> None:
        """Count a request that ended; with it, and only then, the gauges are renewed."""
        self._success[reason].inc()
        first = life.first_s if life.first_s is not None else life.last_s
        self._ttft.observe(first - life.asked_s)
        if life.tokens > 1:
            self._per_token.observe((life.last_s - first) / (life.tokens - 1))
        self._queue.observe((life.started_s or life.asked_s) - life.asked_s)
        self._whole.observe(life.last_s - life.asked_s)
        for name, value in self._latest.items():
            self._gauges[name].set(value)

    def began(self, turn: Turn, load: EngineLoad, speed: float) -> None:
        """Keep an iteration's figures until they are read."""
        step, block = turn.step, self._flags.tokens_per_block
        most = load.capacity // block
        used = load.reserved_tokens // block
        self._number += 1
        self._latest = {
            "num_requests_running": load.running + load.waiting,
            "num_requests_waiting": 0,
            "num_paused_requests": len(step.preempted),
            "kv_cache_utilization": used / most,
            "kv_cache_max_blocks": most,
            "kv_cache_free_blocks": most - used,
            "kv_cache_used_blocks": used,
        }
        self._iterations.append(
            {
                "iter": self._number,
                "iterLatencyMS": 1000 * (turn.done_s - turn.began_s) / speed,
                "numActiveRequests": load.running + load.waiting,
                "numQueuedRequests": 0,
                "maxNumActiveRequests": self._flags.max_batch_size,
                "kvCacheStats": {
                    "maxNumBlocks": most,
                    "freeNumBlocks": most - used,
                    "usedNumBlocks": used,
                    "tokensPerBlock": block,
                },
                "inflightBatchingStats": {
                    "numScheduledRequests": len(step.decode) + len(step.prefill),
                    "numContextRequests": len(step.prefill),
                    "numGenRequests": len(step.decode),
                    "numPausedRequests": len(step.preempted),
                    "numCtxTokens": sum(chunk.tokens for chunk in step.prefill),
                },
            }
        )

    def pages(self) -> Mapping[str, Callable[[], PageContent]]:
        """Return both pages."""
        return {
            "/metrics": self._take,
            "/prometheus/metrics": lambda: (CONTENT_TYPE_LATEST, generate_latest(self._registry)),
        }

    def _take(self) -> PageContent:
        iterations = list(self._iterations)
        self._iterations.clear()
        return "application/json", json.dumps(iterations).encode()
