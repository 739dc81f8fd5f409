"""The Prometheus endpoint: one page for a process, or for all workers of its service.

The worker that has the port serves the page. The others leave their metrics in files (`worker_files`), as soon as they
are idle, every second while streams are open, and when they end; each tries to take the port when it is free again.
"""

from __future__ import annotations

import errno
import gzip
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from http.client import HTTPConnection, HTTPException
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from midstream._support.http_hosts import url_host
from midstream._support.http_listener import HttpListener, HttpRequest, HttpResponse
from midstream._support.internal_errors import Guard, safe_log
from midstream._support.sanitize import valid_text
from midstream.telemetry.exporters.aggregation import from_json, merged, to_json
from midstream.telemetry.exporters.process_tree import own_id, service_root
from midstream.telemetry.exporters.worker_files import WorkerFiles

_CAN_SHARE = hasattr(os, "fork")
"""Whether the system has users and processes as `worker_files` needs them."""
PATHS = ("/metrics", "/")
SERVICE_HEADER = "X-Midstream-Service"
"""Tells a worker of the same service from another program that has the port."""
TICK_S = 1.0
"""How often a worker writes its metrics while streams are open, and tries to take the port."""
QUIET_TICK_S = 15.0
"""How often it writes them otherwise, for instruments that are not midstream's."""
LEAST_TICK_S = 0.05
MOST_SHARE = 0.05
"""Of its time, what a worker may spend with writing."""
WARN_AFTER_S = 10.0
"""How long a worker waits for the port before it warns: workers that are replaced have it a moment longer."""


class PrometheusEndpoint:
    """Bound to its port when it is made, so that a taken one is known at once; answers from `start()` on.

    A worker whose port is taken does not fail, since the one that has it serves its metrics as well.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        allow_hosts: Collection[str] = (),
        service: str = "",
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._host = host
        self._allow_hosts = allow_hosts
        self._busy = busy
        self._sharing = threading.Lock()
        self._listener: HttpListener | None = None
        self._thread: threading.Thread | None = None
        root = service_root() if port else own_id()
        self._files = WorkerFiles(root, f"{host} {port} {service}") if port and _CAN_SHARE else None
        self._is_worker = root != own_id()
        if self._is_worker and self._files is not None:
            self._files.make()  # before the port is taken: the process above must know whose it is
        try:
            self._listener = self._bound(port)
        except OSError as exc:
            self._is_worker = self._is_worker or self._shared()
            if not (self._is_worker and exc.errno == errno.EADDRINUSE):
                where = f"the Prometheus endpoint cannot listen on {host}:{port}"
                # `socket.create_server` appends the address to the system's words.
                reason = exc.strerror if exc.errno is None or exc.errno < 0 else os.strerror(exc.errno)
                raise OSError(exc.errno, f"{where}: {reason}; pass prometheus=0 for any free port") from exc
        self._port = port if self._listener is None else self._listener.port
        if self._files is None and _CAN_SHARE:  # a port of its own, which its children share
            self._files = WorkerFiles(root, f"{host} {self._port} {service}")
        self.url = f"http://{url_host(host)}:{self._port}{PATHS[0]}"
        self._start_over()

    def start(self) -> None:
        """Begin to answer, and in a worker to share."""
        self._started = True
        if self._listener is not None:
            self._listener.start()
        if self._is_worker:
            self.wake()

    def wake(self) -> None:
        """Share the metrics soon, if there is anything to share them with. Does not wait."""
        self._due.set()
        if (
            self._thread is None
            and self._started
            and not self._closed.is_set()
            and (self._is_worker or self._shared())
        ):
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="midstream-workers", daemon=True)
                    self._thread = thread
                    thread.start()

    def finish(self) -> None:
        """Share what was recorded until now: the process ends."""
        with self._guard:
            if self._started and (self._is_worker or self._shared()):
                self._closed.set()
                self._due.set()
                self._write()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._closed.set()
        self._due.set()
        if self._listener is not None:
            self._listener.close()

    def forked(self) -> None:
        """Start over in a forked child: what was counted is the parent's, and so is the port."""
        if self._listener is not None:
            self._listener.release()
            self._listener = None
        self._is_worker = True
        if self._files is not None:
            self._files.forked()
        self._start_over()

    def _start_over(self) -> None:
        self._registry = _Registry()
        self.reader = PrometheusMetricReader(registry=self._registry)
        self._guard = Guard("sharing of metrics among workers")
        self._started = False
        self._due = threading.Event()
        self._closed = threading.Event()
        self._starting = threading.Lock()
        self._sharing = threading.Lock()
        self._thread = None

    def _bound(self, port: int) -> HttpListener:
        return HttpListener(
            self._host, port, self._page, allow_hosts=self._allow_hosts, name="midstream-prometheus"
        )

    # The page

    def _page(self, request: HttpRequest) -> HttpResponse:
        if request.path not in PATHS:
            return HttpResponse(b"Metrics are at /metrics.\n", "text/plain; charset=utf-8", 404)
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        families = self._families()
        try:
            body = encode(_Collected(families))
        except UnicodeEncodeError:  # a lone surrogate in a name that is not midstream's
            body = encode(_Collected(_valid(families)))
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return HttpResponse(body, content_type, headers={SERVICE_HEADER: self._mark})
        headers = {"Content-Encoding": "gzip", SERVICE_HEADER: self._mark}
        return HttpResponse(gzip.compress(body, 5), content_type, headers=headers)

    def _families(self) -> list[Metric]:
        if self._guard.ok and self._shared():
            with self._guard:
                return self._all_workers()
        return list(self._registry.collect())

    def _all_workers(self) -> list[Metric]:
        with self._sharing:
            own = list(self._registry.collect())
            # First of all: what was on a page must not be missing from later ones, whatever becomes of this process.
            if self._files is None or not self._files.write(to_json(own)):
                return own
            with self._files.locked() as alone:
                running, kept = self._added_up(self._files, keep=alone)
        return merged([own, *(from_json(each) for each in running), kept])

    @staticmethod
    def _added_up(files: WorkerFiles, *, keep: bool) -> tuple[list[Any], list[Metric]]:
        """What the running workers wrote, and the totals of those that have ended, which are kept in one file.

        `keep`: False while another worker may be adding them up, since the later of the two would undo the first.
        """
        running, ended, totals = files.read()
        kept = from_json(totals["families"])
        if ended:
            added = merged([kept, *(from_json(each) for _, each in ended)])
            kept = from_json(to_json(added, totals_only=True))
            if keep:
                files.keep_totals([name for name, _ in ended], to_json(kept))
        return running, kept

    # The sharing

    def _shared(self) -> bool:
        return self._files is not None and self._files.exist()

    def _write(self) -> None:
        if self._files is not None:
            with (
                self._sharing
            ):  # collected in here: no thread may replace what was written by what it saw before
                self._files.write(to_json(self._registry.collect()))

    def _run(self) -> None:
        began, wrote, pause_s = time.monotonic(), float("-inf"), LEAST_TICK_S
        warned, added_up = False, float("-inf")
        while not self._closed.is_set():
            try:
                self._take_port()
            except OSError as exc:
                if not warned and time.monotonic() - began > WARN_AFTER_S:
                    warned = True
                    if not self._is_served():
                        safe_log(logging.WARNING, "metrics cannot be served at %s: %s", self.url, exc)
            now = time.monotonic()
            if self._guard.ok and (self._due.is_set() or self._busy() or now - wrote >= QUIET_TICK_S):
                self._due.clear()
                with self._guard:
                    # Without scrapes the files of ended workers would pile up.
                    if now - added_up >= QUIET_TICK_S:
                        added_up = now
                        self._all_workers()
                    else:
                        self._write()
                wrote = time.monotonic()
                pause_s = max(LEAST_TICK_S, (wrote - now) / MOST_SHARE)
            if not self._closed.wait(pause_s):
                self._due.wait(max(0.0, TICK_S - pause_s))

    def _is_served(self) -> bool:
        """Whether what has the port is a worker of this service."""
        connection = HTTPConnection(url_host(self._host).strip("[]"), self._port, timeout=TICK_S)
        try:
            connection.request("HEAD", PATHS[0])
            return connection.getresponse().getheader(SERVICE_HEADER) == self._mark
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    @property
    def _mark(self) -> str:
        return "" if self._files is None else self._files.mark

    def _take_port(self) -> None:
        if self._listener is not None or self._closed.is_set():
            return
        listener = self._bound(self._port)
        self._listener = listener
        listener.start()


class _Registry(CollectorRegistry):
    """Collects for one scrape at a time: the reader mixes up the samples of two that come together."""

    def __init__(self) -> None:
        super().__init__()
        self._one_at_a_time = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        with self._one_at_a_time:
            return list(super().collect())


class _Collected(CollectorRegistry):
    """A registry of what was collected already, for an encoder."""

    def __init__(self, families: list[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _valid(families: Iterable[Metric]) -> list[Metric]:
    """The same with valid text for everything that cannot be encoded."""
    valid = []
    for family in families:
        copied = Metric(family.name, valid_text(family.documentation), family.type)
        copied.samples = [
            sample._replace(labels={name: valid_text(value) for name, value in sample.labels.items()})
            for sample in family.samples
        ]
        valid.append(copied)
    return valid
