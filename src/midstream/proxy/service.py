"""The proxy in one process: its monitor, its application and its server, made of settings."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from midstream._support.http_hosts import AllowedHosts
from midstream.proxy.application import ProxyApplication
from midstream.proxy.attributes import MonitorChoice
from midstream.proxy.connections import Connections
from midstream.proxy.routes import Routes
from midstream.proxy.server import ProxyServer
from midstream.runtime.settings import Settings

HEAD_S = 600.0
"""How long an upstream may take to begin an answer: as long as the openai SDKs wait."""
DRAIN_S = 30.0


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """What the proxy does. Times are in seconds."""

    routes: Routes
    host: str = "127.0.0.1"
    allow_hosts: Collection[str] = ()
    monitor: Settings | None = field(default_factory=Settings)
    """None: nothing is recorded."""
    head_s: float | None = HEAD_S
    drain_s: float = DRAIN_S
    keep_alive_s: float | None = None
    attribute_headers: Mapping[str, str] = field(default_factory=dict)
    """From names of headers to names of attributes."""


def proxy_server(settings: ProxySettings, *, takes_signals: bool = True) -> ProxyServer:
    """Return the server of these settings, whose metrics go to the global meter provider."""
    monitors = (
        None if settings.monitor is None else MonitorChoice(settings.monitor, settings.attribute_headers)
    )
    connections = Connections(head_s=settings.head_s)
    hosts = AllowedHosts(settings.host, settings.allow_hosts, any_origin=True)
    application = ProxyApplication(
        settings.routes, connections, hosts, monitors, keep_alive_s=settings.keep_alive_s
    )
    return ProxyServer(application, connections, drain_s=settings.drain_s, takes_signals=takes_signals)


def run(settings: ProxySettings, listener: socket.socket) -> int | None:
    """Serve on this socket until a signal ends it, and return the signal."""
    server = proxy_server(settings)
    server.run_on(listener)
    return server.ended_by
