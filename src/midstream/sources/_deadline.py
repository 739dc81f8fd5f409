"""Ends a connection at a deadline: a timeout begins anew with each byte, and a server may send one at a time."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

if TYPE_CHECKING:
    from urllib3.response import HTTPResponse


def handle_of(number: int) -> socket.socket:
    """Return a handle of our own of the connection with this file number. Raises OSError if there is none."""
    return socket.socket(fileno=os.dup(number))


@contextmanager
def hung_up_at(deadline: float, connection: socket.socket) -> Iterator[None]:
    """Shut the connection down at the deadline, by `time.monotonic`, and in any case close this handle of it.

    Raises requests.Timeout then, whatever came of the reading.
    """

    def hang_up() -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, requests.RequestException) as error:
        if time.monotonic() >= deadline:
            raise requests.Timeout from error
        raise
    finally:
        timer.cancel()
        timer.join()
        connection.close()
    if time.monotonic() >= deadline:
        raise requests.Timeout


class WholeHeadAdapter(HTTPAdapter):
    """Makes the time that a request may wait for a byte the time that it may wait for all headers."""

    def init_poolmanager(self, *args: Any, **keywords: Any) -> None:
        """Make the connections to servers such as these."""
        super().init_poolmanager(*args, **keywords)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


class _Connection(HTTPConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3 has it
        with _head_within(self):
            return super().getresponse()


class _SecureConnection(HTTPSConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3 has it
        with _head_within(self):
            return super().getresponse()


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


@contextmanager
def _head_within(connection: HTTPConnection) -> Iterator[None]:
    seconds = None if connection.sock is None else connection.sock.gettimeout()
    if connection.sock is None or seconds is None:
        yield
        return
    try:
        with hung_up_at(time.monotonic() + seconds, handle_of(connection.sock.fileno())):
            yield
    except requests.Timeout as error:
        raise TimeoutError from error  # which urllib3 knows as one
