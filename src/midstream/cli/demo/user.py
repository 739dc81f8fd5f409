"""One user of the demo's server, as the demo shows it: from what midstream reports of the user's streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from midstream import Freeze, OpenStream, StreamRecord

State: TypeAlias = Literal["-", "waiting", "streaming", "silent", "FROZEN", "ended"]

Span: TypeAlias = tuple[float, float]
"""From when to when, in seconds from the beginning of the run."""

SILENT_SHARE = 0.25
"""The part of the freeze threshold from which a gap is shown as such."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """The state of a user's stream. `answers` spans the output so far, of earlier streams too; `frozen` the freezes."""

    number: int
    state: State
    chunks: int = 0
    silent_s: float | None = None
    first_content_s: float | None = None
    freezes: int = 0
    answers: tuple[Span, ...] = ()
    frozen: tuple[Span, ...] = ()


@dataclass(slots=True, eq=False)
class User:
    """One user, with one stream after the other. `began_at` is the Unix time at which the run began."""

    number: int
    freeze_after_s: float
    began_at: float = 0.0
    stream: OpenStream | None = None
    records: list[StreamRecord] = field(default_factory=list)
    _first_content_s: float | None = None
    _thawed: list[Span] = field(default_factory=list)

    def update(self, stream: OpenStream) -> None:
        """Take the state of the open stream."""
        self.stream = stream
        if self._first_content_s is None and stream.content_chunks:
            self._first_content_s = _last_content_s(stream)

    def thawed(self, freeze: Freeze) -> None:
        """Keep a freeze that is over."""
        if freeze.at_s is not None:
            since = freeze.started_at - self.began_at + freeze.at_s
            self._thawed.append((since, since + freeze.gap_s))

    def ended(self, record: StreamRecord) -> None:
        """Take the record of the stream, which is open no more."""
        self.records.append(record)
        self.stream = None
        self._first_content_s = None
        self._thawed.clear()

    def row(self) -> StreamRow:
        """Return the state now: of the open stream, or of the last one."""
        shown = [self.spans(record) for record in self.records]
        answers = tuple(span for spans, _ in shown for span in spans)
        frozen = tuple(span for _, spans in shown for span in spans)
        freezes = sum(record.freezes for record in self.records)
        stream, first = self.stream, self._first_content_s
        if stream is None and self.records:
            last = self.records[-1]
            return StreamRow(
                self.number,
                "ended",
                last.chunks,
                None,
                last.time_to_first_content_s,
                freezes,
                answers,
                frozen,
            )
        if stream is None or stream.age_s is None or first is None:
            state: State = "-" if stream is None else "waiting"
            return StreamRow(self.number, state, freezes=freezes, answers=answers, frozen=frozen)
        asked = stream.started_at - self.began_at
        now = asked + stream.age_s
        frozen = (*frozen, *self._thawed)
        if stream.frozen:
            frozen = (*frozen, (asked + (_last_content_s(stream) or 0.0), now))
        return StreamRow(
            number=self.number,
            state=self._state(stream),
            chunks=stream.chunks,
            silent_s=stream.since_content_s,
            first_content_s=first,
            freezes=freezes + stream.freezes,
            answers=(*answers, (asked + first, now)),
            frozen=frozen,
        )

    def spans(self, record: StreamRecord) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """Return from when to when the answer of a record was written, and its freezes."""
        asked, first = record.started_at - self.began_at, record.time_to_first_content_s
        frozen = tuple(
            (asked + span.at_s, asked + span.at_s + span.length_s)
            for span in record.freeze_spans
            if not span.hidden
        )
        return () if first is None else ((asked + first, asked + record.duration_s),), frozen

    def _state(self, stream: OpenStream) -> State:
        if stream.frozen:
            return "FROZEN"
        return "silent" if stream.open_gap_s >= SILENT_SHARE * self.freeze_after_s else "streaming"


def _last_content_s(stream: OpenStream) -> float | None:
    """Return when the last content came, in seconds from the call."""
    if stream.age_s is None or stream.since_content_s is None:
        return None
    return stream.age_s - stream.since_content_s
