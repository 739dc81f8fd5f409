"""`midstream.setup()`: metrics for an application that has no OpenTelemetry of its own, in one line."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Collection
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING
from uuid import uuid4

from opentelemetry.metrics import get_meter_provider, set_meter_provider

from midstream._support.http_hosts import is_loopback
from midstream._support.idle import off_idle, on_idle
from midstream._support.internal_errors import Guard, safe_log
from midstream._support.lifecycle import run_exit_before_others
from midstream._support.sanitize import valid_text
from midstream.runtime.monitor import PROCESS
from midstream.telemetry.exporters.configuration import (
    SHUTDOWN_TIMEOUT_S,
    ExportConfiguration,
    Protocol,
    export_configuration,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from typing_extensions import Self

    from midstream.telemetry.exporters.otlp import Push
    from midstream.telemetry.exporters.prometheus import PrometheusEndpoint

_INSTANCE = "service.instance.id"

_active: Setup | None = None


def setup(
    *,
    otlp: bool | None = None,
    prometheus: int | bool | None = None,
    host: str | None = None,
    service_name: str | None = None,
    export_interval_s: float | None = None,
    shutdown_timeout_s: float = SHUTDOWN_TIMEOUT_S,
    allow_hosts: Collection[str] = (),
) -> Setup:
    """Set up the global meter provider, so that the metrics of this process are exported.

    `otlp`: send to the collector that the standard `OTEL_EXPORTER_OTLP_*` variables describe. The default is
    to do so if one of them names an endpoint, or if `OTEL_METRICS_EXPORTER` contains otlp.
    `prometheus`: serve `/metrics` on this port; 0 is any free one (see `prometheus_url`), True is
    `OTEL_EXPORTER_PROMETHEUS_PORT` or 9464. The default is to do so if `OTEL_METRICS_EXPORTER` contains
    prometheus, or if metrics have no other destination. All workers of a service may use the same port.
    `host`: the address to serve on, by default `OTEL_EXPORTER_PROMETHEUS_HOST` or 127.0.0.1.
    `allow_hosts`: names that the endpoint answers in the `Host` header, beside those of loopback. A listener on
    another address answers any name unless this is set.
    `service_name`: the name of this service, by default `OTEL_SERVICE_NAME`.
    `export_interval_s`: how often to send, by default `OTEL_METRIC_EXPORT_INTERVAL` or 15 seconds.
    `shutdown_timeout_s`: how long the end of the process may wait for the collector, whatever that does.

    The same call again returns the same handle. Raises RuntimeError if there is a meter provider already, or
    if the arguments were others before; OSError if the port is taken; ImportError if the `prometheus` extra
    is missing; ValueError or TypeError for an invalid value, naming it and the remedy.
    """
    global _active  # noqa: PLW0603 - a process has one global meter provider, and this is its handle
    configuration = export_configuration(
        os.environ,
        otlp=otlp,
        prometheus=prometheus,
        host=host,
        service_name=service_name,
        export_interval_s=export_interval_s,
        shutdown_timeout_s=shutdown_timeout_s,
        allow_hosts=allow_hosts,
    )
    if _active is not None:
        return _again(_active, configuration)
    taken = RuntimeError(
        "this process has a meter provider already, and midstream's metrics go there; leave out "
        "midstream.setup(), or call it before anything else sets a provider"
    )
    if isinstance(get_meter_provider(), _provider_class()):
        raise taken
    handle = Setup(configuration)
    set_meter_provider(handle.meter_provider)
    if get_meter_provider() is not handle.meter_provider:  # one of another make was there
        handle.shutdown()
        raise taken
    # Exit functions run last come first, and streams that are still open must end before the last sending.
    run_exit_before_others(always=True)
    _active = handle
    return handle


def _again(active: Setup, configuration: ExportConfiguration) -> Setup:
    if active.closed:
        raise RuntimeError("midstream.setup() was shut down; a process sets its meter provider only once")
    if active._configuration != configuration:
        raise RuntimeError(f"midstream.setup() made {active!r} from other arguments before; call it once")
    _ = active.meter_provider  # a forked child begins to export here at the latest
    return active


class Setup:
    """A meter provider with its exporters. It ends with its `with` block, or with the process.

    `meter_provider` is the global one, for `monitor()` as for instruments of your own; `closed` is true once it has
    ended.
    """

    def __init__(self, configuration: ExportConfiguration) -> None:
        self.closed = False
        self._configuration = configuration
        self._resource = _resource(configuration)
        with ExitStack() as undo:
            self._endpoint = _endpoint(configuration, self._resource)
            if self._endpoint is not None:
                undo.callback(self._endpoint.close)
            self._push = (
                None if configuration.protocol is None else _push(configuration.protocol, configuration)
            )
            undo.pop_all()
        self._starting = threading.Lock()
        self._provider: MeterProvider | None = self._made_provider()
        if self._endpoint is not None:
            self._endpoint.start()
        on_idle(self._on_idle)
        atexit.register(self._end)

    def _made_provider(self) -> MeterProvider:
        return _provider_class()(
            # The endpoint's first: its end takes no time, and the other's may take all there is.
            [part.reader for part in (self._endpoint, self._push) if part is not None],
            self._resource,
            shutdown_on_exit=False,  # that would wait for half a minute
        )

    def _on_idle(self) -> None:
        if self._endpoint is not None:
            self._endpoint.wake()
        if self._push is not None:
            self._push.idle_push.wake()

    def _forked(self) -> None:
        """Start over in a forked child, which counts from 0 and exports for itself.

        The provider of the parent stays the global one for instruments that the program made itself: its locks may be
        held for ever. midstream's own instruments move to a new one, made when the child opens its first stream.
        """
        self._starting = threading.Lock()
        parents, self._provider = self._provider, None
        if self._endpoint is not None:
            self._endpoint.forked()
        if self._push is not None:
            self._push.abandon()
        if parents is not None:
            PROCESS.replace_provider(parents, lambda: self.meter_provider)

    @property
    def meter_provider(self) -> MeterProvider:
        """The provider of this process: the global one, but in a forked child one of its own."""
        if self._provider is None:
            with self._starting:
                if self._provider is None:
                    self._start_in_child()
        assert self._provider is not None  # noqa: S101 - for the type checker
        return self._provider

    def _start_in_child(self) -> None:
        if self._configuration.protocol is not None:
            self._push = _push(self._configuration.protocol, self._configuration)
            self._resource = _resource(self._configuration)
        self._provider = self._made_provider()
        if self._endpoint is not None:
            self._endpoint.start()

    def __repr__(self) -> str:
        parts = (
            self._configuration.target and f"otlp={self._configuration.target}",
            self.prometheus_url,
            self.closed and "closed",
        )
        return f"<midstream.Setup {' '.join(part for part in parts if part) or 'off'}>"

    @property
    def prometheus_url(self) -> str | None:
        """The address of the metrics page; None if there is none."""
        return None if self._endpoint is None else self._endpoint.url

    def flush(self, timeout_s: float | None = None) -> bool:
        """Send what is recorded so far, within the time of a shutdown by default; return whether it arrived."""
        if self._push is None:
            return True
        return self._push.flush(self._configuration.shutdown_timeout_s if timeout_s is None else timeout_s)

    def shutdown(self) -> None:
        """Send what is left, within `shutdown_timeout_s`, and close the endpoint. Never raises."""
        self._end()
        if self._endpoint is not None:
            self._endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _end(self) -> None:
        if not self.closed:
            self.closed = True
            atexit.unregister(self._end)
            off_idle(self._on_idle)
            if self._endpoint is not None:
                self._endpoint.finish()
            if self._push is not None:
                self._push.idle_push.close()
            with Guard("shutdown of metrics"):
                if self._provider is not None:
                    self._provider.shutdown(timeout_millis=self._configuration.shutdown_timeout_s * 1000)


def _provider_class() -> type[MeterProvider]:
    # OTel's SDK takes as long to import as all of midstream, and only this module needs it.
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415

    return MeterProvider


def _resource(configuration: ExportConfiguration) -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    name = configuration.service_name
    found = Resource.create({"service.name": name} if name else {})
    # Environment variables may hold bytes that are not text, which neither exporter could encode.
    valid = {
        name: valid_text(value) if isinstance(value, str) else value
        for name, value in found.attributes.items()
    }
    if configuration.protocol is not None:
        # Or the workers of a service would send different totals of what is the same series to a collector.
        valid.setdefault(_INSTANCE, str(uuid4()))
    return Resource(valid, found.schema_url)


def _push(protocol: Protocol, configuration: ExportConfiguration) -> Push:
    from midstream.telemetry.exporters.otlp import Push, exporter_for  # noqa: PLC0415 - only who sends waits for its imports

    return Push(exporter_for(protocol), configuration.target, configuration.export_interval_s)


def _endpoint(configuration: ExportConfiguration, resource: Resource) -> PrometheusEndpoint | None:
    if configuration.listen is None:
        return None
    host, port = configuration.listen
    try:
        from midstream.telemetry.exporters.prometheus import PrometheusEndpoint  # noqa: PLC0415 - needs an extra
    except ImportError as exc:
        raise ImportError(
            "the Prometheus endpoint needs an extra: pip install 'midstream[prometheus]'"
        ) from exc
    endpoint = PrometheusEndpoint(
        host,
        port,
        allow_hosts=configuration.allow_hosts,
        service=str(resource.attributes.get("service.name")),
        busy=lambda: len(PROCESS.roster) > 0,
    )
    if not is_loopback(host):
        safe_log(
            logging.WARNING,
            "every machine that can reach this one on %s can read the metrics at %s",
            host,
            endpoint.url,
        )
    return endpoint


def _forked() -> None:
    if _active is not None and not _active.closed:
        _active._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
