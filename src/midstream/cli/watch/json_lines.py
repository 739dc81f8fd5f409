"""What `midstream watch --json` prints: a document for each reading, each failure and each freeze."""

from __future__ import annotations

from dataclasses import fields

from midstream.advice.matching import sentence
from midstream.cli.watch.run import Event, Read, ReadingFailed
from midstream.engines.page import MetricReading
from midstream.sources.server import ServerView


def document(event: Event, url: str) -> dict[str, object]:
    """Return an event as it is printed. Times are Unix seconds; what is not known is null, with the reason."""
    if isinstance(event, Read):
        view, between = event.scraped.view, event.between
        return {
            "at": event.scraped.at,
            "server": url,
            **_numbers(view),
            "preemptions_per_s": between.preemptions_per_s.value if between is not None else None,
            "tokens_per_s": between.tokens_per_s.value if between is not None else None,
            "restarted": between.restarted if between is not None else False,
            "unknown": dict(view.unknown()),
            "notes": list(view.notes),
        }
    if isinstance(event, ReadingFailed):
        return {"at": event.at, "server": url, "error": event.problem, "unknown_since": event.since}
    record, span, found = event.freeze.record, event.freeze.span, event.match
    return {
        "freeze": {
            "at": event.freeze.start,
            "length_s": span.length_s,
            "request_model": record.request_model,
            "server_address": record.server_address,
            "server_port": record.server_port,
            "response_id": record.response_id,
            "trace_id": record.trace_id,
            "phase": span.phase,
            "hidden": span.hidden,
            "shared": span.shared,
            "open": span.open,
        },
        "match": found.place,
        "preemptions": found.preemptions,
        "preemption_after_s": [found.earliest_s, found.latest_s] if found.earliest_s is not None else None,
        "by_chance": found.chance,
        "said": sentence(found, span.length_s, event.engine, ended=not span.open),
    }


def _numbers(view: ServerView) -> dict[str, object]:
    numbers: dict[str, object] = {"engine": view.engine, "models": list(view.models)}
    for field in fields(view):
        reading = getattr(view, field.name)
        if isinstance(reading, MetricReading):
            numbers[field.name] = reading.value
    return numbers
