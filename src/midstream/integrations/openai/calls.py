"""A call of the openai SDK from its request to its response: whose it is, what it asks for, who answered."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from opentelemetry import context as otel_context

from midstream._support.internal_errors import report_internal_error
from midstream.integrations.openai.requests import call_of, count_retries, server_of, with_usage
from midstream.integrations.openai.streams import Asked, answers, current_span
from midstream.runtime.scope import Clients
from midstream.stream.errors import error_type_of

clients = Clients()
in_progress: ContextVar[Asked | None] = ContextVar("midstream_call", default=None)
"""The call that the code at work is making."""


def ask(client: Any, args: Any, kwargs: Any) -> tuple[Asked | None, Any, Any]:
    """The call that begins here, if it streams and is ours to follow, and its arguments."""
    try:
        if not kwargs.get("stream") or _asked_by(client) is not None:
            return None, args, kwargs
        monitor = clients.monitor_of(client)
        if monitor is None:
            return None, args, kwargs
        options = kwargs["options"] if "options" in kwargs else args[1]
        process = monitor.process
        call = call_of(
            client, options, started=process.clock(), started_at=process.wall(), span=current_span()
        )
        asked = Asked(monitor, call, otel_context.get_current(), client=id(client))
        if monitor.settings.include_usage:
            injected = with_usage(options, call.operation)
            if injected is not None:
                asked.hide_usage = True
                if "options" in kwargs:
                    kwargs = {**kwargs, "options": injected}
                else:
                    args = (args[0], injected, *args[2:])
    except Exception as exc:  # noqa: BLE001 - the caller's request goes out as it would without us
        report_internal_error("request", exc)
        return None, args, kwargs
    return asked, args, kwargs


def refuse(asked: Asked, exc: BaseException) -> None:
    """The call failed before there was a response to stream."""
    try:
        monitor, call = asked.monitor, asked.call
        took = monitor.process.clock() - (call.started or 0.0)
        monitor.refused(call, took, error_type_of(exc), asked.context)
    except Exception as own:  # noqa: BLE001
        report_internal_error("request", own)


def answer(client: Any, kwargs: Any) -> None:
    """A response has come for a call that streams: it may be parsed at once, later or never."""
    try:
        if not kwargs.get("stream"):
            return
        asked = _asked_by(client) or _unasked(client, kwargs["options"])
        if asked is not None:
            response = kwargs["response"]
            address, port = server_of(response, asked.call)
            retries = count_retries(response, kwargs.get("retries_taken"))
            asked.call = replace(asked.call, server_address=address, server_port=port, retries=retries)
            answers[response] = asked
    except Exception as exc:  # noqa: BLE001
        report_internal_error("response", exc)


def _unasked(client: Any, options: Any) -> Asked | None:
    """A call whose beginning was not seen: somebody has put back an older `request()` over ours."""
    monitor = clients.monitor_of(client)
    if monitor is None:
        return None
    call = call_of(client, options, started=None, started_at=monitor.process.wall(), span=current_span())
    return Asked(monitor, call, otel_context.get_current())


def _asked_by(client: Any) -> Asked | None:
    asked = in_progress.get()
    return asked if asked is not None and asked.client == id(client) else None
