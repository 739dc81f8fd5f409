"""The overview without a Grafana: a page of our own that shows the same panels from the same queries."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from midstream.cli.common.http_options import PROMETHEUS_TOKEN, headers_of
from midstream.monitoring.dashboards import Dashboard
from midstream.monitoring.dashboards.fill import filled
from midstream.sources.address import shown, url_of
from midstream.sources.http import Getter, UnreachableError

TIMEOUT_S = 30.0
PATIENCE_S = 5.0
"""How long the one question at the start may hold up the page."""
POINTS = 180


class DashboardPage(ThreadingHTTPServer):
    """Serves one page, and passes the queries of its panels on to a Prometheus: those, and no others.

    Raises ValueError if `url` is none, and OSError if the address to listen on cannot be had.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], url: str, dashboard: Dashboard) -> None:
        self._url = url_of(url)
        self.prometheus = shown(self._url)
        self.dashboard = dashboard
        super().__init__(address, _Handler)

    def trouble(self) -> str | None:
        """Ask Prometheus once, and return what is wrong with it in a sentence; None if it answers."""
        try:
            self._answer_to("query", {"query": "1"}, PATIENCE_S)
        except UnreachableError as error:
            return str(error)
        return None

    def ask(self, panel: int, target: int, start: float, end: float) -> bytes:
        """Evaluate one target over a range. Raises UnreachableError when Prometheus does not answer."""
        step = max(1.0, (end - start) / POINTS)
        expr = filled(self.dashboard.panels[panel].targets[target].expr, interval_s=max(4 * step, 60.0))
        data = {"start": str(start), "end": str(end), "step": str(step), "query": expr}
        return self._answer_to("query_range", data, TIMEOUT_S)

    def _answer_to(self, way: str, data: dict[str, str], timeout_s: float) -> bytes:
        with Getter(headers_of(None, PROMETHEUS_TOKEN), timeout_s) as getter:
            answer = getter.get(f"{self._url}/api/v1/{way}", data)
        if answer.status != 200:
            raise UnreachableError(
                f"it answers {answer.status} to a query{answer.error_suffix}; is the path right?"
            )
        return answer.text.encode()


def described(dashboard: Dashboard) -> dict[str, Any]:
    """Return what the page has to know of a dashboard."""
    return {
        "title": dashboard.title,
        "description": dashboard.description,
        "rows": [
            {
                "title": row.title,
                "panels": [
                    {
                        "title": panel.title,
                        "description": panel.description,
                        "unit": panel.unit,
                        "kind": panel.kind,
                        "width": panel.width,
                        "steps": panel.steps,
                        "stacked": panel.stacked,
                        "targets": [target.legend for target in panel.targets],
                    }
                    for panel in row.panels
                ],
            }
            for row in dashboard.rows
        ],
    }


class _Handler(BaseHTTPRequestHandler):
    server: DashboardPage

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if address.path == "/":
            page = files("midstream.monitoring.dashboards").joinpath("page.html").read_text(encoding="utf-8")
            data = json.dumps(described(self.server.dashboard)).replace("<", "\\u003c")
            self._answer(200, page.replace("/*DASHBOARD*/null", data).encode(), "text/html; charset=utf-8")
        elif address.path == "/query":
            self._query({name: values[0] for name, values in parse_qs(address.query).items()})
        else:
            self._answer(404, b"{}", "application/json")

    def _query(self, given: dict[str, str]) -> None:
        try:
            panel, target = int(given["panel"]), int(given["target"])
            body = self.server.ask(panel, target, float(given["start"]), float(given["end"]))
        except (KeyError, ValueError, IndexError):
            self._answer(400, b'{"error": "panel, target, start and end are numbers"}', "application/json")
        except UnreachableError as error:
            reason = json.dumps({"error": f"{self.server.prometheus} does not answer: {error}"})
            self._answer(502, reason.encode(), "application/json")
        else:
            self._answer(200, body, "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", "default-src 'self' 'unsafe-inline'")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass
