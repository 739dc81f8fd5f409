"""Reads from records how long answers were, and which of them would have become longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from midstream._support.sanitize import clean
from midstream.stream.finish_reasons import finish_label
from midstream.stream.model import Outcome, StreamRecord

Cause: TypeAlias = Literal["limit", "left", "failed", "filtered", "unclear"]
"""What kept an answer from its own end: its token limit, its reader, an error, a filter, or an unknown cause."""

Left: TypeAlias = Literal["no usage", "several choices", "no answer", "not generated"]
"""Why a record shows no length. `not generated`: a stored response was read again."""

_CAUSES: Mapping[Outcome, Cause] = {
    Outcome.NO_FINISH: "unclear",
    Outcome.LEFT_EARLY: "left",
    Outcome.CANCELLED: "left",
    Outcome.TIMEOUT: "failed",
    Outcome.ERROR: "failed",
}
_ENOUGH_CHUNKS = 20
_CHUNKS_ARE_TOKENS = 0.99


@dataclass(frozen=True, slots=True)
class Length:
    """One answer's length in tokens. `cause` is None if it ended by itself; otherwise it would be longer."""

    tokens: int
    cause: Cause | None
    record: StreamRecord


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths of some answers, and how many records said nothing about any, by reason.

    `by_chunks` is how many of those cut short are counted by their chunks, because usage comes only at the end.
    """

    answers: tuple[Length, ...]
    left_out: Mapping[Left, int]
    by_chunks: int

    @property
    def exact(self) -> list[int]:
        """Lengths of the answers that ended by themselves."""
        return [answer.tokens for answer in self.answers if answer.cause is None]

    @property
    def censored(self) -> list[int]:
        """What those had that were cut short."""
        return [answer.tokens for answer in self.answers if answer.cause is not None]

    @property
    def causes(self) -> Counter[Cause]:
        """How many answers were cut short, by cause."""
        return Counter(answer.cause for answer in self.answers if answer.cause is not None)


def lengths_of(records: Sequence[StreamRecord]) -> Lengths:
    """Return the lengths that records show.

    An answer that ended by a stop or a tool call, below its limit, is as long as its usage says. One that ended at
    its limit (whatever its finish reason says), was left, failed or was filtered was longer than its usage says. Usage
    comes at the end, so those that were cut short often have none: then their content chunks are a lower bound,
    provided that the other answers show that a chunk carries at least a token. To leave them out would make answers
    look shorter, since it is the long ones that people leave. All others without usage are left out and counted.
    """
    bounded = chunks_are_tokens(records)
    answers: list[Length] = []
    left_out: Counter[Left] = Counter()
    by_chunks = 0
    for record in records:
        reason = _left_out(record)
        cause = None if reason else _cause(record)
        if reason is None and record.output_tokens is None:
            if cause is None or not bounded:
                reason = "no usage"
            else:
                by_chunks += 1
        if reason is not None:
            left_out[reason] += 1
        else:
            tokens = record.content_chunks if record.output_tokens is None else record.output_tokens
            answers.append(Length(tokens, cause, record))
    return Lengths(tuple(answers), dict(left_out), by_chunks)


def groups_of(records: Iterable[StreamRecord]) -> dict[tuple[str, str], list[StreamRecord]]:
    """Return the records by model and operation, named so that they may be shown; the group with most first."""
    groups: dict[tuple[str, str], list[StreamRecord]] = {}
    for record in records:
        groups.setdefault((clean(record.request_model), clean(record.operation)), []).append(record)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def _left_out(record: StreamRecord) -> Left | None:
    if record.operation == "fetch_response":
        return "not generated"
    if len(record.finish_reasons) > 1:
        return "several choices"
    if record.outcome in (Outcome.EMPTY, Outcome.UNREAD) or not (
        record.content_chunks or record.output_tokens
    ):
        return "no answer"
    return None


def _cause(record: StreamRecord) -> Cause | None:
    """Return what cut an answer short; None if it ended by itself."""
    label = finish_label(record.finish_reasons[0] if record.finish_reasons else None)
    if record.limit_hit or label == "length":
        return "limit"
    if record.outcome in _CAUSES:
        return _CAUSES[record.outcome]
    if label == "content_filter":
        return "filtered"
    if label in ("stop", "tool_calls"):
        return None if record.usage_complete or record.output_tokens is None else "unclear"
    return "unclear"


def chunks_are_tokens(records: Sequence[StreamRecord]) -> bool:
    """Tell whether content chunks are a lower bound for tokens, as answers show that have both counts."""
    both = [
        record.content_chunks <= record.output_tokens
        for record in records
        if record.outcome is Outcome.COMPLETED
        and record.output_tokens is not None
        and len(record.finish_reasons) == 1
    ]
    return len(both) >= _ENOUGH_CHUNKS and sum(both) >= _CHUNKS_ARE_TOKENS * len(both)
