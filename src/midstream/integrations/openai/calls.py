"""A call of the openai SDK from its request to its response."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from opentelemetry import context as otel_context

from midstream._support.internal_errors import report_internal_error
from midstream.integrations.openai.copies import SdkClients
from midstream.integrations.openai.pending import PendingCall, current_owner, keep_pending, observed_by
from midstream.integrations.openai.requests import (
    call_of,
    count_retries,
    from_options,
    server_of,
    with_usage,
)
from midstream.stream.errors import error_type_of

clients = SdkClients()
"""The clients that have a monitor."""
in_progress: ContextVar[PendingCall | None] = ContextVar("midstream_call", default=None)
"""The call that the running code is part of. Tasks and threads that were started in it have a copy: see `_call_by`."""


def on_request(client: Any, args: Any, kwargs: Any) -> tuple[PendingCall | None, Any, Any]:
    """A request begins: the pending call, if it is a stream to be followed, and the arguments to make it with."""
    try:
        if not kwargs.get("stream") or _call_by(client) is not None:
            return None, args, kwargs
        monitor = clients.monitor_of(client)
        if monitor is None:
            return None, args, kwargs
        options = kwargs["options"] if "options" in kwargs else args[1]
        process = monitor.process
        request = from_options(client, options)
        call = call_of(request, started=process.clock(), started_at=process.wall())
        context = otel_context.get_current()
        pending = PendingCall(monitor, call, context, client=id(client), owner=current_owner())
        if monitor.settings.include_usage:
            injected = with_usage(options, request)
            if injected is not None:
                pending.hide_usage = True
                if "options" in kwargs:
                    kwargs = {**kwargs, "options": injected}
                else:
                    args = (args[0], injected, *args[2:])
    except Exception as exc:  # noqa: BLE001 - the caller's request goes out as it would without us
        report_internal_error("request", exc)
        return None, args, kwargs
    return pending, args, kwargs


def on_request_error(pending: PendingCall, exc: BaseException) -> None:
    """The call failed before there was a response to stream."""
    try:
        monitor, call = pending.monitor, pending.call
        took = monitor.process.clock() - (call.started or 0.0)
        monitor.refused(call, took, error_type_of(exc), pending.context)
    except Exception as own:  # noqa: BLE001 - the caller gets the error of the request
        report_internal_error("request", own)


def on_response(client: Any, kwargs: Any) -> None:
    """A response has come for a call that streams. It may be parsed at once, later or never."""
    try:
        if not kwargs.get("stream"):
            return
        response = kwargs["response"]
        pending = _call_by(client) or _unseen_call(client, kwargs["options"], response)
        if pending is not None:
            address, port = server_of(response, pending.call)
            retries = count_retries(response, kwargs.get("retries_taken"))
            pending.call = replace(pending.call, server_address=address, server_port=port, retries=retries)
            keep_pending(response, pending)
    except Exception as exc:  # noqa: BLE001 - the caller gets the response
        report_internal_error("response", exc)


def _unseen_call(client: Any, options: Any, response: Any) -> PendingCall | None:
    """A call whose request was not seen: another instrumentation has restored an older `request()` over ours.

    The HTTP library's request may have been seen. Its stream is then the one to follow, and is left to this call.
    """
    monitor = clients.monitor_of(client)
    if monitor is None:
        return None
    inner, started, started_at = observed_by(response), None, monitor.process.wall()
    if inner is not None:
        started, started_at = inner.session.call.started, inner.session.call.started_at
        inner.withdraw()
    call = call_of(from_options(client, options), started=started, started_at=started_at)
    return PendingCall(monitor, call, otel_context.get_current())


def is_call_in_progress() -> bool:
    """Whether the running code is part of a call of the SDK that is followed here."""
    pending = in_progress.get()
    return pending is not None and pending.is_made_by_running_code()


def _call_by(client: Any) -> PendingCall | None:
    """The call of this client that the running code is part of."""
    pending = in_progress.get()
    return pending if pending is not None and pending.is_made_by(client) else None
