"""What the commands that serve something say about the address that they listen on."""

from __future__ import annotations

import errno
import socket

from midstream._support.http_hosts import is_loopback

__all__ = ["is_loopback", "why_not"]


def why_not(error: OSError, host: str, port: int) -> str:
    """Return the sentence for an address that cannot be had."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; choose another, or leave --port out to get a free one"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges; choose one above 1023, or leave --port out to get a free one"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"{host} is not an address of this machine; leave --host out to listen on 127.0.0.1"
    return f"cannot listen on {host} port {port}: {error.strerror}"
