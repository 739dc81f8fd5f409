"""What arrived by OTLP, as Prometheus' own receiver names it by default: the one on Debian is too old to have it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from midstream.telemetry.instruments import METRICS, prometheus_label, prometheus_name

NAMES = {metric.name: prometheus_name(metric) for metric in METRICS}


def text(arrived: dict[str, Any], service: str) -> str:
    """Write every series: `job` is the service's name, whole bounds are without `.0`, there are no scope labels."""
    return "".join(line for metric in arrived.values() for line in _lines(metric, service))


def _lines(metric: Any, service: str) -> Iterator[str]:
    name = NAMES.get(metric.name)
    kind = metric.WhichOneof("data")
    if name is None or kind is None:
        return
    for point in getattr(metric, kind).data_points:
        labels = {prometheus_label(one.key): one.value.string_value for one in point.attributes}
        labels["job"] = service
        if kind != "histogram":
            value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            yield f"{name}{_inside(labels.items())} {value}\n"
            continue
        total = 0
        for bound, count in zip([*point.explicit_bounds, float("inf")], point.bucket_counts, strict=True):
            total += count
            le = "+Inf" if bound == float("inf") else f"{bound:.10f}".rstrip("0").rstrip(".")
            yield f"{name}_bucket{_inside([*labels.items(), ('le', le)])} {total}\n"
        yield f"{name}_sum{_inside(labels.items())} {point.sum}\n"
        yield f"{name}_count{_inside(labels.items())} {point.count}\n"


def _inside(labels: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}"


@contextmanager
def served(page: Callable[[], str]) -> Iterator[str]:
    """Serve the page as it is at each moment, and give the target."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
