"""Hosts in URLs and in the `Host` header: which are this machine alone, and how each is written."""

from __future__ import annotations

import ipaddress


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
