"""OTLP with an end: a collector that is dead costs one line in the log, and a bounded time at exit."""

from __future__ import annotations

import logging
import threading
from enum import Enum
from importlib import import_module
from typing import Any

from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)

from midstream._support.internal_errors import Guard, safe_log
from midstream.telemetry.exporters.configuration import Protocol
from midstream.telemetry.exporters.idle_push import IdlePush

_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
)


class Push:
    """A reader that sends to a collector every `interval_s`."""

    def __init__(self, exporter: MetricExporter, target: str, interval_s: float) -> None:
        self._delivery = _Delivery(exporter, target)
        self.idle_push = IdlePush(self._send)
        self.reader = PeriodicExportingMetricReader(self._delivery, export_interval_millis=interval_s * 1000)

    def flush(self, timeout_s: float) -> bool:
        """Send now; tell whether it arrived in time."""
        # On a thread of its own: the exporter would try again and again for as long as it pleases.
        sender = threading.Thread(target=self._send, name="midstream-flush", daemon=True)
        sender.start()
        sender.join(timeout_s)
        return not sender.is_alive() and self._delivery.arrived

    def abandon(self) -> None:
        """Send nothing more, silently: in a forked child, where OpenTelemetry starts the reader's thread again."""
        self.idle_push.close()
        self._delivery.abandon()

    def _send(self) -> None:
        with Guard("flush"):
            self.reader.force_flush()


class _Delivery(MetricExporter):
    """Another exporter, heard only when it starts to fail and when it works again."""

    def __init__(self, exporter: MetricExporter, target: str) -> None:
        # The reader asks an exporter for these two, and they have no public name.
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self.arrived = True
        self._exporter = exporter
        self._target = target
        self._hush: _Hush | None = None  # while an export is under way
        self._over = False

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        if self._over:
            self.arrived = False
            return MetricExportResult.FAILURE
        hush = self._hush = _Hush()
        try:
            result = self._exporter.export(metrics_data, timeout_millis, **kwargs)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the next attempt is due all the same
            hush.reason = type(exc).__name__
            result = MetricExportResult.FAILURE
        finally:
            hush.lift()
            self._hush = None
        self._note(result is MetricExportResult.SUCCESS, hush.reason)
        return result

    def abandon(self) -> None:
        """Take part in nothing any more."""
        self._over = True

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._over = True
        hush = self._hush
        if hush is not None:
            self._note(False, hush.reason or "no answer yet")
        # The time allowed is over. Left to themselves, older exporters would wait for half a minute more.
        self._exporter.shutdown(timeout_millis=0)

    def _note(self, arrived: bool, reason: str) -> None:
        before, self.arrived = self.arrived, arrived
        if before and not arrived:
            safe_log(
                logging.WARNING,
                "metrics do not reach %s (%s); streams are unaffected, and until it works again "
                "no more is said",
                self._target,
                reason or "no reason given",
            )
        elif arrived and not before:
            safe_log(logging.INFO, "metrics reach %s again", self._target)


class _Hush(logging.Filter):
    """Keeps the exporters' own messages of this thread out of the log, and the gist of the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""
        self._thread = threading.get_ident()
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if threading.get_ident() != self._thread:
            return True
        # gRPC's status is a member of an enumeration, HTTP's a number. Texts may quote an address whole.
        for value in record.args if isinstance(record.args, tuple) else ():
            if isinstance(value, Enum) or (isinstance(value, int) and 100 <= value <= 599):
                self.reason = str(value)
            elif isinstance(value, Exception):
                self.reason = type(value).__name__
        return False

    def lift(self) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self)


def exporter_for(protocol: Protocol) -> MetricExporter:
    """Make the exporter that speaks this protocol; the rest it takes from its environment variables."""
    kind = "grpc" if protocol == "grpc" else "http"
    # By name, since each of the two brings in a library of its own that takes its time to import.
    module = import_module(f"opentelemetry.exporter.otlp.proto.{kind}.metric_exporter")
    exporter: MetricExporter = module.OTLPMetricExporter()
    return exporter
