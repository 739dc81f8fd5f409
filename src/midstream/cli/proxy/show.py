"""What `midstream proxy` prints: where it is and where it goes, and a line for each freeze."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from midstream._support.http_hosts import url_host
from midstream._support.sanitize import clean
from midstream.proxy.routes import Routes
from midstream.proxy.service import ProxySettings
from midstream.proxy.upstream import Upstream
from midstream.setup import Setup


def introduction(settings: ProxySettings, port: int, metrics: Setup, workers: int) -> str:
    """Return what is printed when it is up."""
    url = f"http://{url_host(settings.host)}:{port}"
    lines = [*_destinations(settings.routes), "", url, ""]
    monitor = settings.monitor
    if monitor is None:
        lines.append("Nothing is recorded: MIDSTREAM_DISABLED is set.")
    elif monitor.journal is not None:
        lines.append(f"Journal: {clean(str(monitor.journal))}")
    if workers > 1:
        lines.append(f"Workers: {workers} processes")
    if metrics.prometheus_url is not None:
        lines.append(f"Metrics: {metrics.prometheus_url}")
    lines.append(f"Clients: OPENAI_BASE_URL={url}/v1")
    return "\n".join([*lines, ""])


def _destinations(routes: Routes) -> Iterator[str]:
    for route in routes.routes:
        what = route.path if route.path is not None else f"models {', '.join(map(clean, route.models))}"
        yield f"{route.name}: {what} to {_shown(route.upstream)}"
    if routes.fallback is None:
        yield "Everything else is refused, until Ctrl-C."
    elif routes.routes:
        yield f"Everything else to {_shown(routes.fallback)}, until Ctrl-C."
    else:
        yield f"Passing on to {_shown(routes.fallback)}, until Ctrl-C."


def _shown(upstream: Upstream) -> str:
    return f"{upstream.origin}{upstream.prefix}"


def log_to_standard_error() -> None:
    """Print the library's own log lines: freezes, and what went wrong."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("midstream")
    logger.addHandler(handler)
    logger.propagate = False
