"""vLLM's `/metrics`. Names, labels and buckets of 0.33; only the series that show load, waiting and preemption.

Its trap is kept: a preemption is counted with the request's next token, that is (without asynchronous scheduling)
when the freeze ends; and never, if the client leaves before.
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

from midstream.lab.admission import AdmissionRefusal, EngineLoad, Reason, VllmSettings
from midstream.lab.drive import Turn
from midstream.lab.emulation.meter import Meter, PageContent, RequestState

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
         80.0, 160.0, 640.0, 2560.0)  # fmt: skip
_BETWEEN = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
_WHOLE = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
          960.0, 1920.0, 7680.0)  # fmt: skip
_LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
_REASONS = ("stop", "length", "abort", "error", "repetition")


class VllmMeter(Meter):
    """Counts what vLLM counts."""

    def __init__(self, model: str, flags: VllmSettings) -> None:
        self._registry = registry = CollectorRegistry()
        labels = {"model_name": model, "engine": "0"}

        def gauge(name: str, text: str, *more: str) -> Gauge:
            made = Gauge(f"vllm:{name}", text, [*labels, *more], registry=registry)
            return made if more else made.labels(**labels)

        def counter(name: str, text: str, *more: str) -> Counter:
            made = Counter(f"vllm:{name}", text, [*labels, *more], registry=registry)
            return made if more else made.labels(**labels)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"vllm:{name}", text, [*labels], buckets=buckets, registry=registry).labels(
                **labels
            )

        self._running = gauge("num_requests_running", "Number of requests in model execution batches.")
        self._waiting = gauge("num_requests_waiting", "Number of requests waiting to be processed.")
        self._usage = gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")
        reasons = gauge("num_requests_waiting_by_reason", "Requests waiting, by reason.", "reason")
        self._capacity = reasons.labels(**labels, reason="capacity")
        reasons.labels(**labels, reason="deferred").set(0)
        self._preemptions = counter("num_preemptions", "Cumulative number of preemption from the engine.")
        self._prompt = counter("prompt_tokens", "Number of prefill tokens processed.")
        self._generated = counter("generation_tokens", "Number of generation tokens processed.")
        success = counter("request_success", "Count of successfully processed requests.", "finished_reason")
        self._success = {reason: success.labels(**labels, finished_reason=reason) for reason in _REASONS}
        rejections = Counter(
            "vllm:admission_rejections", "Requests rejected.", ["model_name", "reason"], registry=registry
        )
        self._rejected = rejections.labels(model_name=model, reason="max_num_queued_reqs")
        self._ttft = histogram("time_to_first_token_seconds", "Histogram of time to first token.", _TTFT)
        self._between = histogram(
            "inter_token_latency_seconds", "Histogram of inter-token latency.", _BETWEEN
        )
        self._whole = histogram("e2e_request_latency_seconds", "Histogram of e2e request latency.", _WHOLE)
        self._queued = histogram("request_queue_time_seconds", "Time spent in WAITING phase.", _WHOLE)
        self._prompts = histogram("request_prompt_tokens", "Number of prefill tokens processed.", _LENGTHS)
        self._answers = histogram("request_generation_tokens", "Number of generation tokens.", _LENGTHS)
        self._limits = histogram("request_params_max_tokens", "The max_tokens request parameter.", _LENGTHS)
        self._preemptions_per_request = histogram(
            "request_num_preemptions", "Preemptions per request.", (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
        )
        config = {
            "block_size": str(flags.block_size),
            "enable_prefix_caching": str(flags.enable_prefix_caching),
            "num_gpu_blocks": str(flags.num_gpu_blocks),
        }
        info = Gauge(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            ["engine", *config],
            registry=registry,
        )
        info.labels(engine="0", **config).set(1)

    def refused(self, life: RequestState, refusal: AdmissionRefusal) -> None:
        """Count a full queue."""
        if refusal.status == 503:
            self._rejected.inc()

    def preempted(self, life: RequestState) -> None:
        """Remember a preemption; it travels with the request's next token."""
        super().preempted(life)
        life.unreported += 1

    def said(self, life: RequestState) -> None:
        """Count a token, and what travels with it."""
        self._generated.inc()
        if life.unreported:
            self._preemptions.inc(life.unreported)
            life.unreported = 0
        if life.gap_s is not None:
            self._between.observe(life.gap_s)
        else:
            self._ttft.observe(life.last_s - life.asked_s)
            self._prompt.inc(life.request.prompt_tokens)

    def ended(self, life: RequestState, reason: Reason) -> None:
        """Count a request that ended; those whose clients left are not counted at all."""
        self._success[reason].inc()
        self._whole.observe(life.last_s - life.asked_s)
        self._queued.observe((life.started_s or life.asked_s) - life.asked_s)
        self._prompts.observe(life.request.prompt_tokens)
        self._answers.observe(life.tokens)
        self._preemptions_per_request.observe(life.preemptions)
        if life.request.max_tokens is not None:
            self._limits.observe(life.request.max_tokens)

    def began(self, turn: Turn, load: EngineLoad, speed: float) -> None:
        """Show the load as it is while the step is computed."""
        self._show(load)

    def done(self, turn: Turn, load: EngineLoad) -> None:
        """Show the load that is left; the next step, if there is one, begins at once."""
        self._show(load)

    def pages(self) -> Mapping[str, Callable[[], PageContent]]:
        """Return the one page."""
        return {"/metrics": lambda: (CONTENT_TYPE_LATEST, generate_latest(self._registry))}

    def _show(self, load: EngineLoad) -> None:
        self._running.set(load.running)
        self._waiting.set(load.waiting)
        self._capacity.set(load.waiting)
        self._usage.set(load.reserved_tokens / load.capacity)
