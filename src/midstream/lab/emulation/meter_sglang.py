"""SGLang's `/metrics`. Names of 0.5.23, and what is odd about them.

The counter of retractions does not exist before the first one. The gauges are as old as the last report, which is
made with each prefill and every 40 decode steps; the one of retracted requests is overwritten by each retraction and
zeroed by each report. The latency between tokens is divided by the tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from midstream.lab.admission import EngineLoad, Reason, Sglang, SglangSettings
from midstream.lab.drive import Turn
from midstream.lab.emulation.meter import Meter, PageContent, RequestState

DECODE_LOG_INTERVAL = 40
"""Decode steps between two reports (`--decode-log-interval`)."""

_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
_BETWEEN = (0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060, 0.080, 0.100, 0.200,
            0.400, 0.600, 0.800, 1.000, 2.000, 4.000, 6.000, 8.000)  # fmt: skip
_WHOLE = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0,
          600.0, 1200.0, 1800.0, 2400.0)  # fmt: skip
_GAUGES = (
    "num_running_reqs",
    "num_queue_reqs",
    "num_used_tokens",
    "token_usage",
    "new_token_ratio",
    "gen_throughput",
    "cache_hit_rate",
)


class SglangMeter(Meter):
    """Counts what SGLang counts."""

    def __init__(self, model: str, flags: SglangSettings, engine: Sglang) -> None:
        self._engine = engine
        self._registry = registry = CollectorRegistry()
        self._labels = {
            "model_name": model,
            "engine_type": "unified",
            "tp_rank": "0",
            "pp_rank": "0",
            "moe_ep_rank": "0",
        }
        names = [*self._labels]

        def gauge(name: str) -> Gauge:
            return Gauge(f"sglang:{name}", name, names, registry=registry).labels(**self._labels)

        def counter(name: str) -> Counter:
            return Counter(f"sglang:{name}", name, names, registry=registry)

        def histogram(name: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"sglang:{name}", name, names, buckets=buckets, registry=registry).labels(
                **self._labels
            )

        self._gauges = {name: gauge(name) for name in _GAUGES}
        self._gauges["new_token_ratio"].set(engine.new_token_ratio)
        gauge("max_total_num_tokens").set(flags.max_total_tokens)
        gauge("page_size").set(flags.page_size)
        self._last_retracted = gauge("num_retracted_reqs")
        # Without labels they have no series: the first count makes them.
        self._retracted = counter("num_retracted_requests")
        self._retracted_input = counter("num_retracted_input_tokens")
        self._retracted_output = counter("num_retracted_output_tokens")
        self._requests = counter("num_requests").labels(**self._labels)
        self._aborted = counter("num_aborted_requests").labels(**self._labels)
        self._prompt = counter("prompt_tokens").labels(**self._labels)
        self._generated = counter("generation_tokens").labels(**self._labels)
        self._ttft = histogram("time_to_first_token_seconds", _TTFT)
        self._between = histogram("inter_token_latency_seconds", _BETWEEN)
        self._whole = histogram("e2e_request_latency_seconds", _WHOLE)
        self._queue = histogram("queue_time_seconds", _WHOLE)
        self._decodes = 0
        self._since_s = 0.0
        self._tokens = 0

    def preempted(self, life: RequestState) -> None:
        """Count a retraction when it happens."""
        super().preempted(life)
        self._retracted.labels(**self._labels).inc()
        self._retracted_input.labels(**self._labels).inc(life.request.prompt_tokens)
        self._retracted_output.labels(**self._labels).inc(life.tokens)

    def started(self, life: RequestState) -> None:
        """Note how long a request queued."""
        self._queue.observe((life.started_s or 0.0) - life.asked_s)

    def said(self, life: RequestState) -> None:
        """Count a token."""
        self._tokens += 1
        if life.gap_s is not None:
            self._between.observe(life.gap_s)
        else:
            self._ttft.observe(life.last_s - life.asked_s)

    def ended(self, life: RequestState, reason: Reason) -> None:
        """Count a request that ended."""
        if reason == "error":
            self._aborted.inc()
        self._requests.inc()
        self._prompt.inc(life.request.prompt_tokens)
        self._generated.inc(life.tokens)
        self._whole.observe(life.last_s - life.asked_s)

    def left(self, life: RequestState) -> None:
        """Count a client that left."""
        self._aborted.inc()

    def began(self, turn: Turn, load: EngineLoad, speed: float) -> None:
        """Report, if it is time to."""
        step = turn.step
        if step.preempted:
            self._last_retracted.set(len(step.preempted))
        if not step.prefill:
            self._decodes += 1
        if step.prefill or self._decodes >= DECODE_LOG_INTERVAL:
            self._report(turn.began_s / speed, load, decode=not step.prefill)

    def pages(self) -> Mapping[str, Callable[[], PageContent]]:
        """Return the one page."""
        return {"/metrics": lambda: (CONTENT_TYPE_LATEST, generate_latest(self._registry))}

    def _report(self, now: float, load: EngineLoad, *, decode: bool) -> None:
        gauges = self._gauges
        gauges["num_running_reqs"].set(load.running)
        gauges["num_queue_reqs"].set(load.waiting)
        gauges["num_used_tokens"].set(load.reserved_tokens)
        gauges["token_usage"].set(load.reserved_tokens / load.capacity)
        gauges["new_token_ratio"].set(self._engine.new_token_ratio)
        if decode:
            gauges["gen_throughput"].set(self._tokens / (now - self._since_s) if now > self._since_s else 0.0)
            self._decodes = self._tokens = 0
            self._since_s = now
        self._last_retracted.set(0)
