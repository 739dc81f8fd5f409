"""The caller's trace context, as OpenTelemetry has it."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.trace import format_span_id, format_trace_id


def current_trace_ids() -> tuple[str | None, str | None]:
    """Trace id and span id of the span that is current now, as hexadecimal text; None and None if there is none."""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None, None
    return format_trace_id(span.trace_id), format_span_id(span.span_id)
