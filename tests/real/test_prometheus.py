"""What a real Prometheus makes of our metrics when it scrapes `setup(prometheus=...)`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from midstream.setup import Setup
from midstream.stream.model import Outcome
from midstream.telemetry.exporters.configuration import export_configuration
from midstream.telemetry.instruments import COMMON, METRICS, Metric, prometheus_label, prometheus_name
from midstream.telemetry.recorder import OpenSample, Recorder
from real.programs import Prometheus, absent, fetch
from support.records import a_call, a_record
from support.waiting import until

HISTOGRAMS = [metric for metric in METRICS if metric.kind == "histogram"]
ids = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


class App:
    """An application whose streams the tests make by hand, and the Prometheus that watches it."""

    def __init__(self, setup: Setup, server: Prometheus) -> None:
        self.setup = setup
        self.prometheus = server
        self.open: list[OpenSample] = []
        self.recorder = Recorder(setup.meter_provider, lambda: self.open)
        self.labels = self.recorder.labels(a_call(), {"team": "search"})


@pytest.fixture(scope="module")
def app(prometheus: Callable[[str], Prometheus]) -> Iterator[App]:
    """Make a stream that froze and hit its limit, one that failed, and one that is frozen now."""
    with Setup(export_configuration({}, prometheus=0)) as setup:
        app = App(setup, prometheus(setup.prometheus_url or ""))
        app.recorder.opened(app.labels)
        until(lambda: app.prometheus.value("sum(stream_freezes_total)") == 0)

        app.recorder.froze(app.labels, None)
        app.recorder.hid(app.labels)
        app.recorder.frozen_for(app.labels, 7.5)
        app.recorder.ended(
            app.labels,
            a_record(
                finish_reasons=("length",),
                time_to_first_chunk_s=0.25,
                time_to_first_content_s=0.5,
                max_gap_s=7.5,
                max_hold_s=0.125,
                tail_s=0.0625,
                token_limit=100,
                output_tokens=100,
                limit_hit=True,
            ),
            None,
        )
        app.recorder.ended(
            app.labels, a_record(outcome=Outcome.TIMEOUT, finish_reasons=(), max_gap_s=600.5), None
        )
        app.open.append(OpenSample(app.labels, True, 41.5))
        until(lambda: app.prometheus.value("sum(stream_ended_total)") == 2)
        yield app


@ids
def test_every_metric_is_there_under_its_name(app: App, metric: Metric) -> None:
    """The names of the table are those of a real Prometheus, with the series that its kind has."""
    name = prometheus_name(metric)
    endings = ("_bucket", "_count", "_sum") if metric.kind == "histogram" else ("",)

    for ending in endings:
        assert app.prometheus.series(name + ending), name + ending


@ids
def test_every_metric_has_its_type_and_its_help(app: App, metric: Metric) -> None:
    """Graphs and editors show them."""
    # It keeps both under the name of the family, and in OpenMetrics that of a counter is without its suffix.
    family = prometheus_name(metric).removesuffix("_total")
    (about,) = app.prometheus.get("metadata", metric=family).values()

    assert [(one["type"], one["help"]) for one in about] == [(metric.kind, metric.description)]


@ids
def test_labels_are_the_closed_set(app: App, metric: Metric) -> None:
    """Ours, those that the user named, those of the scrape, and those that the exporter adds."""
    allowed = {
        *map(prometheus_label, metric.attributes),
        *("team", "job", "instance", "le", "__name__"),
        *("otel_scope_name", "otel_scope_version", "otel_scope_schema_url"),
    }
    series = app.prometheus.series(f'{{__name__=~"{prometheus_name(metric)}(_bucket|_count|_sum)?"}}')

    assert series
    for labels in series:
        assert set(labels) <= allowed
        assert {name: labels[name] for name in map(prometheus_label, COMMON)} == {
            "gen_ai_operation_name": "chat",
            "gen_ai_provider_name": "openai",
            "gen_ai_request_model": "m",
            "server_address": "api.example.com",
            "server_port": "8000",
        }


@pytest.mark.parametrize("metric", HISTOGRAMS, ids=lambda metric: metric.name)
def test_every_bound_of_the_table_is_a_bucket(app: App, metric: Metric) -> None:
    """A rule that names a bound finds it."""
    buckets = app.prometheus.query(f"sum by (le) ({prometheus_name(metric)}_bucket)")

    assert sorted(buckets) == sorted([*(f"le={bound}" for bound in metric.buckets or ()), "le=+Inf"])


def test_gaps_are_counted_on_their_side_of_each_bound(app: App) -> None:
    """7.5 s is past 5 and not past 10; 600.5 s is past all of them."""
    buckets = app.prometheus.query("sum by (le) (stream_max_gap_seconds_bucket)")

    assert {le: buckets[f"le={le}"] for le in ("5.0", "10.0", "600.0", "+Inf")} == {
        "5.0": 0,
        "10.0": 1,
        "600.0": 1,
        "+Inf": 2,
    }
    assert app.prometheus.value("stream_max_gap_seconds_sum") == 608.0


def test_the_first_freeze_of_a_process_is_an_increase(app: App) -> None:
    """A counter that were born at 1 would have no increase, and the first freeze no alert."""
    until(lambda: (app.prometheus.value("sum(increase(stream_freezes_total[1m]))") or 0) > 0.9)
    until(lambda: (app.prometheus.value("increase(stream_limit_hits_total[1m])") or 0) > 0.9)
    length = 'stream_ended_total{outcome="completed", finish_reason="length"}'
    until(lambda: (app.prometheus.value(f"increase({length}[1m])") or 0) > 0.9)


def test_streams_are_counted_by_their_end(app: App) -> None:
    """The other ends are there as well, at 0."""
    ends = app.prometheus.query("sum by (outcome, finish_reason) (stream_ended_total)")

    assert ends == {
        "finish_reason=length,outcome=completed": 1,
        "finish_reason=stop,outcome=completed": 0,
        "finish_reason=tool_calls,outcome=completed": 0,
        "finish_reason=content_filter,outcome=completed": 0,
        "finish_reason=none,outcome=no_finish": 0,
        "finish_reason=none,outcome=left_early": 0,
        "finish_reason=none,outcome=cancelled": 0,
        "finish_reason=none,outcome=timeout": 1,
        "finish_reason=none,outcome=error": 0,
        "finish_reason=none,outcome=empty": 0,
    }


def test_gauges_follow_a_stream_and_come_back_to_zero(app: App) -> None:
    """While it is frozen it is seen, and when it is over the gauges say 0 and not its last value."""
    names = ("stream_active", "stream_frozen", "stream_open_gap_seconds")
    until(lambda: [app.prometheus.value(name) for name in names] == [1, 1, 41.5])
    app.open.clear()

    until(lambda: [app.prometheus.value(name) for name in names] == [0, 0, 0])


def test_promtool_has_nothing_to_say_about_the_text(app: App) -> None:
    """Prometheus' own linter knows the conventions for names, units and help."""
    promtool = shutil.which("promtool") or absent("promtool")
    text = fetch(app.setup.prometheus_url or "")

    linted = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, check=False, timeout=120
    )

    assert (linted.stdout.decode(), linted.stderr.decode(), linted.returncode) == ("", "", 0)
