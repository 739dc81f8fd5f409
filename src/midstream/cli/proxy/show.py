"""What `midstream proxy` prints: where it is and where it goes, and a line for each freeze."""

from __future__ import annotations

import logging

from midstream._support.http_hosts import url_host
from midstream._support.sanitize import clean
from midstream.proxy.service import ProxySettings
from midstream.setup import Setup


def introduction(settings: ProxySettings, port: int, metrics: Setup) -> str:
    """Return what is printed when it is up."""
    url = f"http://{url_host(settings.host)}:{port}"
    lines = [
        f"Passing on to {settings.upstream.origin}{settings.upstream.prefix}, until Ctrl-C.",
        "",
        url,
        "",
    ]
    monitor = settings.monitor
    if monitor is None:
        lines.append("Nothing is recorded: MIDSTREAM_DISABLED is set.")
    elif monitor.journal is not None:
        lines.append(f"Journal: {clean(str(monitor.journal))}")
    if metrics.prometheus_url is not None:
        lines.append(f"Metrics: {metrics.prometheus_url}")
    lines.append(f"Clients: OPENAI_BASE_URL={url}/v1")
    return "\n".join([*lines, ""])


def log_to_standard_error() -> None:
    """Print the library's own log lines: freezes, and what went wrong."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("midstream")
    logger.addHandler(handler)
    logger.propagate = False
