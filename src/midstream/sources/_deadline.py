"""Ends whatever a connection is doing at a deadline.

A timeout begins anew with each byte, and a server may send one at a time: in its TLS handshake, its headers, its body.
So the connection itself is shut down when the time is over, by a timer.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class DeadlineAdapter(HTTPAdapter):
    """Connects to servers, and keeps a handle of the newest connection to shut it down. For one request at a time."""

    def __init__(self) -> None:
        self._handle: socket.socket | None = None
        self._lock = threading.Lock()
        self._over = False
        super().__init__()

    def init_poolmanager(self, *args: Any, **keywords: Any) -> None:
        """Have every new connection reported to `_opened`."""
        super().init_poolmanager(*args, **keywords)
        self.poolmanager.pool_classes_by_scheme = _pools(self._opened)

    def proxy_manager_for(self, *args: Any, **keywords: Any) -> Any:
        """Have every new connection to a proxy reported, too."""
        manager = super().proxy_manager_for(*args, **keywords)
        manager.pool_classes_by_scheme = _pools(self._opened)
        return manager

    @contextmanager
    def until(self, deadline: float) -> Iterator[None]:
        """Shut the connection down at the deadline, by `time.monotonic`. Raises requests.Timeout then, and after it."""
        self._over = False
        timer = threading.Timer(max(0.0, deadline - time.monotonic()), self._hang_up)
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
        if time.monotonic() >= deadline:
            raise requests.Timeout

    def close(self) -> None:
        """Close every connection."""
        super().close()
        self._keep(None)

    def _opened(self, connection: socket.socket) -> None:
        self._keep(socket.socket(fileno=os.dup(connection.fileno())))
        if self._over:
            self._hang_up()

    def _keep(self, handle: socket.socket | None) -> None:
        with self._lock:
            before, self._handle = self._handle, handle
        if before is not None:
            before.close()

    def _hang_up(self) -> None:
        with self._lock, suppress(OSError):
            self._over = True
            if self._handle is not None:
                self._handle.shutdown(socket.SHUT_RDWR)


def _pools(opened: Callable[[socket.socket], None]) -> dict[str, type]:
    """Make the classes of connections that report each socket as soon as it is connected."""

    class WatchedConnection(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            connection = super()._new_conn()
            opened(connection)
            return connection

    class WatchedTlsConnection(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            connection = super()._new_conn()
            opened(connection)
            return connection

    class WatchedPool(HTTPConnectionPool):
        ConnectionCls = WatchedConnection

    class WatchedTlsPool(HTTPSConnectionPool):
        ConnectionCls = WatchedTlsConnection

    return {"http": WatchedPool, "https": WatchedTlsPool}
