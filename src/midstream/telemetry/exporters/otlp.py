"""OTLP within bounds: a collector that is down costs one line in the log, and a limited time at exit."""

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
        """Send now; return whether it arrived in time."""
        # On a thread of its own: the exporter repeats its attempts without a limit that is ours.
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
    """Another exporter, whose failures are logged when they begin and when they end, and not in between."""

    def __init__(self, exporter: MetricExporter, target: str) -> None:
        # The reader asks an exporter for these two, and they have no public name.
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self.arrived = True
        self._exporter = exporter
        self._target = target
        self._silencer: _LogSilencer | None = None  # of the latest export
        self._exporting = threading.Lock()
        self._over = False

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        if self._over:
            self.arrived = False
            return MetricExportResult.FAILURE
        with self._exporting:
            silencer = self._silencer = _LogSilencer()
            try:
                result = self._exporter.export(metrics_data, timeout_millis, **kwargs)
            except Exception as exc:  # noqa: BLE001 - whatever it is, the next attempt is due all the same
                silencer.reason = type(exc).__name__
                result = MetricExportResult.FAILURE
            finally:
                silencer.lift()
            self._note(result is MetricExportResult.SUCCESS, silencer.reason)
        return result

    def abandon(self) -> None:
        """Take part in nothing any more."""
        self._over = True
        self._exporting = (
            threading.Lock()
        )  # a thread that the fork has not copied may have held the other one

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Wait for an export on another thread for what is left of the time, and end it then."""
        self._over = True
        # The reader gives what is left of its time by another name than its interface does.
        left_s = max(0.0, float(kwargs.get("timeout", timeout_millis))) / 1000
        if self._exporting.acquire(timeout=min(left_s, threading.TIMEOUT_MAX)):
            self._exporting.release()
        else:
            silencer = self._silencer
            self._note(False, (silencer.reason if silencer else "") or "no answer yet")
        # The time allowed is over. Left to themselves, older exporters would wait for half a minute more.
        self._exporter.shutdown(timeout_millis=0)

    def _note(self, arrived: bool, reason: str) -> None:
        before, self.arrived = self.arrived, arrived
        if before and not arrived:
            safe_log(
                logging.WARNING,
                "metrics do not reach %s (%s); streams are unaffected, and this is not logged again "
                "until it works",
                self._target,
                reason or "no reason given",
            )
        elif arrived and not before:
            safe_log(logging.INFO, "metrics reach %s again", self._target)


class _LogSilencer(logging.Filter):
    """Keeps messages of the exporters on this thread out of the log, and stores the reason of the last one."""

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
    """Make the exporter for this protocol; it reads its other settings from its environment variables."""
    kind = "grpc" if protocol == "grpc" else "http"
    # By name: each of the two imports a large library.
    module = import_module(f"opentelemetry.exporter.otlp.proto.{kind}.metric_exporter")
    exporter: MetricExporter = module.OTLPMetricExporter()
    return exporter
