"""The table of metrics: its names, its bounds, and what OTel and Prometheus make of it."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Histogram, InMemoryMetricReader, Sum
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View

from midstream.telemetry import instruments
from midstream.telemetry.instruments import (
    COMMON,
    FREEZES,
    MAX_GAP,
    METRICS,
    Instruments,
    Metric,
    prometheus_label,
    prometheus_name,
)


def read(reader: InMemoryMetricReader) -> dict[str, Any]:
    """Collect once: the SDK's metrics by name."""
    data = reader.get_metrics_data()
    resources = data.resource_metrics if data is not None else []
    scopes = [scope for resource in resources for scope in resource.scope_metrics]
    return {metric.name: metric for scope in scopes for metric in scope.metrics}


def test_every_metric_has_its_name_in_prometheus() -> None:
    """The names that rules and dashboards of users will hold are pinned, one by one."""
    assert {metric.name: prometheus_name(metric) for metric in METRICS} == {
        "stream.max_gap": "stream_max_gap_seconds",
        "stream.time_to_first_content": "stream_time_to_first_content_seconds",
        "stream.max_hold": "stream_max_hold_seconds",
        "stream.tail": "stream_tail_seconds",
        "stream.freezes": "stream_freezes_total",
        "stream.hidden_freezes": "stream_hidden_freezes_total",
        "stream.frozen_time": "stream_frozen_time_seconds_total",
        "stream.active": "stream_active",
        "stream.frozen": "stream_frozen",
        "stream.open_gap": "stream_open_gap_seconds",
        "stream.ended": "stream_ended_total",
        "stream.stall_timeouts": "stream_stall_timeouts_total",
        "stream.limit_hits": "stream_limit_hits_total",
        "stream.limit_used_ratio": "stream_limit_used_ratio",
        "stream.usage_missing": "stream_usage_missing_total",
        "stream.buffered": "stream_buffered_total",
        "gen_ai.client.token.usage": "gen_ai_client_token_usage",
        "gen_ai.client.operation.duration": "gen_ai_client_operation_duration_seconds",
        "gen_ai.client.operation.time_to_first_chunk": (
            "gen_ai_client_operation_time_to_first_chunk_seconds"
        ),
    }


def test_a_unit_in_the_name_is_not_said_twice() -> None:
    """Both translators leave a unit alone that the name ends in, and so does the derived name."""
    said = Metric("a.wait_seconds", "histogram", "s", "", "")

    assert prometheus_name(said) == "a_wait_seconds"


def test_attributes_have_their_names_in_prometheus() -> None:
    """Everything but letters and digits becomes an underscore."""
    assert [prometheus_label(name) for name in COMMON] == [
        "gen_ai_operation_name",
        "gen_ai_provider_name",
        "gen_ai_request_model",
        "server_address",
        "server_port",
    ]


def test_the_table_holds_every_metric_once() -> None:
    """A metric that is defined but not listed would never be made."""
    defined = [value for value in vars(instruments).values() if isinstance(value, Metric)]

    assert list(METRICS) == defined
    assert len({metric.name for metric in METRICS}) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_well_formed(metric: Metric) -> None:
    """Histograms have rising bounds, others have none; every metric says what it is and what a sample is."""
    assert (metric.buckets is not None) == (metric.kind == "histogram")
    bounds = metric.buckets or ()
    assert list(bounds) == sorted(set(bounds))
    assert all(isinstance(bound, float) for bound in bounds)
    assert metric.description.endswith(".")
    assert metric.sample
    assert metric.attributes[: len(COMMON)] == COMMON


def test_gaps_have_a_bound_at_every_number_an_alert_may_name() -> None:
    """A rule with a threshold between two bounds would count wrongly, one above the last would never fire."""
    assert MAX_GAP.buckets == (
        0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    )  # fmt: skip


def test_instruments_are_what_the_table_says() -> None:
    """Name, unit, description, kind and bounds arrive at the reader as they stand in the table."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    instruments = Instruments(provider, lambda _metric: [])
    recorded = [metric for metric in METRICS if metric.kind != "gauge"]
    for metric in recorded:
        instruments.put(metric, 1, {"a": "b"})

    seen = read(reader)

    assert list(seen) == [metric.name for metric in recorded]
    for metric in recorded:
        arrived = seen[metric.name]
        assert (arrived.unit, arrived.description) == (metric.unit, metric.description)
        (point,) = arrived.data.data_points
        assert dict(point.attributes) == {"a": "b"}
        if metric.kind == "histogram":
            assert isinstance(arrived.data, Histogram)
            assert point.explicit_bounds == metric.buckets
        else:
            assert isinstance(arrived.data, Sum)
            assert arrived.data.is_monotonic


def test_two_users_of_one_provider_share_its_instruments() -> None:
    """Two monitors in one process add to the same series, without a warning about a duplicate."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    for _ in range(2):
        Instruments(provider, lambda _metric: []).put(FREEZES, 1, {"a": "b"})

    (point,) = read(reader)["stream.freezes"].data.data_points
    assert point.value == 2


def test_a_view_of_the_application_wins_over_our_bounds() -> None:
    """The bounds are advice: who wants others gets them."""
    reader = InMemoryMetricReader()
    view = View(instrument_name="stream.max_gap", aggregation=ExplicitBucketHistogramAggregation([1.0, 7.0]))
    provider = MeterProvider([reader], views=[view], shutdown_on_exit=False)
    Instruments(provider, lambda _metric: []).put(MAX_GAP, 3.0, {})

    (point,) = read(reader)["stream.max_gap"].data.data_points
    assert (point.explicit_bounds, point.bucket_counts) == ((1.0, 7.0), (0, 1, 0))


def test_an_instrument_made_before_there_is_a_provider_works_without_one() -> None:
    """An application without OTel pays a no-op, and hears nothing of it."""
    instruments = Instruments(None, lambda _metric: [])

    instruments.put(MAX_GAP, 3.0, {"a": "b"})
    instruments.put(FREEZES, 1, {"a": "b"})
