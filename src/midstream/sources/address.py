"""Turns what a user wrote as the address of a server into the URL that is asked, and into one that may be shown."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from midstream._support.sanitize import clean

_LIKE = "write it like http://localhost:8000"


class Written(NamedTuple):
    """What a user wrote, in its parts; `scheme` is empty where they wrote none, `path` has no slash at its end."""

    scheme: str
    netloc: str
    path: str
    host: str

    @property
    def is_near(self) -> bool:
        """Whether the host is in one's own network: only there may a token or a key go in the clear unasked."""
        try:
            return not ipaddress.ip_address(self.host).is_global
        except ValueError:
            near = (".local", ".localhost", ".internal", ".lan", ".svc")
            return "." not in self.host or self.host.endswith(near)


def written(text: str) -> Written:
    """Read an address. Raises ValueError with the remedy."""
    text = text.strip()
    if not text or re.search(r"[\s\x00-\x1f\x7f\\]", text):
        raise ValueError(f"a URL is not empty and holds no spaces; {_LIKE}")
    scheme, separator, _ = text.partition("://")
    if separator and scheme.lower() not in {"http", "https"}:
        raise ValueError(f"only http and https can be asked; {_LIKE}")
    try:
        parts = urlsplit(text if separator else f"//{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(f"its host or port is malformed; {_LIKE}") from None
    if not host.isascii():
        raise ValueError("its host is not ASCII; write it in its xn-- form")
    if not re.fullmatch(r"(?!\.|.*\.\.)[\w.:%-]+", host) or port == 0:
        raise ValueError(f"its host or port is malformed; {_LIKE}")
    if parts.query or parts.fragment:
        raise ValueError("an address has no part after ? or #; leave it out")
    return Written(parts.scheme.lower(), parts.netloc, parts.path.rstrip("/"), host)


def url_of(text: str) -> str:
    """Return the URL, without a slash at its end. Raises ValueError with the remedy.

    Without a scheme it is http within one's own network and https beyond it.
    """
    found = written(text)
    scheme = found.scheme or ("http" if found.is_near else "https")
    return f"{scheme}://{found.netloc}{found.path}"


def shown(url: str) -> str:
    """Return the URL as it may be printed: without a user, a password or a query, and without control characters."""
    return clean(f"{origin(url)}{urlsplit(url).path}")


def origin(url: str) -> str:
    """Return scheme, host and port of the URL, without a user or password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def host_of(url: str) -> str:
    """Return the host of the URL."""
    return urlsplit(url).hostname or ""
