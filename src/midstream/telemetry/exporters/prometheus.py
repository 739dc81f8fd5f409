"""The Prometheus endpoint: an HTTP server of its own, on loopback unless told otherwise."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric


class Endpoint:
    """Bound to its port at once, so that a taken one is known at once; answers from `start()` on."""

    def __init__(self, host: str, port: int) -> None:
        registry = _Registry()
        self.reader = PrometheusMetricReader(registry=registry)
        server = _Server6 if ":" in host else _Server
        try:
            self._server = make_server(
                host, port, make_wsgi_app(registry), server_class=server, handler_class=_Silent
            )
        except OSError as exc:
            where = f"the Prometheus endpoint cannot listen on {host}:{port}"
            raise OSError(exc.errno, f"{where}: {exc.strerror}; pass prometheus=0 for any free port") from exc
        self.url = f"http://{_reachable(host)}:{self._server.server_port}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(0.1,),  # how often it looks whether it is to end: so long does `close()` take at most
            name="midstream-prometheus",
            daemon=True,
        )

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class _Registry(CollectorRegistry):
    """Collects for one scrape at a time: the reader mixes up the samples of two that come together."""

    def __init__(self) -> None:
        super().__init__()
        self._one_at_a_time = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        with self._one_at_a_time:
            return list(super().collect())


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the base class
        pass


def _reachable(host: str) -> str:
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - only recognised here
        return "localhost"
    return f"[{host}]" if ":" in host else host
