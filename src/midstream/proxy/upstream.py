"""The address of a model server, checked and taken apart. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where requests are sent to."""

    scheme: str
    host: str
    port: int
    prefix: str
    """What is put before the path of each request: empty, or as in `/api`."""

    @property
    def authority(self) -> bytes:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}").encode("ascii")

    @property
    def origin(self) -> str:
        """Scheme and authority, as in `http://vllm:8000`."""
        return f"{self.scheme}://{self.authority.decode()}"

    def target(self, raw_path: bytes, query: bytes) -> bytes:
        """The target of a request, whose path and query are passed on as they came."""
        return self.prefix.encode("ascii") + raw_path + (b"?" + query if query else b"")


def upstream_of(text: str) -> Upstream:
    """Read an address such as `http://vllm:8000`. Raises ValueError with a sentence for the user."""
    address = text.strip()
    try:
        parts = urlsplit(address)
        host, port = (parts.hostname or "").encode("idna").decode() if parts.hostname else "", parts.port
    except (ValueError, UnicodeError):
        raise ValueError(f"{_shown(text)} is not a URL; give one such as http://localhost:8000") from None
    if parts.scheme not in _PORTS or not host:
        raise ValueError(f"{_shown(text)} is not an HTTP address; give one such as http://localhost:8000")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "the address of the upstream holds credentials; clients send their own, leave them out"
        )
    if parts.query or parts.fragment or "?" in address or "#" in address:
        raise ValueError(f"{_shown(text)} has a query or a fragment; give the address without it")
    prefix = parts.path.rstrip("/")
    if not prefix.isascii() or any(sign <= " " for sign in prefix):
        raise ValueError(f"the path of {_shown(text)} holds characters that no URL has; encode them")
    if prefix.endswith("/v1"):
        raise ValueError(
            f"{_shown(text)} ends in /v1, which clients have in their own paths; leave it out: "
            f"{text.strip().rstrip('/').removesuffix('/v1')}"
        )
    return Upstream(parts.scheme, host, port or _PORTS[parts.scheme], prefix)


def _shown(text: str) -> str:
    """The address for a message, without what may be a secret."""
    address = text.strip().partition("?")[0].partition("#")[0]
    scheme, found, rest = address.partition("://")
    return repr(scheme + found + rest.rpartition("@")[2])
