"""From records and freezes to OpenTelemetry. Its failures stop here, and only what keeps failing is switched off."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from opentelemetry.metrics import get_meter_provider
from opentelemetry.trace import Status, StatusCode, get_current_span

from midstream._support.internal_errors import Guard
from midstream._support.sanitize import valid_name
from midstream.stream.errors import STALL_TIMEOUT
from midstream.stream.finish_reasons import stream_finish_label
from midstream.stream.model import Call, FreezeSpan, Outcome, Phase, StreamRecord
from midstream.stream.phases import PHASES
from midstream.telemetry import gauges
from midstream.telemetry import instruments as metrics
from midstream.telemetry.gauges import OpenSample
from midstream.telemetry.instruments import Instruments, Metric
from midstream.telemetry.labels import MAX_LABEL_SETS, LabelFactory, Labels

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider

__all__ = ["Labels", "OpenSample", "Recorder"]

MAX_EVENTS = 16
"""How many freezes of one stream become events of its span."""

RESPONSE_ID = "gen_ai.response.id"
"""An attribute of spans and their events alone: as a label of metrics it would make a series of each stream."""

_FAILED = {Outcome.TIMEOUT, Outcome.ERROR, Outcome.CANCELLED}

# Counters start at 0 when the first stream of a label set opens, or `increase()` would miss the first event.
_BORN: tuple[tuple[Metric, Mapping[str, str]], ...] = (
    *(
        (metric, {metrics.PHASE: phase})
        for metric in (metrics.FREEZES, metrics.FROZEN_TIME)
        for phase in PHASES
    ),
    (metrics.HIDDEN_FREEZES, {}),
    (metrics.STALL_TIMEOUTS, {}),
    (metrics.LIMIT_HITS, {}),
    (metrics.USAGE_MISSING, {}),
    (metrics.BUFFERED, {}),
    *(
        (metrics.ENDED, {metrics.OUTCOME: outcome.value, metrics.FINISH_REASON: finish})
        for outcome, finish in (
            (Outcome.COMPLETED, "stop"),
            (Outcome.COMPLETED, "length"),
            (Outcome.COMPLETED, "tool_calls"),
            (Outcome.COMPLETED, "content_filter"),
            (Outcome.NO_FINISH, "none"),
            (Outcome.LEFT_EARLY, "none"),
            (Outcome.CANCELLED, "none"),
            (Outcome.TIMEOUT, "none"),
            (Outcome.ERROR, "none"),
            (Outcome.EMPTY, "none"),
        )
    ),
)


_NONE: Mapping[str, str] = {}
_INPUT = {metrics.TOKEN_TYPE: "input"}
_OUTPUT = {metrics.TOKEN_TYPE: "output"}


class MetricSample(NamedTuple):
    """One value for one metric, with the attributes that only this metric has."""

    metric: Metric
    value: float
    attributes: Mapping[str, str] = _NONE


def samples_of(record: StreamRecord) -> Iterator[MetricSample]:
    """The samples that an ended stream adds to the metrics. A value that does not exist is no sample; 0 is one."""
    # A gap measured behind a buffer would be blindness that looks like smoothness.
    if record.max_gap_s is not None and not record.buffered:
        yield MetricSample(
            metrics.MAX_GAP, record.max_gap_s, {metrics.PHASE: record.max_gap_phase or PHASES[0]}
        )
    durations = (
        (metrics.FIRST_CONTENT, record.time_to_first_content_s),
        (metrics.MAX_HOLD, record.max_hold_s),
        (metrics.TAIL, record.tail_s),
        (metrics.FIRST_CHUNK, record.time_to_first_chunk_s),
    )
    for metric, seconds in durations:
        if seconds is not None:
            yield MetricSample(metric, seconds)
    # The outcome's own word where nothing more precise is known: as low in cardinality as any error.type.
    error = record.error_type or (record.outcome.value if record.outcome in _FAILED else "")
    own = {metrics.ERROR_TYPE: valid_name(error)} if error else _NONE
    yield MetricSample(metrics.OPERATION_DURATION, record.duration_s, own)
    finish = stream_finish_label(record.finish_reasons)
    yield MetricSample(
        metrics.ENDED, 1, {metrics.OUTCOME: record.outcome.value, metrics.FINISH_REASON: finish}
    )
    if record.error_type == STALL_TIMEOUT:
        yield MetricSample(metrics.STALL_TIMEOUTS, 1)
    if record.limit_hit:
        yield MetricSample(metrics.LIMIT_HITS, 1)
    if record.buffered:
        yield MetricSample(metrics.BUFFERED, 1)
    if record.input_tokens is not None:
        yield MetricSample(metrics.TOKEN_USAGE, record.input_tokens, _INPUT)
    if record.output_tokens is not None:
        yield MetricSample(metrics.TOKEN_USAGE, record.output_tokens, _OUTPUT)
        if record.token_limit:
            # The limit is for each choice, usage for all of them together.
            limit = record.token_limit * max(1, len(record.finish_reasons))
            yield MetricSample(metrics.LIMIT_USED, record.output_tokens / limit)
    elif record.input_tokens is None and record.outcome is Outcome.COMPLETED:
        yield MetricSample(metrics.USAGE_MISSING, 1)


def _stalled(record: StreamRecord) -> str:
    if not record.content_chunks:
        return "stall timeout: no output at all"
    return f"stall timeout: no more output after {record.content_chunks} content chunks"


class Progress(Protocol):
    """How far the recording of one stream has come."""

    measured: int
    """How many samples were recorded."""


class Recorder:
    """Feeds one meter provider, None for the global one. `open_streams` lists what is open when it is asked.

    No method raises. A sample that cannot be recorded costs itself alone; a provider that keeps failing is left alone
    for a while.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None,
        open_streams: Callable[[], Iterable[OpenSample]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # The global provider may still be a proxy for the one that the application will set.
        self.provider = None if meter_provider is get_meter_provider() else meter_provider
        self.seen: dict[frozenset[tuple[str, str]], Labels] = {}
        self._opened: dict[int, Labels] = {}  # the same by identity: nearly every stream finds itself here
        self._open_streams = open_streams
        self._label_factory = LabelFactory()
        self._labels = Guard("metric labels", clock)
        self._metrics = Guard("metrics", clock)
        self._gauges = Guard("gauges", clock)
        self._spans = Guard("span attributes", clock)
        self._instruments: Instruments | None = None
        self._child_provider: Callable[[], MeterProvider] | None = None
        with self._metrics:
            self._instruments = self._made_instruments()

    def labels(self, call: Call, attributes: Mapping[str, str]) -> Labels:
        """Return the attributes of a stream's metrics, to be asked for once and kept."""
        if self._labels.ok:
            with self._labels:
                return self._label_factory.labels(call, attributes)
        return {}

    def opened(self, labels: Labels) -> None:
        """Set the counters of this label set to 0 if this is its first stream."""
        if self._opened.get(id(labels)) is labels or not self._metrics.ok:
            return
        if len(self._opened) < MAX_LABEL_SETS:
            self._opened[id(labels)] = labels
        key = frozenset(labels.items())
        if key not in self.seen:
            if len(self.seen) < MAX_LABEL_SETS:
                self.seen[key] = labels
            for metric, own in _BORN:
                self._put(metric, 0.0 if metric.unit == "s" else 0, {**labels, **own})

    def froze(self, labels: Labels, context: Context | None, *, phase: Phase = "text") -> None:
        """Count a freeze at the moment the threshold is crossed."""
        self._put(metrics.FREEZES, 1, {**labels, metrics.PHASE: phase}, context)

    def freeze_over(
        self, context: Context | None, freeze: FreezeSpan, nth: int, response_id: str | None = None
    ) -> None:
        """Make an event of a freeze that has ended, the `nth` of its stream, on the span of the call."""
        if context is not None and nth <= MAX_EVENTS and self._spans.ok:
            with self._spans:
                span = get_current_span(context)
                if span.is_recording():
                    about: dict[str, str | bool | float] = {
                        "stream.freeze.length": freeze.length_s,
                        metrics.PHASE: freeze.phase,
                        "stream.freeze.shared": freeze.shared,
                        "stream.freeze.hidden": freeze.hidden,
                    }
                    if response_id is not None:
                        about[RESPONSE_ID] = response_id
                    span.add_event("stream.freeze", about)

    def hid(self, labels: Labels) -> None:
        """Count a freeze that the caller did not wait for."""
        self._put(metrics.HIDDEN_FREEZES, 1, labels)

    def frozen_for(self, labels: Labels, seconds: float, *, phase: Phase = "text") -> None:
        """Add time spent frozen, while it passes."""
        if seconds > 0:
            self._put(metrics.FROZEN_TIME, seconds, {**labels, metrics.PHASE: phase})

    def ended(
        self, labels: Labels, record: StreamRecord, context: Context | None, progress: Progress | None = None
    ) -> None:
        """Record an ended stream, in the context of its call so that exemplars lead to the trace.

        An exception of the caller's may interrupt this; called again with the same `progress` it goes on from there.
        """
        for number, (metric, value, own) in enumerate(samples_of(record)):
            if progress is not None:
                if number < progress.measured:
                    continue
                progress.measured = number + 1
            self._put(metric, value, {**labels, **own} if own else labels, context)
        about = {metrics.MAX_GAP.name: record.max_gap_s, RESPONSE_ID: record.response_id}
        known = {name: value for name, value in about.items() if value is not None}
        if context is not None and known and self._spans.ok:
            with self._spans:
                span = get_current_span(context)
                if span.is_recording():
                    span.set_attributes(known)
        if context is not None and record.error_type == STALL_TIMEOUT and self._spans.ok:
            with self._spans:
                span = get_current_span(context)
                if span.is_recording():
                    span.set_status(Status(StatusCode.ERROR, _stalled(record)))

    def refused(self, labels: Labels, duration_s: float, error_type: str, context: Context | None) -> None:
        """Record a call that failed before there was a stream."""
        own = {metrics.ERROR_TYPE: valid_name(error_type)}
        self._put(metrics.OPERATION_DURATION, duration_s, {**labels, **own}, context)

    def open_samples(self) -> Iterable[OpenSample]:
        """List the streams that are open now, for the gauges."""
        if self._gauges.ok:
            with self._gauges:
                return list(self._open_streams())
        return ()

    def _put(self, metric: Metric, value: float, labels: Labels, context: Context | None = None) -> None:
        if self._metrics.ok:
            with self._metrics:
                if self._instruments is None:
                    self._instruments = self._made_instruments()
                if not math.isfinite(value):  # an aggregate that took it in could not be exported any more
                    raise ValueError(f"{metric.name} cannot be {value}")
                self._instruments.put(metric, value, labels, context)

    def feeds(self, provider: MeterProvider) -> bool:
        """Whether the metrics go to this provider."""
        return (get_meter_provider() if self.provider is None else self.provider) is provider

    def forked(self, provider: Callable[[], MeterProvider]) -> None:
        """Go on in a forked child with nothing counted, on a provider that is made when it is first needed."""
        self._child_provider = provider
        self._instruments = None
        self.seen = {}
        self._opened = {}

    def _made_instruments(self) -> Instruments:
        if self._child_provider is not None:
            self.provider, self._child_provider = self._child_provider(), None
        gauges.join(self)
        return Instruments(self.provider, gauges.observing(self.provider))
