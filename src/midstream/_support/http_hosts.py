"""Hosts in URLs and in the `Host` header: which are this machine alone, and how each is written."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on that host: `localhost`, 127.0.0.0/8, ::1."""
    host = host.lower().rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def host_of(header: str) -> str | None:
    """The host in a `Host` header, in lower case and without its port; None if it is not one."""
    host, port = header, ""
    if header.startswith("["):
        host, bracket, rest = header[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return None
        port = rest[1:]
    elif ":" in header:
        host, _, port = header.partition(":")
    if not host or (port and not (port.isascii() and port.isdecimal())):
        return None
    return host.lower().rstrip(".")


def url_host(host: str) -> str:
    """A listening address as a client on this machine writes it in a URL."""
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - only recognised here
        return "localhost"
    return f"[{host}]" if ":" in host else host


class AllowedHosts:
    """Which `Host` and `Origin` headers a server answers.

    On a loopback address: loopback names, its own, and `allow_hosts` (`"*"`: any), so that neither a web page whose
    name was rebound to 127.0.0.1 nor a script of another site can use it. On another address any name, unless
    `allow_hosts` says which; pages of other sites only with `any_origin`.
    """

    def __init__(self, host: str, allow_hosts: Collection[str] = (), *, any_origin: bool = False) -> None:
        self._allowed = {name.lower().rstrip(".") for name in allow_hosts} | {host.lower()}
        self._any_host = "*" in self._allowed or not (is_loopback(host) or allow_hosts)
        self._any_origin = any_origin and self._any_host

    def refusal(self, header: str | None, origin: str | None) -> str | None:
        """Return why a request with these headers is not answered; None if it is."""
        host = host_of("localhost" if header is None else header)
        if not self._is_allowed(host):
            return "This host name is not answered here; see --allow-host."
        if origin is None or self._any_origin:
            return None
        try:
            page = host_of(urlsplit(origin).netloc)
        except ValueError:
            page = None
        if page is not None and (page == host or (not self._any_host and self._is_allowed(page))):
            return None
        return "Pages of other sites are not answered here; see --allow-host."

    def _is_allowed(self, host: str | None) -> bool:
        return self._any_host or (host is not None and (host in self._allowed or is_loopback(host)))
