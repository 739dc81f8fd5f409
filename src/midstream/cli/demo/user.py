"""One user of the demo's server, as the demo knows them: what midstream tells of the one stream that is theirs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from midstream import Freeze, OpenStream, StreamRecord

State: TypeAlias = Literal["-", "waiting", "streaming", "silent", "FROZEN", "ended"]

Span: TypeAlias = tuple[float, float]
"""From when to when, in seconds from the beginning of the run."""

SILENT_SHARE = 0.25
"""The part of the freeze threshold from which a silence is shown as such."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """How a stream stands. `answer` spans its output so far, and `frozen` the freezes in there."""

    number: int
    state: State
    chunks: int = 0
    silent_s: float | None = None
    first_content_s: float | None = None
    freezes: int = 0
    answer: Span | None = None
    frozen: tuple[Span, ...] = ()


@dataclass(slots=True)
class User:
    """One user, with one stream. `began_at` is the Unix time at which the run began."""

    number: int
    freeze_after_s: float
    began_at: float = 0.0
    stream: OpenStream | None = None
    record: StreamRecord | None = None
    _first_content_s: float | None = None
    _thawed: list[Span] = field(default_factory=list)

    def stands(self, stream: OpenStream) -> None:
        """Take in how the stream stands."""
        self.stream = stream
        if self._first_content_s is None and stream.content_chunks:
            self._first_content_s = _silent_since(stream)

    def thawed(self, freeze: Freeze) -> None:
        """Remember a freeze that is over."""
        if freeze.at_s is not None:
            since = freeze.started_at - self.began_at + freeze.at_s
            self._thawed.append((since, since + freeze.gap_s))

    def row(self) -> StreamRow:
        """Return how the stream stands now."""
        record, stream = self.record, self.stream
        if record is not None:
            asked, first = record.started_at - self.began_at, record.time_to_first_content_s
            answer = None if first is None else (asked + first, asked + record.duration_s)
            frozen = tuple(
                (asked + span.at_s, asked + span.at_s + span.length_s)
                for span in record.freeze_spans
                if not span.hidden
            )
            return StreamRow(self.number, "ended", record.chunks, None, first, record.freezes, answer, frozen)
        first = self._first_content_s
        if stream is None or stream.age_s is None or first is None:
            return StreamRow(self.number, "-" if stream is None else "waiting")
        asked = stream.started_at - self.began_at
        now = asked + stream.age_s
        frozen = tuple(self._thawed)
        if stream.frozen:
            frozen = (*frozen, (asked + (_silent_since(stream) or 0.0), now))
        return StreamRow(
            number=self.number,
            state=self._state(stream),
            chunks=stream.chunks,
            silent_s=stream.since_content_s,
            first_content_s=first,
            freezes=stream.freezes,
            answer=(asked + first, now),
            frozen=frozen,
        )

    def _state(self, stream: OpenStream) -> State:
        if stream.frozen:
            return "FROZEN"
        return "silent" if stream.open_gap_s >= SILENT_SHARE * self.freeze_after_s else "streaming"


def _silent_since(stream: OpenStream) -> float | None:
    """Return when the last content came, in seconds from the call."""
    if stream.age_s is None or stream.since_content_s is None:
        return None
    return stream.age_s - stream.since_content_s
