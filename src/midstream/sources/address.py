"""Turns what a user wrote as the address of a server into the URL that is asked, and into one that may be shown."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit


def url_of(written: str) -> str:
    """Return the URL, without a slash at its end. Raises ValueError with the remedy.

    Without a scheme it is http within one's own network and https beyond it: a token must not cross the internet in
    the clear unless the user wrote so.
    """
    text = written.strip()
    like = "write it like http://localhost:8000"
    if not text or re.search(r"[\s\x00-\x1f\x7f\\]", text):
        raise ValueError(f"a URL is not empty and holds no spaces; {like}")
    scheme, separator, _ = text.partition("://")
    if separator and scheme.lower() not in {"http", "https"}:
        raise ValueError(f"only http and https can be asked; {like}")
    try:
        parts = urlsplit(text if separator else f"//{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(f"its host or port is malformed; {like}") from None
    if not re.fullmatch(r"(?!\.|.*\.\.)[\w.:%-]+", host) or port == 0:
        raise ValueError(f"its host or port is malformed; {like}")
    if parts.query or parts.fragment:
        raise ValueError("an address has no part after ? or #; leave it out")
    scheme = parts.scheme.lower() or ("http" if _is_near(host) else "https")
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def shown(url: str) -> str:
    """Return the URL as it may be printed: without a user, a password or a query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def origin(url: str) -> str:
    """Return scheme, host and port of the URL, without a user or password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _is_near(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".localhost", ".internal", ".lan", ".svc"))
