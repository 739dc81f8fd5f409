"""Turns what a user wrote as a server's address into the base URLs to try."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

_ENDPOINT = re.compile(r"/(chat/completions|completions|responses|models)$")
_HOST = re.compile(r"(?!\.|.*\.\.)[\w.:%-]+")
_LIKE = "write it like http://localhost:8000"


def base_urls(written: str) -> tuple[str, ...]:
    """Return the base URLs that may be meant, the likeliest first. Raises ValueError with the remedy.

    Without a scheme, only a host of one's own network is tried without TLS: a key must not cross the internet
    in the clear unless the user wrote so.
    """
    text = written.strip()
    scheme, netloc, path, host = _split(text)
    path = _ENDPOINT.sub("", path.rstrip("/"))
    if not path:
        paths = ("/v1", "")
    elif path.endswith("/v1"):
        paths = (path, path.removesuffix("/v1"))
    else:
        paths = (path, f"{path}/v1")
    if scheme:
        schemes: tuple[str, ...] = (scheme,)
    else:
        schemes = ("http", "https") if _is_near(host) else ("https",)
    return tuple(f"{scheme}://{netloc}{path}" for scheme in schemes for path in paths)


def shown(url: str) -> str:
    """Return the URL as it may be printed: without a user or password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def origin(url: str) -> str:
    """Return scheme, host and port of the URL."""
    return shown(url).removesuffix(urlsplit(url).path)


def host_of(url: str) -> str:
    """Return the host of the URL."""
    return urlsplit(url).hostname or ""


def _split(text: str) -> tuple[str, str, str, str]:
    if not text or re.search(r"[\s\x00-\x1f\x7f\\]", text):
        raise ValueError(f"a URL is not empty and holds no spaces; {_LIKE}")
    scheme, separator, _ = text.partition("://")
    if separator and scheme.lower() not in {"http", "https"}:
        raise ValueError(f"only http and https can be probed; {_LIKE}")
    try:
        parts = urlsplit(text if separator else f"//{text}")
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        raise ValueError(f"its host or port is malformed; {_LIKE}") from None
    if not host.isascii():
        raise ValueError("its host is not ASCII; write it in its xn-- form")
    if port == 0 or not _HOST.fullmatch(host):
        raise ValueError(f"its host or port is malformed; {_LIKE}")
    if parts.query or parts.fragment:
        raise ValueError("a base URL has no part after ? or #; leave it out")
    return parts.scheme.lower(), parts.netloc, parts.path, host


def _is_near(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".localhost", ".internal", ".lan"))
