"""The destinations of metrics: from the arguments of `setup()`, then from the standard `OTEL_*` variables, checked."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast
from urllib.parse import urlsplit

Protocol: TypeAlias = Literal["grpc", "http/protobuf"]

EXPORT_INTERVAL_S = 15.0
"""Shorter than OTel's own 60 s: a freeze is exported before its process may be killed."""
SHUTDOWN_TIMEOUT_S = 2.0

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HOST = "OTEL_EXPORTER_PROMETHEUS_HOST"
_PORT = "OTEL_EXPORTER_PROMETHEUS_PORT"
_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_EXPORTERS = "OTEL_METRICS_EXPORTER"


@dataclass(frozen=True, slots=True)
class ExportConfiguration:
    """The destinations of metrics. There may be none: the environment can switch them off."""

    protocol: Protocol | None
    """The protocol of OTLP; None for no OTLP."""
    target: str
    """Host and port that OTLP goes to, for messages: without user, path or query."""
    listen: tuple[str, int] | None
    """Host and port of the Prometheus endpoint; port 0 is any free one."""
    service_name: str | None
    export_interval_s: float
    shutdown_timeout_s: float
    allow_hosts: tuple[str, ...] = ()
    """Host names that the Prometheus endpoint answers beside this machine's own."""


def export_configuration(
    environ: Mapping[str, str],
    *,
    otlp: bool | None = None,
    prometheus: int | bool | None = None,
    host: str | None = None,
    service_name: str | None = None,
    export_interval_s: float | None = None,
    shutdown_timeout_s: float = SHUTDOWN_TIMEOUT_S,
    allow_hosts: Collection[str] = (),
) -> ExportConfiguration:
    """Decide where metrics go. Raises ValueError or TypeError naming the value and the remedy."""
    if otlp is not None and not isinstance(otlp, bool):
        raise TypeError(f"otlp must be True, False or None, got {otlp!r}; set its address in {_ENDPOINTS[1]}")
    if service_name == "":
        raise ValueError("service_name must not be empty; leave it out to be named by OTEL_SERVICE_NAME")
    asked = _asked(environ)
    if otlp is None:
        otlp = "otlp" in asked
    if prometheus is None:
        prometheus = "prometheus" in asked or not (otlp or "none" in asked)
    elif prometheus is False and not (otlp or "none" in asked):
        raise ValueError(f"nowhere to send metrics: set {_ENDPOINTS[1]} or pass otlp=True or prometheus=True")
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        otlp = prometheus = False
    port = _port(environ, prometheus)
    protocol, target = _otlp(environ) if otlp else (None, "")
    return ExportConfiguration(
        protocol=protocol,
        target=target,
        listen=None if port is None else (host or _first(environ, _HOST) or "127.0.0.1", port),
        service_name=service_name,
        export_interval_s=_interval(environ, export_interval_s),
        shutdown_timeout_s=_seconds("shutdown_timeout_s", shutdown_timeout_s),
        allow_hosts=_hosts(allow_hosts),
    )


def _asked(environ: Mapping[str, str]) -> set[str]:
    words = {word.strip() for word in _first(environ, _EXPORTERS).split(",")} - {""}
    if not words <= {"otlp", "prometheus", "none"}:
        raise ValueError(f"{_EXPORTERS} may name otlp, prometheus or none here, got {environ[_EXPORTERS]!r}")
    return words or ({"otlp"} if _first(environ, *_ENDPOINTS) else set())


def _port(environ: Mapping[str, str], asked: int | bool) -> int | None:
    if asked is False:
        return None
    name, port = "prometheus", asked
    if asked is True:
        name, text = _PORT, _first(environ, _PORT) or "9464"
        if not text.isdecimal():
            raise ValueError(f"{_PORT} must be a port number, got {text!r}")
        port = int(text)
    if not isinstance(port, int):
        raise TypeError(f"prometheus must be True, False or a port number, got {port!r}")
    if not 0 <= port <= 65535:
        raise ValueError(f"{name} must be a port from 1 to 65535, or 0 for any free one, got {port}")
    return port


def _otlp(environ: Mapping[str, str]) -> tuple[Protocol, str]:
    endpoint = _first(environ, *_ENDPOINTS)
    # Without a scheme, as gRPC allows, the host would be taken for a path.
    parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    # What follows an @ anywhere: a password with a slash in it, which it must not have, ends the host for `urlsplit`.
    target = urlsplit(f"//{endpoint.rpartition('@')[2]}").netloc if "@" in endpoint else parts.netloc
    # 4318 is the registered port of OTLP over HTTP; to speak gRPC there is the commonest mistake of all.
    protocol = _first(environ, *_PROTOCOLS) or ("http/protobuf" if target.endswith(":4318") else "grpc")
    if protocol not in {"grpc", "http/protobuf"}:
        raise ValueError(f"{_PROTOCOLS[1]} must be grpc or http/protobuf, got {protocol!r}")
    if endpoint and protocol != "grpc" and parts.scheme not in {"http", "https"}:
        raise ValueError(f"{_ENDPOINTS[1]} must begin with http:// or https://, got {target!r}")
    default = "localhost:4317" if protocol == "grpc" else "localhost:4318"
    return cast("Protocol", protocol), target or default


def _hosts(asked: Collection[str]) -> tuple[str, ...]:
    if isinstance(asked, str) or not all(asked):
        raise TypeError(f"allow_hosts must be a list of host names, got {asked!r}")
    return tuple(asked)


def _interval(environ: Mapping[str, str], asked: float | None) -> float:
    text = _first(environ, _INTERVAL)
    if asked is not None or not text:
        return _seconds("export_interval_s", EXPORT_INTERVAL_S if asked is None else asked)
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{_INTERVAL} must be a positive number of milliseconds, got {text!r}")
    return int(text) / 1000


def _seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, got {value!r}")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number of seconds, got {value!r}")
    return float(value)


def _first(environ: Mapping[str, str], *names: str) -> str:
    """Return the first of these variables that is set; OTel takes an empty one for unset."""
    return next((value for name in names if (value := environ.get(name, "").strip())), "")
