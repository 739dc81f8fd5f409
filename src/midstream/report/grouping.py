"""Streams grouped by model, server, operation or an attribute, the worst first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from midstream._support.sanitize import clean
from midstream.report.summary import StreamSummary, summarise
from midstream.stream.model import StreamRecord

FIELDS = ("model", "server", "operation")
"""What streams can be grouped by, beside the names of attributes."""
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StreamGroup:
    """Some streams and what they were like; `name` is fit to be shown."""

    name: str
    summary: StreamSummary


@dataclass(frozen=True, slots=True)
class Grouping:
    """All streams by one thing. `rest` stands for the groups that there was no room for, `left_out` in number."""

    by: str
    groups: tuple[StreamGroup, ...]
    rest: StreamSummary | None
    left_out: int
    total: StreamSummary


def grouped(records: Sequence[StreamRecord], by: str, top: int) -> Grouping:
    """Tell streams apart and return at most `top` groups: the longest frozen first, then the largest."""
    found: dict[str, list[StreamRecord]] = {}
    for record in records:
        found.setdefault(name_of(record, by), []).append(record)
    ordered = sorted(
        found.items(), key=lambda item: (-sum(r.frozen_s for r in item[1]), -len(item[1]), item[0])
    )
    # A rest of one would take as much room as the one itself.
    kept = ordered if len(ordered) <= top + 1 else ordered[:top]
    rest = [record for _, group in ordered[len(kept) :] for record in group]
    return Grouping(
        by=clean(by),
        groups=tuple(StreamGroup(name, summarise(group)) for name, group in kept),
        rest=summarise(rest) if rest else None,
        left_out=len(ordered) - len(kept),
        total=summarise(records),
    )


def name_of(record: StreamRecord, by: str) -> str:
    """Return the group of a stream, fit to be shown; `unknown` where the record has none."""
    if by == "model":
        name = record.request_model or record.response_model or ""
    elif by == "server":
        name = server_of(record)
    elif by == "operation":
        name = record.operation
    else:
        name = record.attributes.get(by, "")
    return _cleaned(name) or UNKNOWN


@lru_cache(maxsize=4096)  # many streams share few names
def _cleaned(name: str) -> str:
    return clean(name)


def server_of(record: StreamRecord) -> str:
    """Return host and port of the server, as far as they are known."""
    if not record.server_address or record.server_port is None:
        return record.server_address
    host = f"[{record.server_address}]" if ":" in record.server_address else record.server_address
    return f"{host}:{record.server_port}"


def attribute_names(records: Sequence[StreamRecord]) -> tuple[str, ...]:
    """Return the names of all attributes that any stream has, in order."""
    return tuple(sorted({name for record in records for name in record.attributes}))
