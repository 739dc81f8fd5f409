"""What the HTTP libraries have in common: whose request it is, and the observer of its answer.

A request may pass several libraries on its way (an SDK over httpx, httpx over aiohttp). It is followed once, in the
outermost of them that is monitored, which is the one whose caller waits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from opentelemetry import context as otel_context

from midstream._support.internal_errors import report_internal_error
from midstream.attribution.tcp_info import WireClock
from midstream.integrations.http.observer import BodyObserver
from midstream.integrations.http.requests import (
    Exchange,
    error_of_status,
    followed,
    may_stream,
    refused,
)
from midstream.integrations.openai.calls import is_call_in_progress
from midstream.runtime.monitor import Monitor
from midstream.runtime.scope import Clients, opened_inside
from midstream.runtime.stall import ReadEnd
from midstream.stream.errors import error_type_of
from midstream.stream.stalled import LibraryTimeout

clients = Clients()
"""The monitored clients of all HTTP libraries."""


class Sending:
    """A request on its way through one library, until the head of its response is there.

    Tasks that begin meanwhile inherit it with their context: what they send until it is over is sent for it.
    """

    __slots__ = ("active", "monitor", "started")

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.started = monitor.process.clock()
        self.active = True
        """Whether the request is still on its way. Who sends it says when it is not."""

    @property
    def started_at(self) -> float:
        """Unix time at which the request began."""
        process = self.monitor.process
        return process.wall() - (process.clock() - self.started)


_sending: ContextVar[Sending | None] = ContextVar("midstream_http_request", default=None)


def sending(client: Any) -> Sending | None:
    """The request that begins here, if it is to be followed here. The caller ends it."""
    try:
        outer = _sending.get()
        if (outer is not None and outer.active) or is_call_in_progress():
            return None
        monitor = clients.monitor_of(client)
        if monitor is None:
            return None
        request = Sending(monitor)
        _sending.set(request)  # and left there: it means nothing once it is over, and to reset it takes time
        return request  # noqa: TRY300 - what is above may raise as well
    except Exception as exc:  # noqa: BLE001 - the request goes out as it would without us
        report_internal_error("request", exc)
        return None


def observer_for(
    request: Sending,
    exchange: Exchange,
    wire: Callable[[Callable[[], float]], WireClock | None],
    *,
    on_loop: bool,
    stall: Callable[[Monitor], tuple[ReadEnd | None, LibraryTimeout | None]],
    encoded: bool = False,
    retries: int | None = None,
) -> BodyObserver | None:
    """The observer of a response's body; None if the response is no answer to follow.

    `wire` makes the wire clock of the connection. It is not asked for a compressed body, whose bytes are no output.
    `stall` is asked only with a stall timeout: how it ends a read, and what this library raises then.
    """
    if not may_stream(exchange):
        if exchange.status >= 400:
            on_refusal(request, exchange, error_of_status(exchange.status))
        return None
    monitor = request.monitor
    process = monitor.process
    answer = followed(exchange, started=request.started, started_at=request.started_at)
    if answer is None:
        return None
    clock = None if exchange.compressed else wire(process.clock)
    call = replace(answer.call, retries=retries)
    end, library = (None, None) if monitor.stall_limits is None else stall(monitor)
    context = otel_context.get_current()
    tracker = monitor.open(call, context, clock, on_loop=on_loop, end=end, library=library)
    opened_inside()
    return BodyObserver(tracker, answer.read, answer.splitter, encoded=encoded)


def on_refusal(request: Sending, exchange: Exchange, error_type: str) -> None:
    """A request that asked for a stream got none: no record, but an operation, as for a call of the SDK."""
    call = refused(exchange, started=request.started, started_at=request.started_at)
    if call is not None:
        monitor = request.monitor
        took = monitor.process.clock() - request.started
        monitor.refused(call, took, error_type, otel_context.get_current())


def on_failure(request: Sending, exchange: Callable[[], Exchange | None], exc: BaseException) -> None:
    """A request failed before its caller had a response."""
    try:
        failed = exchange()
        if failed is not None:
            error = error_of_status(failed.status) if failed.status >= 400 else error_type_of(exc)
            on_refusal(request, failed, error)
    except Exception as own:  # noqa: BLE001 - the caller gets the error of the request
        report_internal_error("request", own)
