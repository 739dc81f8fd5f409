"""One user of the demo's server: what midstream tells of the one stream that is theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from midstream import Freeze, OpenStream, StreamRecord, streams
from midstream.lab.observed import ObservedStream

State: TypeAlias = Literal["-", "waiting", "streaming", "silent", "FROZEN", "ended"]

Span: TypeAlias = tuple[float, float]
"""From when to when, in seconds from the beginning of the run."""

SILENT_SHARE = 0.25
"""The part of the freeze threshold from which a silence is shown as such."""


@dataclass(frozen=True, slots=True)
class Row:
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
    """One user, with one stream. `asked_s` is when in the run they asked."""

    number: int
    recorded: ObservedStream
    freeze_after_s: float
    asked_s: float | None = None
    record: StreamRecord | None = None
    _started_at: float | None = None
    _first_content_s: float | None = None
    _frozen: tuple[Span, ...] = ()

    def opened(self) -> None:
        """Recognise the stream that was opened last as this user's."""
        self._started_at = max(stream.started_at for stream in streams())

    def received(self) -> None:
        """Learn from the open stream, at its first content, when that came."""
        if self._first_content_s is None:
            stream = self._stream()
            if stream is not None and stream.content_chunks:
                self._first_content_s = _silent_since(stream)

    def thawed(self, freeze: Freeze) -> None:
        """Remember a freeze that is over."""
        if self.asked_s is not None and freeze.at_s is not None:
            since = self.asked_s + freeze.at_s
            self._frozen = (*self._frozen, (since, since + freeze.gap_s))

    def row(self) -> Row:
        """Return how the stream stands now."""
        asked, record = self.asked_s or 0.0, self.record
        if record is not None:
            first = record.time_to_first_content_s
            answer = None if first is None else (asked + first, asked + record.duration_s)
            return Row(self.number, "ended", record.chunks, None, first, record.freezes, answer, self._frozen)
        stream, first = self._stream(), self._first_content_s
        if stream is None or stream.age_s is None or first is None:
            return Row(self.number, "-" if stream is None else "waiting")
        now, frozen = asked + stream.age_s, self._frozen
        if stream.frozen:
            frozen = (*frozen, (asked + (_silent_since(stream) or 0.0), now))
        return Row(
            number=self.number,
            state=self._state(stream),
            chunks=stream.chunks,
            silent_s=stream.since_content_s,
            first_content_s=first,
            freezes=stream.freezes,
            answer=(asked + first, now),
            frozen=frozen,
        )

    def _stream(self) -> OpenStream | None:
        return next((stream for stream in streams() if stream.started_at == self._started_at), None)

    def _state(self, stream: OpenStream) -> State:
        if stream.frozen:
            return "FROZEN"
        return "silent" if stream.open_gap_s >= SILENT_SHARE * self.freeze_after_s else "streaming"


def _silent_since(stream: OpenStream) -> float | None:
    """Return when the last content came, in seconds from the call."""
    if stream.age_s is None or stream.since_content_s is None:
        return None
    return stream.age_s - stream.since_content_s
