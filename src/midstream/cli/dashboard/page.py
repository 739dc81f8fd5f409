"""The overview without Grafana: a page of its own that shows the same panels from the same queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from midstream._support.http_hosts import host_of
from midstream._support.http_listener import HttpListener, HttpRequest, HttpResponse
from midstream.cli.common.http_options import PROMETHEUS_TOKEN, headers_of
from midstream.monitoring.dashboards import Dashboard
from midstream.monitoring.dashboards.fill import filled
from midstream.sources.http import Getter
from midstream.sources.prometheus_api import LATEST, PrometheusApi, PrometheusError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

TIMEOUT_S = 10.0
"""For one query; the page's queries are answered one after the other."""
FIRST_TIMEOUT_S = 5.0
"""How long the query at the start may delay the page."""
POINTS = 180


class DashboardPage:
    """Serves one page, and passes the queries of its panels on to a Prometheus: those, and no others.

    Raises ValueError if `url` is none, and OSError if the address to listen on cannot be had.
    """

    def __init__(
        self, address: tuple[str, int], url: str, dashboard: Dashboard, *, allow_hosts: Sequence[str] = ()
    ) -> None:
        self._headers = headers_of(None, PROMETHEUS_TOKEN)
        self._getter = Getter(self._headers, TIMEOUT_S)
        self._url = url
        self._api = PrometheusApi(url, self._getter)
        self.prometheus = self._api.url
        self.dashboard = dashboard
        self._allowed = tuple(allow_hosts)
        self._listener = HttpListener(
            *address, self._respond, allow_hosts=allow_hosts, name="midstream-dashboard"
        )
        self.server_port = self._listener.port

    def __enter__(self) -> Self:
        self._listener.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self._getter.__exit__(kind, error, trace)

    def problem(self) -> str | None:
        """Ask Prometheus once, and return what is wrong with it in a sentence; None if it answers."""
        with Getter(self._headers, FIRST_TIMEOUT_S) as getter:
            try:
                PrometheusApi(self._url, getter).passed_on("query", {"query": "1"})
            except PrometheusError as error:
                return str(error)
        return None

    def query(self, panel: int, target: int, start: float, end: float) -> str:
        """Evaluate one target over a range. Raises PrometheusError, and ValueError for what is no range."""
        if panel < 0 or target < 0 or not 0 <= start < end <= LATEST:
            raise ValueError("no range")
        step = max(1.0, (end - start) / POINTS)
        expr = filled(self.dashboard.panels[panel].targets[target].expr, interval_s=max(4 * step, 60.0))
        data = {"start": str(start), "end": str(end), "step": str(step), "query": expr}
        return self._api.passed_on("query_range", data)

    def _respond(self, request: HttpRequest) -> HttpResponse:
        if not self._is_own(request):
            return _page(403, '{"error": "pages of other sites are not answered"}')
        if request.path == "/":
            page = files("midstream.monitoring.dashboards").joinpath("page.html").read_text(encoding="utf-8")
            data = json.dumps(described(self.dashboard)).replace("<", "\\u003c")
            return _page(200, page.replace("/*DASHBOARD*/null", data), "text/html; charset=utf-8")
        if request.path != "/query":
            return _page(404, "{}")
        given = {name: values[0] for name, values in parse_qs(request.query).items()}
        try:
            return _page(
                200,
                self.query(
                    int(given["panel"]), int(given["target"]), float(given["start"]), float(given["end"])
                ),
            )
        except (KeyError, ValueError, IndexError, OverflowError):
            return _page(400, '{"error": "panel, target, start and end are numbers"}')
        except PrometheusError as error:
            return _page(502, json.dumps({"error": f"{self.prometheus} does not answer: {error}"}))

    def _is_own(self, request: HttpRequest) -> bool:
        """Whether no page of another site asks."""
        origin = request.headers.get("origin")
        if origin is None:
            return True
        try:
            host = host_of(urlsplit(origin).netloc)
        except ValueError:
            return False
        return host is not None and (
            host == host_of(request.headers.get("host", "")) or host in self._allowed
        )


def _page(status: int, text: str, kind: str = "application/json") -> HttpResponse:
    headers = {"Cache-Control": "no-store", "Content-Security-Policy": "default-src 'self' 'unsafe-inline'"}
    return HttpResponse(text.encode(), kind, status, headers)


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
