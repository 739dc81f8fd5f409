"""What a real collector gets from `setup(otlp=True)`, by either protocol."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from midstream.setup import Setup
from midstream.telemetry.exporters.configuration import export_configuration
from midstream.telemetry.instruments import METRICS, Metric
from midstream.telemetry.recorder import OpenSample, Recorder
from real.programs import Collector
from support.records import a_call, a_record
from support.waiting import until

LABELS = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "m",
    "server.address": "api.example.com",
    "server.port": "8000",
}
KINDS = {"histogram": "histogram", "counter": "sum", "gauge": "gauge"}
TRACE_ID, SPAN_ID = 0x1234, 0x5678


@pytest.fixture(scope="module", params=["grpc", "http/protobuf"])
def arrived(request: pytest.FixtureRequest, collector: Collector) -> dict[str, Any]:
    """Record one stream and list what came out at the other end of the collector, by name."""
    service = f"app by {request.param}"
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", request.param)
        endpoint = collector.grpc if request.param == "grpc" else collector.http
        environ.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        setup = Setup(export_configuration(os.environ, service_name=service, export_interval_s=3600))
    with setup:
        recorder = Recorder(setup.meter_provider, lambda: [OpenSample(labels, True, 41.5)])
        labels = recorder.labels(a_call(), {})
        span = SpanContext(TRACE_ID, SPAN_ID, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        recorder.opened(labels)
        recorder.froze(labels, None)
        recorder.frozen_for(labels, 7.5)
        recorder.ended(
            labels,
            a_record(
                time_to_first_chunk_s=0.25,
                time_to_first_content_s=0.5,
                max_gap_s=7.5,
                max_hold_s=0.125,
                tail_s=0.0625,
                token_limit=100,
                output_tokens=50,
            ),
            set_span_in_context(NonRecordingSpan(span)),
        )
        assert setup.flush(10.0)
        until(lambda: len(collector.backend.metrics(service)) == len(METRICS))
    return collector.backend.metrics(service)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_arrives_as_the_table_says(arrived: dict[str, Any], metric: Metric) -> None:
    """Name, unit, description and kind, whole and unchanged."""
    seen = arrived[metric.name]

    assert (seen.unit, seen.description, seen.WhichOneof("data")) == (
        metric.unit,
        metric.description,
        KINDS[metric.kind],
    )


def attributes_of(point: Any) -> dict[str, str]:
    return {entry.key: entry.value.string_value for entry in point.attributes}


def by_phase(metric: Any, value: str) -> dict[str, float]:
    return {attributes_of(point)["stream.phase"]: getattr(point, value) for point in metric.sum.data_points}


def test_values_arrive(arrived: dict[str, Any]) -> None:
    """Sums of histograms, totals of counters, and gauges as they are."""
    sums = {
        name: [point.sum for point in metric.histogram.data_points]
        for name, metric in arrived.items()
        if metric.WhichOneof("data") == "histogram"
    }
    assert sums == {
        "stream.max_gap": [7.5],
        "stream.time_to_first_content": [0.5],
        "stream.max_hold": [0.125],
        "stream.tail": [0.0625],
        "stream.limit_used_ratio": [0.5],
        "gen_ai.client.token.usage": [3, 50],
        "gen_ai.client.operation.duration": [0.5],
        "gen_ai.client.operation.time_to_first_chunk": [0.25],
    }
    assert by_phase(arrived["stream.freezes"], "as_int") == {"text": 1, "reasoning": 0, "tool_call": 0}
    assert by_phase(arrived["stream.frozen_time"], "as_double") == {
        "text": 7.5,
        "reasoning": 0.0,
        "tool_call": 0.0,
    }
    assert [point.as_double for point in arrived["stream.open_gap"].gauge.data_points] == [41.5]
    assert [point.as_int for point in arrived["stream.active"].gauge.data_points] == [1]


def test_attributes_and_bounds_arrive(arrived: dict[str, Any]) -> None:
    """Attributes are strings under OTel's own names; the bounds are ours and not the SDK's."""
    (gap,) = arrived["stream.max_gap"].histogram.data_points

    assert attributes_of(gap) == {**LABELS, "stream.phase": "text"}
    assert list(gap.explicit_bounds) == [
        0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    ]  # fmt: skip
    assert [count for count in gap.bucket_counts if count] == [1]
    assert gap.bucket_counts[7] == 1  # past 5 s, not past 10 s


def test_totals_are_cumulative_and_only_rise(arrived: dict[str, Any]) -> None:
    """Which is what Prometheus takes over OTLP."""
    total = arrived["stream.freezes"].sum

    assert (total.is_monotonic, total.aggregation_temporality) == (True, 2)


def test_the_gap_leads_to_its_trace(arrived: dict[str, Any]) -> None:
    """The exemplar survives the way through a collector."""
    (gap,) = arrived["stream.max_gap"].histogram.data_points
    (exemplar,) = gap.exemplars

    assert int.from_bytes(exemplar.trace_id, "big") == TRACE_ID
    assert int.from_bytes(exemplar.span_id, "big") == SPAN_ID
    assert exemplar.as_double == 7.5


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_what_a_process_recorded_last_arrives_before_it_ends(collector: Collector, protocol: str) -> None:
    """A script that asks one question and exits is seen like any other."""
    service = f"script by {protocol}"
    program = """
        import midstream
        handle = midstream.setup()
        handle.meter_provider.get_meter("test").create_counter("test.calls").add(3)
        """
    ended = run(program, collector, service, protocol)

    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 0)
    until(lambda: collector.backend.metrics(service))
    (point,) = collector.backend.metrics(service)["test.calls"].sum.data_points
    assert point.as_int == 3


@pytest.mark.parametrize("order", ["setup before the stream", "stream before the setup"])
def test_a_stream_that_a_process_leaves_open_is_in_its_last_sending(collector: Collector, order: str) -> None:
    """Whichever came first, at the end the stream comes first."""
    program = f"""
        import midstream
        from openai import OpenAI
        from midstream.testing import ManualClock, finish, scripted, text

        if {order!r} == "setup before the stream":
            midstream.setup()
        script = [(0.0, text("a")), (0.1, text("b")), (0.2, finish())]
        client = OpenAI(api_key="none", http_client=scripted(script, ManualClock()))
        stream = midstream.monitor(client).chat.completions.create(model="m", messages=[], stream=True)
        next(stream)
        if {order!r} == "stream before the setup":
            midstream.setup()
        """
    assert run(program, collector, order, "grpc").returncode == 0

    until(lambda: collector.backend.metrics(order))
    points = collector.backend.metrics(order)["stream.ended"].sum.data_points
    ends = [
        {entry.key: entry.value.string_value for entry in point.attributes}["outcome"]
        for point in points
        if point.as_int
    ]
    assert ends == ["left_early"]


def run(program: str, collector: Collector, service: str, protocol: str) -> subprocess.CompletedProcess[str]:
    """Run a program that sends to the collector under this name."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environ = {
        **own,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc if protocol == "grpc" else collector.http,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_SERVICE_NAME": service,
    }
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
