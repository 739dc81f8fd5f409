"""Every metric, defined once: the recorder, the alert rules, the panels and the docs refer to these objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from opentelemetry.metrics import get_meter

from midstream._support.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
MODEL = "gen_ai.request.model"
ADDRESS = "server.address"
PORT = "server.port"
OUTCOME = "outcome"
FINISH_REASON = "finish_reason"
ERROR_TYPE = "error.type"
PHASE = "stream.phase"
"""What the stream was producing when the gap began: text, reasoning or tool_call."""
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - the name of an attribute

COMMON = (OPERATION, PROVIDER, MODEL, ADDRESS, PORT)
"""The attributes of every metric. Those that the user names come on top."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric. `sample` completes "one sample is ..."; `buckets` are upper bounds, inclusive."""

    name: str
    kind: Literal["histogram", "counter", "gauge"]
    unit: str
    description: str
    sample: str
    buckets: tuple[float, ...] | None = None
    attributes: tuple[str, ...] = COMMON


# A count past a threshold is exact only where the threshold is a bound, so every number that an alert may
# name is one. All are floats: a scrape then says le="10.0", as Prometheus 3 writes it whatever it is sent.
_GAP = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_FIRST_CONTENT = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_HOLD = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_TAIL = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
# Beyond 1 is a server that overran the limit: what no bucket but +Inf holds.
_LIMIT_USED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 0.99, 1.0)
# The conventions' own bounds, so that our series add up with those of other instrumentations.
_SEMCONV_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_SEMCONV_TOKENS = tuple(4.0**power for power in range(14))

# fmt: off
MAX_GAP = Metric(
    "stream.max_gap", "histogram", "s",
    "Longest gap between two content chunks of a stream.",
    "a stream's longest gap, the one still open at its end included", _GAP, (*COMMON, PHASE),
)
FIRST_CONTENT = Metric(
    "stream.time_to_first_content", "histogram", "s",
    "From the caller's call to the first content chunk.",
    "a stream that produced content", _FIRST_CONTENT,
)
MAX_HOLD = Metric(
    "stream.max_hold", "histogram", "s",
    "Longest time the caller kept a chunk before asking for the next.",
    "a stream's longest hold", _HOLD,
)
TAIL = Metric(
    "stream.tail", "histogram", "s",
    "Waiting after the finish reason: for usage, [DONE] or a lingering connection.",
    "a stream that was read past its finish reason", _TAIL,
)
FREEZES = Metric(
    "stream.freezes", "counter", "{freeze}",
    "Gaps that reached the freeze threshold.",
    "a freeze, counted the moment the threshold is crossed", attributes=(*COMMON, PHASE),
)
HIDDEN_FREEZES = Metric(
    "stream.hidden_freezes", "counter", "{freeze}",
    "Freezes of the server during which the caller was busy and did not wait.",
    "a freeze that the connection shows and the caller's waits do not, counted once it is known",
)
FROZEN_TIME = Metric(
    "stream.frozen_time", "counter", "s",
    "Time that streams spent frozen, each freeze from the beginning of its gap.",
    "a second frozen, counted while the freeze lasts", attributes=(*COMMON, PHASE),
)
ACTIVE = Metric("stream.active", "gauge", "{stream}", "Streams open now.", "the number of open streams")
FROZEN = Metric("stream.frozen", "gauge", "{stream}", "Streams frozen now.", "the number of frozen streams")
OPEN_GAP = Metric("stream.open_gap", "gauge", "s", "Longest gap in progress now.", "the longest open gap")
ENDED = Metric(
    "stream.ended", "counter", "{stream}",
    "Streams that ended.",
    "a stream, by outcome and finish reason", attributes=(*COMMON, OUTCOME, FINISH_REASON),
)
STALL_TIMEOUTS = Metric(
    "stream.stall_timeouts", "counter", "{stream}",
    "Streams that the stall timeout ended.",
    "a stream that was ended because the server's gap reached `stall_timeout_s` or `first_content_timeout_s`",
)
LIMIT_HITS = Metric(
    "stream.limit_hits", "counter", "{stream}",
    "Streams that reached the token limit they asked for.",
    "a stream that reached its token limit, whatever its finish reason says",
)
# Not `stream.limit_used`: the Python Prometheus exporter makes no suffix of unit 1, and Go's translator does
# so for gauges only. With the word in the name, scrape and OTLP both arrive at `stream_limit_used_ratio`.
LIMIT_USED = Metric(
    "stream.limit_used_ratio", "histogram", "1",
    "Output tokens divided by the token limit asked for.",
    "a stream with both a limit and usage", _LIMIT_USED,
)
USAGE_MISSING = Metric(
    "stream.usage_missing", "counter", "{stream}",
    "Completed streams for which the server reported no usage.",
    "a completed stream without usage",
)
BUFFERED = Metric(
    "stream.buffered", "counter", "{stream}",
    "Streams whose answer arrived in one burst, so that their gaps are not known.",
    "a stream that something on its way buffered",
)

# The conventions' names stand here and nowhere else: all are in development, and `token.usage` is to be
# replaced. Their Python package offers them only from a private module, marked as moved.
TOKEN_USAGE = Metric(
    "gen_ai.client.token.usage", "histogram", "{token}",
    "Number of input and output tokens used.",
    "a stream's tokens of one type, if reported", _SEMCONV_TOKENS, (*COMMON, TOKEN_TYPE),
)
OPERATION_DURATION = Metric(
    "gen_ai.client.operation.duration", "histogram", "s",
    "GenAI operation duration.",
    "a stream, or a call refused before there was one", _SEMCONV_SECONDS, (*COMMON, ERROR_TYPE),
)
FIRST_CHUNK = Metric(
    "gen_ai.client.operation.time_to_first_chunk", "histogram", "s",
    "From the request to the first chunk received.",
    "a stream that yielded a chunk, content or not", _SEMCONV_SECONDS,
)

METRICS = (
    MAX_GAP, FIRST_CONTENT, MAX_HOLD, TAIL, FREEZES, HIDDEN_FREEZES, FROZEN_TIME, ACTIVE, FROZEN, OPEN_GAP,
    ENDED, STALL_TIMEOUTS, LIMIT_HITS, LIMIT_USED, USAGE_MISSING, BUFFERED, TOKEN_USAGE, OPERATION_DURATION,
    FIRST_CHUNK,
)
# fmt: on


def prometheus_name(metric: Metric) -> str:
    """Return a metric's name in Prometheus. A histogram's series add `_bucket`, `_sum` and `_count` to it."""
    words = metric.name.replace(".", "_").split("_")
    if metric.unit == "s" and "seconds" not in words:
        words.append("seconds")
    if metric.kind == "counter":
        words.append("total")
    return "_".join(words)


def prometheus_label(attribute: str) -> str:
    """Return the name of an attribute in Prometheus."""
    return "".join(char if char.isascii() and char.isalnum() else "_" for char in attribute)


class Instruments:
    """The OTel instruments of one meter provider, None for the global one.

    A provider hands out the same instrument however often it is asked. Gauges are the exception: it runs only
    the callback that it was given first, so `observe` must observe for all that feed the provider.
    """

    def __init__(
        self, provider: MeterProvider | None, observe: Callable[[Metric], Iterable[Observation]]
    ) -> None:
        meter = get_meter("midstream", VERSION, provider)
        self._put: dict[Metric, Callable[[float, Mapping[str, str], Context | None], None]] = {}
        for metric in METRICS:
            name, unit, about = metric.name, metric.unit, metric.description
            if metric.kind == "histogram":
                # Advisory: a View of the application wins over these bounds.
                self._put[metric] = meter.create_histogram(
                    name, unit, about, explicit_bucket_boundaries_advisory=metric.buckets
                ).record
            elif metric.kind == "counter":
                self._put[metric] = meter.create_counter(name, unit, about).add
            else:
                meter.create_observable_gauge(name, [_asking(observe, metric)], unit, about)

    def put(
        self, metric: Metric, value: float, labels: Mapping[str, str], context: Context | None = None
    ) -> None:
        """Record one sample of a histogram, or add to a counter."""
        self._put[metric](value, labels, context)


def _asking(
    observe: Callable[[Metric], Iterable[Observation]], metric: Metric
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda _options: observe(metric)
