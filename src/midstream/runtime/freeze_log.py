"""The log lines of freezes: one when the threshold is reached, and one when the freeze ends, with its full length.

Each has the same values as fields of the log record (`extra=`), for structured logs: `midstream_event` (`freeze`,
`thaw`, `end` or `stall_timeout`), `gap_s`, `freeze_after_s`, `phase`, `operation`, `provider`, `request_model`,
`server_address`, `server_port`, `shared`, `response_id`, `trace_id`, `span_id`, `outcome` with `end`, and
`content_chunks` with `stall_timeout`.
"""

from __future__ import annotations

import logging

from midstream._support.internal_errors import safe_log
from midstream._support.sanitize import clean
from midstream.stream.model import Freeze, Outcome


def log_freeze(freeze: Freeze) -> None:
    """Log that a stream has been frozen for as long as the threshold."""
    together = ", like the other streams of this server" if freeze.shared else ""
    _log("freeze", freeze, f"stream froze: no output from %s at %s for %.1f s, in %s{together}%s")


def log_thaw(freeze: Freeze) -> None:
    """Log that output came again, and after how long."""
    _log("thaw", freeze, "stream resumed: output from %s at %s after %.1f s, in %s%s")


def log_end_frozen(freeze: Freeze, outcome: Outcome) -> None:
    """Log that a stream ended while it was frozen, and how long that was."""
    _log(
        "end",
        freeze,
        f"stream ended while frozen ({outcome}): no output from %s at %s for %.1f s, in %s%s",
        outcome=outcome.value,
    )


def log_stalled(freeze: Freeze, content_chunks: int) -> None:
    """Log that the stall timeout ended a stream. `freeze` describes the gap, be it a freeze or not."""
    after = f"after {content_chunks} content chunks" if content_chunks else "and none before"
    _log(
        "stall_timeout",
        freeze,
        f"stream ended by its stall timeout: no output from %s at %s for %.1f s, in %s, {after}%s",
        content_chunks=content_chunks,
    )


def _log(event: str, freeze: Freeze, message: str, **more: object) -> None:
    fields: dict[str, object] = {
        "midstream_event": event,
        "gap_s": freeze.gap_s,
        "freeze_after_s": freeze.freeze_after_s,
        "phase": freeze.phase,
        "operation": freeze.operation,
        "provider": freeze.provider,
        "request_model": freeze.request_model,
        "server_address": freeze.server_address,
        "server_port": freeze.server_port,
        "shared": freeze.shared,
        "response_id": freeze.response_id,
        "trace_id": freeze.trace_id,
        "span_id": freeze.span_id,
        **more,
    }
    safe_log(
        logging.WARNING,
        message,
        clean(freeze.request_model or freeze.response_model or "an unnamed model"),
        clean(_server(freeze.server_address, freeze.server_port)),
        freeze.gap_s,
        freeze.phase,
        _ids(freeze),
        extra=fields,
    )


def _ids(freeze: Freeze) -> str:
    response = f"response {clean(freeze.response_id)}" if freeze.response_id else ""
    trace = f"trace {freeze.trace_id}" if freeze.trace_id else ""
    ids = ", ".join(each for each in (response, trace) if each)
    return f" ({ids})" if ids else ""


def _server(address: str, port: int | None) -> str:
    return address or "an unnamed server" if port is None else f"{address}:{port}"
