"""What the end of a process does to an export that is under way on another thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

from midstream.telemetry.exporters.otlp import _Delivery
from support.waiting import until


class Exporter(MetricExporter):
    """An exporter whose export takes until something has happened."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Event()
        self.ends_when: Callable[[], object] = lambda: None
        self.closed = threading.Event()

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """Deliver, once that has happened."""
        self.began.set()
        self.ends_when()
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """There is nothing to flush."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Note that it was called."""
        self.closed.set()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    exporter = Exporter()
    yield exporter
    exporter.closed.set()


def exporting(delivery: _Delivery, exporter: Exporter) -> threading.Thread:
    """Have a thread in the middle of an export."""
    thread = threading.Thread(target=delivery.export, args=(MetricsData([]),), daemon=True)
    thread.start()
    assert exporter.began.wait(20)
    return thread


def test_an_export_under_way_may_end_within_the_time_of_the_shutdown(
    exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    """The metrics arrive, so nothing is logged."""
    delivery = _Delivery(exporter, "collector")
    exporter.ends_when = lambda: until(lambda: delivery._over)
    thread = exporting(delivery, exporter)

    delivery.shutdown(timeout=20_000)
    thread.join(20)

    assert delivery.arrived
    assert caplog.messages == []
    assert exporter.closed.is_set()


def test_an_export_that_does_not_end_in_time_is_logged_once(
    exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    """The reader's time is over, or has been over for a while."""
    delivery = _Delivery(exporter, "collector")
    exporter.ends_when = lambda: exporter.closed.wait(20)
    exporting(delivery, exporter)

    delivery.shutdown(timeout=-5.0)

    assert not delivery.arrived
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "do not reach collector (no answer yet)" in caplog.text


def test_a_forked_child_does_not_wait_for_a_thread_that_it_does_not_have(exporter: Exporter) -> None:
    """The thread that was exporting holds what the child would wait for."""
    delivery = _Delivery(exporter, "collector")
    exporter.ends_when = lambda: exporter.closed.wait(20)
    exporting(delivery, exporter)

    delivery.abandon()
    assert delivery.export(MetricsData([])) is MetricExportResult.FAILURE
    delivery.shutdown(timeout=20_000)

    assert exporter.closed.is_set()
