"""TGI's and llama.cpp's `/metrics`: both write the page themselves, without Python's suffixes.

TGI counts passes, not requests, in two of its histograms, and has no word for the pauses between them. llama.cpp has
no preemption to count. `tgi_batch_total_tokens` and a KV gauge of llama.cpp are missing, as they are there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from midstream.engines.tgi import PASS_TOKENS
from midstream.lab.admission import AdmissionRefusal, EngineLoad, Reason
from midstream.lab.drive import Turn
from midstream.lab.emulation.meter import Meter, PageContent, RequestState

_PLAIN = "text/plain; version=0.0.4"
_SECONDS = tuple(0.0001 * 1.5**n for n in range(35))
_TOKENS = tuple(float(2**n) for n in range(17))
_LLAMACPP_COUNTS = (
    "prompt_tokens_total",
    "prompt_seconds_total",
    "tokens_predicted_total",
    "tokens_predicted_seconds_total",
    "n_decode_total",
    "n_tokens_max",
    "prompt_tokens_cached_total",
)


class _Histogram:
    """Counts values up to bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> Iterator[str]:
        yield f"# TYPE {name} histogram"
        total = 0
        for bound, some in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += some
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._sum}"
        yield f"{name}_count {total}"


class TgiMeter(Meter):
    """Counts what TGI's router counts."""

    def __init__(self, pass_tokens: int | None = PASS_TOKENS) -> None:
        self._pass = pass_tokens
        self._counts: dict[str, int] = {"tgi_request_count": 0, "tgi_request_success": 0}
        self._failures: dict[str, int] = {}
        self._gauges = {"tgi_queue_size": 0, "tgi_batch_current_size": 0, "tgi_batch_current_max_tokens": 0}
        self._histograms = {
            "tgi_request_duration": _Histogram(_SECONDS),
            "tgi_request_queue_duration": _Histogram(_SECONDS),
            "tgi_request_inference_duration": _Histogram(_SECONDS),
            "tgi_request_mean_time_per_token_duration": _Histogram(_SECONDS),
            "tgi_request_generated_tokens": _Histogram(_TOKENS),
            "tgi_request_input_length": _Histogram(_TOKENS),
            "tgi_request_max_new_tokens": _Histogram(_TOKENS),
        }

    def asked(self, life: RequestState) -> None:
        """Count a request."""
        self._counts["tgi_request_count"] += 1

    def queued(self, life: RequestState) -> None:
        """Count its first pass; what is refused has none."""
        self._start_pass(life)

    def refused(self, life: RequestState, refusal: AdmissionRefusal) -> None:
        """Count a failure."""
        self._fail("overloaded" if refusal.status == 429 else "validation")

    def started(self, life: RequestState) -> None:
        """Note how long the first pass queued."""
        self._histograms["tgi_request_queue_duration"].observe((life.started_s or 0.0) - life.asked_s)

    def preempted(self, life: RequestState) -> None:
        """Count another pass: the only trace of the pause before it."""
        super().preempted(life)
        self._start_pass(life)

    def ended(self, life: RequestState, reason: Reason) -> None:
        """Count a request that ended."""
        if reason == "error":
            self._fail("generation")
            return
        self._counts["tgi_request_success"] += 1
        inference = life.last_s - (life.started_s or life.asked_s)
        self._histograms["tgi_request_duration"].observe(life.last_s - life.asked_s)
        self._histograms["tgi_request_inference_duration"].observe(inference)
        self._histograms["tgi_request_mean_time_per_token_duration"].observe(inference / life.tokens)
        self._histograms["tgi_request_generated_tokens"].observe(life.tokens)

    def left(self, life: RequestState) -> None:
        """Count a client that left."""
        self._fail("dropped")

    def began(self, turn: Turn, load: EngineLoad, speed: float) -> None:
        """Show the load as it is while the step is computed."""
        self.done(turn, load)

    def done(self, turn: Turn, load: EngineLoad) -> None:
        """Show the load that is left."""
        self._gauges["tgi_queue_size"] = load.waiting
        self._gauges["tgi_batch_current_size"] = load.running
        self._gauges["tgi_batch_current_max_tokens"] = load.reserved_tokens

    def pages(self) -> Mapping[str, Callable[[], PageContent]]:
        """Return the one page."""
        return {"/metrics": self._page}

    def _start_pass(self, life: RequestState) -> None:
        self._histograms["tgi_request_input_length"].observe(life.request.prompt_tokens + life.tokens)
        limit = life.request.max_tokens
        wanted = limit if self._pass is None else self._pass if limit is None else min(limit, self._pass)
        if wanted is not None:
            self._histograms["tgi_request_max_new_tokens"].observe(wanted)

    def _fail(self, why: str) -> None:
        self._failures[why] = self._failures.get(why, 0) + 1

    def _page(self) -> PageContent:
        lines: list[str] = []
        for name, value in self._counts.items():
            lines += [f"# TYPE {name} counter", f"{name} {value}"]
        if self._failures:
            lines.append("# TYPE tgi_request_failure counter")
            lines += [f'tgi_request_failure{{err="{why}"}} {value}' for why, value in self._failures.items()]
        for name, value in self._gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        for name, histogram in self._histograms.items():
            lines += histogram.lines(name)
        return _PLAIN, ("\n".join(lines) + "\n").encode()


class LlamaCppMeter(Meter):
    """Counts what llama.cpp's server counts with `--metrics`."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_LLAMACPP_COUNTS, 0.0)
        self._slots = 0
        self._load = (0, 0)

    def began(self, turn: Turn, load: EngineLoad, speed: float) -> None:
        """Count a batch."""
        step, counts = turn.step, self._counts
        seconds = (turn.done_s - turn.began_s) / speed
        prefilled = sum(chunk.tokens for chunk in step.prefill)
        counts["prompt_tokens_total"] += prefilled
        counts["prompt_seconds_total"] += seconds if prefilled else 0.0
        counts["tokens_predicted_total"] += len(step.emitted)
        counts["tokens_predicted_seconds_total"] += seconds if step.decode else 0.0
        counts["n_decode_total"] += 1
        counts["n_tokens_max"] = max(counts["n_tokens_max"], load.used_tokens)
        self._slots += len(step.decode) + len(step.prefill)
        self._load = load.running, load.waiting

    def done(self, turn: Turn, load: EngineLoad) -> None:
        """Show the load that is left."""
        self._load = load.running, load.waiting

    def pages(self) -> Mapping[str, Callable[[], PageContent]]:
        """Return the one page."""
        return {"/metrics": self._page}

    def _page(self) -> PageContent:
        counts = self._counts
        gauges = {
            "prompt_tokens_seconds": _rate(counts["prompt_tokens_total"], counts["prompt_seconds_total"]),
            "predicted_tokens_seconds": _rate(
                counts["tokens_predicted_total"], counts["tokens_predicted_seconds_total"]
            ),
            "requests_processing": float(self._load[0]),
            "requests_deferred": float(self._load[1]),
            "n_busy_slots_per_decode": _rate(self._slots, counts["n_decode_total"]),
        }
        lines = []
        for kind, values in (("counter", counts), ("gauge", gauges)):
            for name, value in values.items():
                lines += [f"# TYPE llamacpp:{name} {kind}", f"llamacpp:{name} {value:g}"]
        return _PLAIN, ("\n".join(lines) + "\n").encode()


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds else 0.0
