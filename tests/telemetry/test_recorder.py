"""From records and freezes to metrics, spans and gauges; and what happens when that fails."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider as AnyMeterProvider
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from midstream._support import internal_errors
from midstream.runtime.settings import Settings
from midstream.stream.model import FreezeSpan, Outcome
from midstream.telemetry.instruments import (
    BUFFERED,
    ENDED,
    FIRST_CHUNK,
    FIRST_CONTENT,
    LIMIT_HITS,
    LIMIT_USED,
    MAX_GAP,
    MAX_HOLD,
    METRICS,
    OPERATION_DURATION,
    TAIL,
    TOKEN_USAGE,
    USAGE_MISSING,
)
from midstream.telemetry.recorder import MetricSample, OpenSample, Recorder, samples_of
from midstream.testing import ManualClock
from support.records import a_call, a_record

LABELS = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "m",
    "server.address": "api.example.com",
    "server.port": "8000",
}
IN_TEXT = {**LABELS, "stream.phase": "text"}
PHASES = ("text", "reasoning", "tool_call")
A_FREEZE = FreezeSpan(1.0, 7.0, "text", hidden=False, shared=False, open=False)


@dataclass
class Desk:
    """A recorder on a provider of its own, and what a reader sees there."""

    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    open: list[OpenSample] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.recorder = self.another(self.open)

    def another(self, streams: list[OpenSample]) -> Recorder:
        return Recorder(self.provider, lambda: streams)

    def collect(self) -> dict[str, list[Any]]:
        """Collect once: the data points of every metric that has any."""
        data = self.reader.get_metrics_data()
        resources = data.resource_metrics if data is not None else []
        scopes = [scope for resource in resources for scope in resource.scope_metrics]
        found = {metric.name: metric.data.data_points for scope in scopes for metric in scope.metrics}
        return {name: list(points) for name, points in found.items() if points}

    def points(self, name: str) -> list[Any]:
        """Collect once: the data points of one metric."""
        return self.collect().get(name, [])

    def values(self, name: str) -> list[tuple[dict[str, Any], float]]:
        """Collect once: attributes and value of each point of one counter or gauge."""
        return [(dict(point.attributes), point.value) for point in self.points(name)]


# What one record adds


def test_a_record_becomes_one_sample_for_everything_that_was_measured() -> None:
    """Each value goes to its metric, unrounded; the tokens to one metric by type."""
    record = a_record(
        time_to_first_chunk_s=0.25,
        time_to_first_content_s=0.5,
        max_gap_s=7.0,
        max_hold_s=0.125,
        tail_s=0.0625,
        duration_s=9.0,
        input_tokens=11,
        output_tokens=50,
        token_limit=100,
    )

    assert list(samples_of(record)) == [
        MetricSample(MAX_GAP, 7.0, {"stream.phase": "text"}),
        MetricSample(FIRST_CONTENT, 0.5),
        MetricSample(MAX_HOLD, 0.125),
        MetricSample(TAIL, 0.0625),
        MetricSample(FIRST_CHUNK, 0.25),
        MetricSample(OPERATION_DURATION, 9.0),
        MetricSample(ENDED, 1, {"outcome": "completed", "finish_reason": "stop"}),
        MetricSample(TOKEN_USAGE, 11, {"gen_ai.token.type": "input"}),
        MetricSample(TOKEN_USAGE, 50, {"gen_ai.token.type": "output"}),
        MetricSample(LIMIT_USED, 0.5),
    ]


def test_what_was_not_measured_is_no_sample() -> None:
    """A stream without content, usage or limit leaves its end and its duration, and no zeros."""
    record = a_record(
        outcome=Outcome.EMPTY, finish_reasons=(), duration_s=0.5, input_tokens=None, output_tokens=None
    )

    assert list(samples_of(record)) == [
        MetricSample(OPERATION_DURATION, 0.5),
        MetricSample(ENDED, 1, {"outcome": "empty", "finish_reason": "none"}),
    ]


def test_zero_is_a_value() -> None:
    """A first chunk at once, no gap to speak of and no output tokens are measurements like any other."""
    record = a_record(
        time_to_first_chunk_s=0.0,
        time_to_first_content_s=0.0,
        max_gap_s=0.0,
        max_hold_s=0.0,
        tail_s=0.0,
        duration_s=0.0,
        input_tokens=0,
        output_tokens=0,
        token_limit=8,
    )

    assert [(sample.metric, sample.value) for sample in samples_of(record)] == [
        (MAX_GAP, 0.0),
        (FIRST_CONTENT, 0.0),
        (MAX_HOLD, 0.0),
        (TAIL, 0.0),
        (FIRST_CHUNK, 0.0),
        (OPERATION_DURATION, 0.0),
        (ENDED, 1),
        (TOKEN_USAGE, 0),
        (TOKEN_USAGE, 0),
        (LIMIT_USED, 0.0),
    ]


def test_a_buffered_stream_counts_as_one_and_has_no_gap() -> None:
    """Behind a proxy that buffers, a gap of 0 would look like a server that never freezes."""
    samples = list(samples_of(a_record(max_gap_s=0.0, buffered=True)))

    assert MetricSample(BUFFERED, 1) in samples
    assert MAX_GAP not in [sample.metric for sample in samples]


@pytest.mark.parametrize(
    ("limit", "tokens", "finishes", "used"),
    [
        (100, 150, ("length",), 1.5),
        (100, 100, ("length", "stop"), 0.5),
        (100, 25, (), 0.25),
        (None, 25, ("stop",), None),
        (100, None, ("stop",), None),
        (0, 25, ("stop",), None),
    ],
)
def test_limit_used_is_output_over_the_limit_of_all_choices(
    limit: int | None, tokens: int | None, finishes: tuple[str, ...], used: float | None
) -> None:
    """Usage is summed over choices while the limit is for each; without one of the two there is no ratio."""
    record = a_record(token_limit=limit, output_tokens=tokens, finish_reasons=finishes)

    values = [sample.value for sample in samples_of(record) if sample.metric is LIMIT_USED]
    assert values == ([] if used is None else [used])


def test_a_limit_that_was_hit_is_counted_whatever_the_finish_reason_says() -> None:
    """Servers report truncated tool calls as `tool_calls`."""
    samples = list(samples_of(a_record(limit_hit=True, finish_reasons=("tool_calls",))))

    assert MetricSample(LIMIT_HITS, 1) in samples
    assert MetricSample(ENDED, 1, {"outcome": "completed", "finish_reason": "tool_calls"}) in samples


@pytest.mark.parametrize(
    ("outcome", "input_tokens", "output_tokens", "missing"),
    [
        (Outcome.COMPLETED, None, None, True),
        (Outcome.COMPLETED, 0, None, False),
        (Outcome.COMPLETED, None, 4, False),
        (Outcome.LEFT_EARLY, None, None, False),
        (Outcome.ERROR, None, None, False),
    ],
)
def test_usage_is_missed_only_where_it_was_due(
    outcome: Outcome, input_tokens: int | None, output_tokens: int | None, missing: bool
) -> None:
    """A stream that was cut cannot have reported; a completed one that says nothing is worth counting."""
    record = a_record(outcome=outcome, input_tokens=input_tokens, output_tokens=output_tokens)

    assert (MetricSample(USAGE_MISSING, 1) in samples_of(record)) is missing


@pytest.mark.parametrize(
    ("outcome", "error_type", "word"),
    [
        (Outcome.COMPLETED, None, None),
        (Outcome.NO_FINISH, None, None),
        (Outcome.LEFT_EARLY, None, None),
        (Outcome.ERROR, "APIConnectionError", "APIConnectionError"),
        (Outcome.ERROR, None, "error"),
        (Outcome.TIMEOUT, None, "timeout"),
        (Outcome.CANCELLED, None, "cancelled"),
    ],
)
def test_a_failure_names_its_type_on_the_duration_alone(
    outcome: Outcome, error_type: str | None, word: str | None
) -> None:
    """`error.type` is the record's, else the outcome's own word, and absent where nothing failed."""
    samples = list(samples_of(a_record(outcome=outcome, error_type=error_type)))

    with_type = [(sample.metric, sample.attributes["error.type"]) for sample in samples
                 if "error.type" in sample.attributes]  # fmt: skip
    assert with_type == ([] if word is None else [(OPERATION_DURATION, word)])


@pytest.mark.parametrize("outcome", list(Outcome))
def test_samples_keep_to_the_attributes_of_their_metric(outcome: Outcome) -> None:
    """No attribute is used that the table does not announce."""
    for sample in samples_of(a_record(outcome=outcome, max_gap_s=1.0, token_limit=9, buffered=True)):
        assert set(sample.attributes) <= set(sample.metric.attributes)


# Labels


def test_labels_are_a_closed_set_of_strings() -> None:
    """Who was asked what, and the few attributes that the user named; a port is a string like the rest."""
    labels = Desk().recorder.labels(a_call(), {"team": "search"})

    assert labels == {**LABELS, "team": "search"}


def test_what_is_not_known_is_left_out() -> None:
    """No empty string and no invented word becomes a label."""
    call = a_call(request_model="", server_address="", server_port=443, provider="")

    assert Desk().recorder.labels(call, {}) == {"gen_ai.operation.name": "chat"}


@pytest.mark.parametrize(
    "name",
    ["gen_ai.request.model", "gen_ai_request_model", "outcome", "error_type", "le", "job", "instance",
     "otel.scope.name", "__name__"],
)  # fmt: skip
def test_an_attribute_of_the_user_cannot_pass_for_one_of_ours(name: str) -> None:
    """Names that Prometheus would write alike would silently overwrite each other."""
    assert Desk().recorder.labels(a_call(), {name: "x"}) == LABELS


def test_the_hundred_and_first_model_is_called_other() -> None:
    """A caller that makes up model names cannot multiply time series; those seen first keep theirs."""
    recorder = Desk().recorder

    seen = [recorder.labels(a_call(request_model=f"m{n}"), {})["gen_ai.request.model"] for n in range(3000)]

    assert seen == [*(f"m{n}" for n in range(100)), *["other"] * 2900]
    assert recorder.labels(a_call(request_model="m99"), {})["gen_ai.request.model"] == "m99"
    assert "gen_ai.request.model" not in recorder.labels(a_call(request_model=""), {})


def test_the_hundred_and_first_server_is_called_other_and_has_no_port() -> None:
    """A hundred addresses on one port, or a hundred ports of one address: both are the limit."""
    recorder = Desk().recorder

    seen = [recorder.labels(a_call(server_port=port), {}) for port in range(8000, 8101)]

    assert [labels.get("server.port") for labels in seen] == [*(str(n) for n in range(8000, 8100)), None]
    assert seen[100]["server.address"] == "other"


# Counters


def test_counters_are_born_at_zero_with_the_first_stream() -> None:
    """Without a zero first, `increase()` does not see the first event of a process."""
    desk = Desk()
    desk.recorder.opened(LABELS)

    born = {metric.name: desk.values(metric.name) for metric in METRICS if metric.kind == "counter"}
    assert born == {
        "stream.freezes": [({**LABELS, "stream.phase": phase}, 0) for phase in PHASES],
        "stream.hidden_freezes": [(LABELS, 0)],
        "stream.frozen_time": [({**LABELS, "stream.phase": phase}, 0) for phase in PHASES],
        "stream.stall_timeouts": [(LABELS, 0)],
        "stream.limit_hits": [(LABELS, 0)],
        "stream.usage_missing": [(LABELS, 0)],
        "stream.buffered": [(LABELS, 0)],
        "stream.ended": [
            ({**LABELS, "outcome": outcome, "finish_reason": finish}, 0)
            for outcome, finish in (
                ("completed", "stop"),
                ("completed", "length"),
                ("completed", "tool_calls"),
                ("completed", "content_filter"),
                ("no_finish", "none"),
                ("left_early", "none"),
                ("cancelled", "none"),
                ("timeout", "none"),
                ("error", "none"),
                ("empty", "none"),
            )
        ],
    }


def test_a_freeze_counts_at_once_and_its_time_while_it_passes() -> None:
    """Both counters move before the stream has ended; nothing and less than nothing is not added."""
    desk = Desk()
    desk.recorder.froze(LABELS, None)
    for seconds in (5.0, 1.5, 0.0, -1.0):
        desk.recorder.frozen_for(LABELS, seconds)

    desk.recorder.froze(LABELS, None, phase="reasoning")
    desk.recorder.frozen_for(LABELS, 60.0, phase="reasoning")

    thinking = {**LABELS, "stream.phase": "reasoning"}
    assert desk.values("stream.freezes") == [(IN_TEXT, 1), (thinking, 1)]
    assert desk.values("stream.frozen_time") == [(IN_TEXT, 6.5), (thinking, 60.0)]


def test_a_freeze_that_a_busy_caller_did_not_wait_for_counts_apart() -> None:
    """It froze the server, but nobody: an alert on freezes must not wake anyone for it."""
    desk = Desk()
    desk.recorder.hid(LABELS)

    assert {name: [point.value for point in points] for name, points in desk.collect().items()} == {
        "stream.hidden_freezes": [1]
    }


def test_an_ended_stream_counts_by_outcome_and_finish_reason() -> None:
    """Two words of closed sets; the other metrics of the record do not have them."""
    desk = Desk()
    desk.recorder.ended(LABELS, a_record(max_gap_s=7.0, finish_reasons=("MAX_TOKENS",)), None)

    assert desk.values("stream.ended") == [({**LABELS, "outcome": "completed", "finish_reason": "length"}, 1)]
    (gap,) = desk.points("stream.max_gap")
    assert dict(gap.attributes) == IN_TEXT


def test_a_gap_of_half_a_day_is_counted_and_kept() -> None:
    """It is past every bound, and so in the last bucket; its length is not lost."""
    desk = Desk()
    desk.recorder.ended(LABELS, a_record(max_gap_s=43_084.3), None)

    (gap,) = desk.points("stream.max_gap")
    assert (gap.bucket_counts, gap.max) == ((*[0] * 15, 1), 43_084.3)


def test_a_refused_call_is_an_operation_and_nothing_else() -> None:
    """There was no stream, so no stream metric may count one."""
    desk = Desk()
    desk.recorder.refused(LABELS, 0.25, "RateLimitError", None)

    seen = desk.collect()
    assert list(seen) == ["gen_ai.client.operation.duration"]
    (duration,) = seen["gen_ai.client.operation.duration"]
    assert dict(duration.attributes) == {**LABELS, "error.type": "RateLimitError"}
    assert duration.sum == 0.25


def test_totals_work_as_deltas_too() -> None:
    """Only synchronous instruments count, so that a reader may ask for differences."""
    desk = Desk(InMemoryMetricReader({Counter: AggregationTemporality.DELTA}))
    desk.recorder.froze(LABELS, None)
    first = desk.values("stream.freezes")
    desk.recorder.froze(LABELS, None)
    desk.recorder.froze(LABELS, None)

    assert (first, desk.values("stream.freezes")) == ([(IN_TEXT, 1)], [(IN_TEXT, 2)])


# Traces


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Keep the spans that ended."""
    exporter = InMemorySpanExporter()
    yield exporter
    exporter.clear()


@pytest.fixture
def tracer(spans: InMemorySpanExporter) -> trace.Tracer:
    """Make spans that are kept, on a provider of its own."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider.get_tracer("test")


def in_span(span: trace.Span) -> Context:
    """Make a context in which nothing but this span is current."""
    return trace.set_span_in_context(span, Context())


def test_a_sample_leads_to_the_trace_of_its_call(tracer: trace.Tracer) -> None:
    """The exemplar is that of the captured context, though nothing is current when the stream ends."""
    desk = Desk()
    with tracer.start_as_current_span("ask") as span:
        context = in_span(span)
    desk.recorder.froze(LABELS, context)
    desk.recorder.ended(LABELS, a_record(max_gap_s=7.0), context)

    seen = desk.collect()
    for name in ("stream.max_gap", "stream.freezes"):
        (point,) = seen[name]
        (exemplar,) = point.exemplars
        assert exemplar.trace_id == span.get_span_context().trace_id
        assert exemplar.span_id == span.get_span_context().span_id


def test_the_span_of_the_call_gets_the_longest_gap_and_the_freezes(
    tracer: trace.Tracer, spans: InMemorySpanExporter
) -> None:
    """Whoever reads the trace sees the freeze where it happened."""
    recorder = Desk().recorder
    with tracer.start_as_current_span("ask") as span:
        recorder.freeze_over(
            in_span(span),
            FreezeSpan(1.0, 7.0, "text", hidden=False, shared=True, open=False),
            1,
            "chatcmpl-1",
        )
        recorder.freeze_over(
            in_span(span), FreezeSpan(9.0, 60.0, "reasoning", hidden=True, shared=False, open=False), 2
        )
        recorder.ended(LABELS, a_record(max_gap_s=7.0, response_id="chatcmpl-1"), in_span(span))

    (ended,) = spans.get_finished_spans()
    assert dict(ended.attributes or {}) == {"stream.max_gap": 7.0, "gen_ai.response.id": "chatcmpl-1"}
    assert [(event.name, dict(event.attributes or {})) for event in ended.events] == [
        ("stream.freeze", {
            "stream.freeze.length": 7.0, "stream.phase": "text",
            "stream.freeze.shared": True, "stream.freeze.hidden": False, "gen_ai.response.id": "chatcmpl-1",
        }),
        ("stream.freeze", {
            "stream.freeze.length": 60.0, "stream.phase": "reasoning",
            "stream.freeze.shared": False, "stream.freeze.hidden": True,
        }),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content_chunks", "description"),
    [
        (0, "stall timeout: no output at all"),
        (3, "stall timeout: no more output after 3 content chunks"),
    ],
)
def test_a_stalled_stream_sets_the_status_of_the_span(
    tracer: trace.Tracer, spans: InMemorySpanExporter, content_chunks: int, description: str
) -> None:
    """Whoever looks for failed spans finds it, and why it failed; any other outcome leaves the status alone."""
    recorder = Desk().recorder
    stalled = a_record(
        outcome=Outcome.TIMEOUT, error_type="stall_timeout", max_gap_s=7.0, content_chunks=content_chunks
    )
    for record in (stalled, a_record(outcome=Outcome.TIMEOUT, error_type="timeout")):
        with tracer.start_as_current_span("ask") as span:
            recorder.ended(LABELS, record, in_span(span))

    first, second = spans.get_finished_spans()
    assert (first.status.status_code, first.status.description) == (trace.StatusCode.ERROR, description)
    assert (second.status.status_code, second.status.description) == (trace.StatusCode.UNSET, None)


def test_a_span_gets_no_more_than_sixteen_events(tracer: trace.Tracer, spans: InMemorySpanExporter) -> None:
    """A stream that freezes all the time must not fill the span; the counter goes on."""
    desk = Desk()
    with tracer.start_as_current_span("ask") as span:
        for nth in range(1, 41):
            desk.recorder.froze(LABELS, in_span(span))
            desk.recorder.freeze_over(in_span(span), A_FREEZE, nth)

    (ended,) = spans.get_finished_spans()
    assert len(ended.events) == 16
    assert desk.values("stream.freezes") == [(IN_TEXT, 40)]


def test_a_span_that_has_ended_is_left_alone(
    tracer: trace.Tracer, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream often outlives the span that was current at its call."""
    recorder = Desk().recorder
    with tracer.start_as_current_span("ask") as span:
        pass
    recorder.freeze_over(in_span(span), A_FREEZE, 1)
    recorder.ended(LABELS, a_record(max_gap_s=7.0), in_span(span))

    (ended,) = spans.get_finished_spans()
    assert (dict(ended.attributes or {}), list(ended.events), caplog.records) == ({}, [], [])


# Gauges


def gauges(desk: Desk) -> dict[str, float]:
    """Collect once: what the three gauges show of the only label set."""
    seen = desk.collect()
    (active,), (frozen,), (gap,) = seen["stream.active"], seen["stream.frozen"], seen["stream.open_gap"]
    return {"active": active.value, "frozen": frozen.value, "open gap": gap.value}


def test_gauges_show_what_is_open_at_the_moment_of_collection() -> None:
    """Streams and frozen streams are counted; of the open gaps it is the longest that counts."""
    desk = Desk()
    desk.open += [
        OpenSample(LABELS, False, 0.5),
        OpenSample(LABELS, True, 41.0),
        OpenSample(LABELS, True, 7.0),
    ]

    assert desk.values("stream.active") == [(LABELS, 3)]
    assert desk.values("stream.frozen") == [(LABELS, 2)]
    assert desk.values("stream.open_gap") == [(LABELS, 41.0)]


def test_gauges_come_back_to_zero_and_do_not_vanish() -> None:
    """A gauge that vanished would go on showing its last value until it is stale."""
    desk = Desk()
    desk.recorder.opened(LABELS)
    desk.open.append(OpenSample(LABELS, True, 9.0))
    before = gauges(desk)
    desk.open.clear()

    after = gauges(desk)

    assert before == {"active": 1, "frozen": 1, "open gap": 9.0}
    assert after == {"active": 0, "frozen": 0, "open gap": 0.0}
    kinds = {"active": int, "frozen": int, "open gap": float}
    assert [{name: type(value) for name, value in seen.items()} for seen in (before, after)] == [kinds, kinds]


def test_two_recorders_of_one_provider_show_their_streams_together() -> None:
    """A provider runs one callback for a gauge; the streams of a second monitor must not be lost by that."""
    desk = Desk()
    second = desk.another([OpenSample(LABELS, True, 3.0)])
    second.opened(LABELS)
    desk.open.append(OpenSample(LABELS, False, 1.0))

    assert gauges(desk) == {"active": 2, "frozen": 1, "open gap": 3.0}


def test_a_recorder_that_is_gone_shows_nothing() -> None:
    """The provider does not keep it, nor the streams that it knew."""
    desk = Desk()
    second = desk.another([OpenSample(LABELS, True, 3.0)])
    gone = weakref.ref(second)
    del second
    gc.collect()

    assert gone() is None
    assert desk.values("stream.active") == []


def test_streams_of_another_provider_are_not_shown() -> None:
    """Each provider has the gauges of its own monitors."""
    desk, other = Desk(), Desk()
    other.open.append(OpenSample(LABELS, True, 3.0))

    assert desk.values("stream.active") == []


# Our own failures


class Broken(AnyMeterProvider):
    """A provider whose meters cannot be had, or whose instruments fail."""

    def __init__(self, *, at_once: bool) -> None:
        self.at_once = at_once

    def get_meter(self, *_args: Any, **_kwargs: Any) -> Any:
        if self.at_once:
            raise RuntimeError("secret words")
        return self

    def create_counter(self, *_args: Any, **_kwargs: Any) -> Any:
        return self

    create_histogram = create_observable_gauge = create_counter

    def add(self, *_args: Any) -> None:
        raise RuntimeError("secret words")

    record = add


@pytest.fixture
def in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let our own failures be logged, as they are outside of tests."""
    monkeypatch.setattr(internal_errors, "RAISE", False)
    monkeypatch.setattr(internal_errors, "_internal_errors", internal_errors.OnceLog())


def use_everything(recorder: Recorder, context: Context | None = None) -> None:
    """Call every method as the monitor does."""
    labels = recorder.labels(a_call(), {})
    recorder.opened(labels)
    recorder.froze(labels, context)
    recorder.hid(labels)
    recorder.frozen_for(labels, 1.0)
    recorder.ended(labels, a_record(max_gap_s=1.0), context)
    recorder.refused(labels, 1.0, "RateLimitError", context)


@pytest.mark.usefixtures("in_production")
@pytest.mark.parametrize("at_once", [True, False])
def test_a_provider_that_keeps_failing_is_reported_once_and_left_alone(
    at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller sees nothing; the log gets the first failure and the end of trying, without the exception's words."""
    caplog.set_level(logging.WARNING)
    recorder = Recorder(Broken(at_once=at_once), list)

    use_everything(recorder)
    use_everything(recorder)

    assert [record.getMessage() for record in caplog.records] == [
        "the metrics failed with RuntimeError; your stream is unaffected",
        (
            "the metrics failed 5 times in a row, the last time with RuntimeError; that part is "
            "switched off and tried again after 60 s, your streams are unaffected"
        ),
    ]


def test_under_test_a_provider_that_fails_is_heard() -> None:
    """With `midstream.testing` in use, our failure is the test's."""
    recorder = Recorder(Broken(at_once=False), list)

    with pytest.raises(RuntimeError, match="secret words"):
        recorder.froze(LABELS, None)


@pytest.mark.usefixtures("in_production")
def test_a_list_of_streams_that_fails_costs_the_gauges_only(caplog: pytest.LogCaptureFixture) -> None:
    """One part is switched off, not all of them; what was seen before reads 0."""

    def streams() -> Iterable[OpenSample]:
        raise RuntimeError("secret words")

    desk = Desk()
    recorder = Recorder(desk.provider, streams)
    use_everything(recorder)

    assert desk.values("stream.active") == [(LABELS, 0)]
    assert (IN_TEXT, 1) in desk.values("stream.freezes")
    assert [record.getMessage() for record in caplog.records] == [
        "the gauges failed with RuntimeError; your stream is unaffected"
    ]


@pytest.mark.usefixtures("in_production")
def test_a_span_that_fails_costs_the_span_only(caplog: pytest.LogCaptureFixture) -> None:
    """Metrics go on when somebody's tracer does not."""

    class BrokenSpan(trace.NonRecordingSpan):
        def is_recording(self) -> bool:
            raise RuntimeError("secret words")

    desk = Desk()
    use_everything(desk.recorder, in_span(BrokenSpan(trace.INVALID_SPAN_CONTEXT)))

    assert (IN_TEXT, 1) in desk.values("stream.freezes")
    assert len(desk.points("stream.max_gap")) == 1
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("the span attributes failed with RuntimeError; ")


@pytest.mark.usefixtures("in_production")
def test_an_interrupt_in_our_code_is_still_the_users() -> None:
    """Ctrl-C while we record ends the program, as it would anywhere else."""

    class Interrupted(Broken):
        def add(self, *_args: Any) -> None:
            raise KeyboardInterrupt

    recorder = Recorder(Interrupted(at_once=False), list)

    with pytest.raises(KeyboardInterrupt):
        recorder.froze(LABELS, None)


@pytest.mark.usefixtures("in_production")
def test_a_provider_that_works_again_is_used_again() -> None:
    """A part that was switched off is tried after a minute, and is on again after the first success."""
    clock = ManualClock()
    desk = Desk()
    broken = Broken(at_once=True)
    recorder = Recorder(broken, list, clock)
    use_everything(recorder)
    recorder.provider = desk.provider
    use_everything(recorder)
    assert desk.values("stream.freezes") == []

    clock.advance(60.0)
    use_everything(recorder)

    assert (IN_TEXT, 1) in desk.values("stream.freezes")


@pytest.mark.usefixtures("in_production")
def test_a_sample_that_cannot_be_recorded_costs_itself_alone(caplog: pytest.LogCaptureFixture) -> None:
    """However many streams report such a number, the others of the same record and of other streams are there."""
    desk = Desk()
    labels = desk.recorder.labels(a_call(), {})
    desk.recorder.opened(labels)
    for _ in range(20):
        desk.recorder.ended(labels, a_record(max_gap_s=1.0, input_tokens=10**400), None)
    desk.recorder.ended(labels, a_record(max_gap_s=1.0, output_tokens=5), None)

    ended = {**LABELS, "outcome": "completed", "finish_reason": "stop"}
    assert (ended, 21) in desk.values("stream.ended")
    (gaps,) = desk.points("stream.max_gap")
    assert gaps.count == 21
    assert "switched off" not in caplog.text


HOSTILE = ["\ud800", "a\x00b\x1b[31m", "line\nbreak", "m" * 1_000_000, "\u202egnp.exe"]


@pytest.mark.parametrize("name", HOSTILE, ids=["surrogate", "controls", "newline", "megabyte", "direction"])
def test_names_of_others_become_labels_that_every_exporter_can_encode(name: str) -> None:
    """A gateway passes on what its clients call a model; an attribute may come from anywhere."""
    attributes = Settings(attributes={f"team{name}": name}).attributes
    labels = Desk().recorder.labels(
        a_call(request_model=name, server_address=name, provider=name), attributes
    )

    assert len(labels) == 6
    for label, value in labels.items():
        assert (label + value).isprintable()
        assert (label + value).encode()
        assert max(len(label), len(value)) <= 256
