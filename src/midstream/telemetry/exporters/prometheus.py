"""The Prometheus endpoint: an HTTP listener of its own, on loopback unless another address is given."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Collection, Iterable

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from midstream._support.http_listener import HttpListener, HttpRequest, HttpResponse
from midstream._support.sanitize import valid_text

PATHS = ("/metrics", "/")


class PrometheusEndpoint:
    """Bound to its port when it is made, so that a taken one is known at once; answers from `start()` on."""

    def __init__(self, host: str, port: int, allow_hosts: Collection[str] = ()) -> None:
        self._registry = _Registry()
        self.reader = PrometheusMetricReader(registry=self._registry)
        try:
            self._listener = HttpListener(
                host, port, self._page, allow_hosts=allow_hosts, name="midstream-prometheus"
            )
        except OSError as exc:
            where = f"the Prometheus endpoint cannot listen on {host}:{port}"
            # `socket.create_server` appends the address to the system's words.
            reason = exc.strerror if exc.errno is None or exc.errno < 0 else os.strerror(exc.errno)
            raise OSError(exc.errno, f"{where}: {reason}; pass prometheus=0 for any free port") from exc
        self.url = f"{self._listener.url}{PATHS[0]}"

    def start(self) -> None:
        """Begin to answer."""
        self._listener.start()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._listener.close()

    def _page(self, request: HttpRequest) -> HttpResponse:
        if request.path not in PATHS:
            return HttpResponse(b"Metrics are at /metrics.\n", "text/plain; charset=utf-8", 404)
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        try:
            body = encode(self._registry)
        except UnicodeEncodeError:  # a lone surrogate in a name that is not midstream's
            body = encode(_Valid(self._registry))
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return HttpResponse(body, content_type)
        return HttpResponse(gzip.compress(body, 5), content_type, headers={"Content-Encoding": "gzip"})


class _Registry(CollectorRegistry):
    """Collects for one scrape at a time: the reader mixes up the samples of two that come together."""

    def __init__(self) -> None:
        super().__init__()
        self._one_at_a_time = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        with self._one_at_a_time:
            return list(super().collect())


class _Valid(CollectorRegistry):
    """What another registry has collected, with valid text for everything that cannot be encoded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for family in self._registry.collect():
            family.documentation = valid_text(family.documentation)
            family.samples = [
                sample._replace(labels={name: valid_text(value) for name, value in sample.labels.items()})
                for sample in family.samples
            ]
            yield family
