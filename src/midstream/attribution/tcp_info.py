"""The wire clock: asks the kernel when a connection last received data, and how much it has received.

Linux keeps both for every TCP connection (`TCP_INFO`), whether the program reads or not. One question is one system
call. Where it cannot be asked, on other systems, over HTTP/2 or without a socket, there is no wire clock: nothing is
guessed.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

if sys.platform != "win32":
    import fcntl
    import termios

# Offsets in Linux's `struct tcp_info` (include/uapi/linux/tcp.h); the last of them is there since Linux 4.6.
_LAST_DATA_RECV = struct.Struct("=I"), 52  # milliseconds
_BYTES_RECEIVED = struct.Struct("=Q"), 128
_DATA_SEGS_IN = struct.Struct("=I"), 152
_SIZE = 160
_TCP_INFO: int = getattr(socket, "TCP_INFO", 0)  # only asked on Linux


class Sample(NamedTuple):
    """What the kernel knew of a connection at one moment."""

    at: float
    """When it was asked, on the monitor's clock, in seconds."""
    last_data_at: float
    """When the last data came in, on the same clock; exact to a few milliseconds."""
    received: int
    """Bytes received so far, on this connection."""
    segments: int
    """Segments with data received so far."""


class WireClock:
    """Samples one connection until it is closed."""

    __slots__ = ("_clock", "_socket")

    def __init__(self, connection: Any, clock: Callable[[], float]) -> None:
        self._socket = connection
        self._clock = clock

    def sample(self) -> Sample | None:
        """Ask the kernel. None once the connection is gone, or if it is not one that TCP knows of."""
        if self._socket is None:
            return None
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _SIZE)
        except (OSError, ValueError, AttributeError, TypeError):
            info = b""
        if len(info) < _SIZE:
            self._socket = None
            return None
        now = self._clock()
        age_ms, received, segments = (form.unpack_from(info, at)[0] for form, at in _FIELDS)
        return Sample(now, now - age_ms / 1000.0, received, segments)

    def unread(self) -> int | None:
        """How many bytes lie in the kernel for the program to read; None if that is not known."""
        buffer = bytearray(4)
        try:
            fcntl.ioctl(self._socket.fileno(), termios.FIONREAD, buffer)
        except (OSError, ValueError, AttributeError, TypeError):
            return None
        return int.from_bytes(buffer, sys.byteorder)

    def close(self) -> None:
        """Let go of the connection."""
        self._socket = None


_FIELDS = (_LAST_DATA_RECV, _BYTES_RECEIVED, _DATA_SEGS_IN)


def wire_clock(response: Any, clock: Callable[[], float]) -> WireClock | None:
    """The wire clock of the connection behind an HTTP response, or None where it cannot be read."""
    if sys.platform != "linux":
        return None
    headers = getattr(response, "headers", None) or {}
    return wire_clock_of(connection_of(response), clock, headers)


def connection_of(response: Any) -> Any:
    """The socket that serves this HTTP response and no other at the same time; None where it is not known."""
    extensions = getattr(response, "extensions", None)
    if not isinstance(extensions, dict):
        return None
    if extensions.get("http_version") not in {b"HTTP/1.1", b"HTTP/1.0"}:
        return None  # several HTTP/2 streams share one connection: its clock would be everybody's
    ask = getattr(extensions.get("network_stream"), "get_extra_info", None)
    return ask("socket") if callable(ask) else None


def wire_clock_of(
    connection: Any, clock: Callable[[], float], headers: Mapping[str, str] = MappingProxyType({})
) -> WireClock | None:
    """The wire clock of this socket, or None where it cannot be read. `headers` are those of the response."""
    if sys.platform != "linux" or connection is None or not hasattr(connection, "getsockopt"):
        return None
    if _is_encoded(headers):
        return None  # how many bytes a chunk has is then up to the compression
    wire = WireClock(connection, clock)
    sample = wire.sample()
    # A response has come, so something was received. Some kernels, as that of gVisor, fill in zeros.
    return wire if sample is not None and sample.received > 0 and sample.segments > 0 else None


def _is_encoded(headers: Mapping[str, str]) -> bool:
    """Whether the bytes of the body are compressed on the connection."""
    encodings = f"{headers.get('content-encoding') or ''},{headers.get('transfer-encoding') or ''}"
    return any(one.strip().lower() not in {"", "identity", "chunked"} for one in encodings.split(","))
