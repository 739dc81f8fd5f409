"""The frozen values that everything else passes around."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from midstream._support.sanitize import valid_name

MAX_COUNT: Final = 2**53
"""The largest number of tokens that is taken for one: beyond it, floating point and databases lose digits."""

Phase: TypeAlias = Literal["text", "reasoning", "tool_call"]
"""What kind of output a stream was producing."""


Suspicion: TypeAlias = Literal["stall", "withheld", "unknown"]
"""What a gap was, by the token counts around it: nothing was made, or output was made and held back."""


class Outcome(str, Enum):
    """How a stream ended. Each member compares equal to its word."""

    COMPLETED = "completed"
    """A finish reason was seen for every choice that produced output."""
    NO_FINISH = "no_finish"
    """A clean end without a finish reason: the answer was cut, or the server never sends one."""
    LEFT_EARLY = "left_early"
    """The caller stopped reading. Not an error."""
    CANCELLED = "cancelled"
    """The caller's task, thread or process was cancelled."""
    TIMEOUT = "timeout"
    """A time limit expired while the caller waited."""
    ERROR = "error"
    """The server or the connection failed."""
    EMPTY = "empty"
    """The response ended without a single chunk."""
    UNREAD = "unread"
    """The caller never asked for a chunk."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Call:
    """What is known of a stream before its first chunk: who asked whom for what.

    `started` is on the monitor's monotonic clock, `started_at` is Unix time in seconds. `started` is None when the
    call was not seen, only its response; times that count from the call are then absent from the record.
    `token_limit` is per choice; `choices` is the number of choices asked for (`n`).
    """

    operation: str
    provider: str
    server_address: str
    server_port: int | None
    request_model: str
    started: float | None
    started_at: float
    token_limit: int | None = None
    choices: int = 1
    retries: int | None = None
    trace_id: str | None = None
    span_id: str | None = None

    def __post_init__(self) -> None:
        # A gateway passes on whatever its clients call a model.
        for name in ("provider", "server_address", "request_model"):
            given = getattr(self, name)
            valid = valid_name(given)
            if valid is not given:
                object.__setattr__(self, name, valid)


@dataclass(frozen=True, slots=True)
class Freeze:
    """A gap that has reached the freeze threshold, as given to `on_freeze` and, once it has ended, to `on_thaw`.

    Durations are seconds. `gap_s` is the gap so far (`on_freeze`) or in full (`on_thaw`), `freeze_after_s` the
    threshold that was in force, `at_s` the offset into the stream at which the gap began, and `phase` what the
    stream was producing before it fell silent.
    """

    started_at: float
    """Unix time of the call that opened the stream, in seconds: the same as in its record."""
    at_s: float | None
    gap_s: float
    freeze_after_s: float
    phase: Phase
    operation: str
    provider: str
    server_address: str
    server_port: int | None
    request_model: str
    response_model: str | None
    attributes: Mapping[str, str]
    hidden: bool
    """True if the caller was busy and did not wait for it: the server froze all the same, and it is told later."""
    shared: bool
    """True if the server's other streams fell silent with this one: the engine stood still, not one stream."""
    suspected: Suspicion
    trace_id: str | None
    span_id: str | None
    response_id: str | None = None
    """The server's own id of the answer, as its chunks have it: the server's log knows the answer by it."""


@dataclass(frozen=True, slots=True, repr=False)
class OpenStream:
    """One stream that is open now, as listed by `midstream.streams()`. Durations are seconds."""

    started_at: float
    age_s: float | None
    operation: str
    provider: str
    server_address: str
    server_port: int | None
    request_model: str
    response_model: str | None
    attributes: Mapping[str, str]
    state: Literal["waiting", "holding", "frozen"]
    """`waiting`: the caller is blocked on the stream. `holding`: the caller has a chunk and has not asked for the next.
    `frozen`: the gap has reached the freeze threshold."""
    frozen: bool
    open_gap_s: float
    """The gap in progress; 0 while the caller holds a chunk that it has just received."""
    since_chunk_s: float | None
    since_content_s: float | None
    freezes: int
    chunks: int
    content_chunks: int
    response_id: str | None = None
    """The server's own id of the answer; None as long as no chunk had one."""

    def __repr__(self) -> str:
        model = self.request_model or self.response_model or "an unnamed model"
        return f"<OpenStream {model!r} {self.state}: gap {self.open_gap_s:.2f} s, {self.content_chunks} content chunks>"


@dataclass(frozen=True, slots=True)
class FreezeSpan:
    """One freeze of an ended stream, as its record keeps it. `at_s` and `length_s` are seconds."""

    at_s: float
    """Offset into the stream at which the gap began, from the same origin as `max_gap_at_s`."""
    length_s: float
    phase: Phase
    """What the stream was producing before it fell silent."""
    hidden: bool
    """True if the caller was busy and did not wait for it."""
    shared: bool
    """True if the server's other streams fell silent with this one."""
    open: bool
    """True if no chunk ended it: the stream did."""


@dataclass(frozen=True, slots=True, repr=False)
class StreamRecord:
    """The immutable result of one stream.

    Durations are float seconds on a monotonic clock and None where they do not exist (no content: no time to first
    content). Counts that a server did not report are None, never 0. No prompt, output text, header, key or URL query
    is ever part of a record.
    """

    started_at: float
    """Unix time of the caller's call, in seconds: the only wall-clock value here."""
    operation: str
    """`chat`, `text_completion`, `responses`, `fetch_response` (a stored response replayed) or `other`."""
    provider: str
    server_address: str
    server_port: int | None
    request_model: str
    response_model: str | None
    attributes: Mapping[str, str]
    outcome: Outcome
    error_type: str | None
    """A word of low cardinality: `timeout`, an exception's class, a finish reason that means failure. No message."""
    finish_reasons: tuple[str | None, ...]
    """Raw, one per choice in index order; None for a choice that got none; empty when none came at all."""
    duration_s: float
    """From the call to the last event of the stream."""
    waited_s: float
    """The part of `duration_s` during which the caller was blocked on the call or on the stream."""
    held_s: float
    """The rest of `duration_s`: the caller's own time."""
    time_to_first_chunk_s: float | None
    time_to_first_content_s: float | None
    max_gap_s: float | None
    """The longest server silence between two content chunks, or the one still open at the end. None: no such."""
    max_gap_at_s: float | None
    """Offset into the stream at which that gap began."""
    max_gap_phase: Phase | None
    max_gap_open: bool
    """True if no chunk ended that gap."""
    freezes: int
    frozen_s: float
    """The summed length of all freezes, each counted from its beginning."""
    hidden: int
    """Freezes of the server that a busy caller did not wait for. Not among `freezes`, not in `max_gap_s`."""
    shared: int
    """Freezes in which the other streams of the same server were silent too."""
    suspected: Suspicion
    """What the longest gap was, where the server counts tokens on every chunk."""
    max_interval_s: float | None
    """The longest time from one content chunk to the next as the caller lived it, holds included."""
    wire_gap_s: float | None
    """The longest gap as the connection shows it, whether the caller waited or not. None: not known."""
    max_hold_s: float | None
    """The longest time the caller kept a chunk before asking for the next."""
    loop_blocked_s: float | None
    """Waits in which the chunk was there already, but the caller's event loop, thread or process was not."""
    clock_jump_s: float | None
    """How far the wall clock ran away from the monotonic one: it was set, or the machine slept. None: it did not."""
    stood_still_s: float | None
    """The part of `loop_blocked_s` in which the whole process stood still. None: it did not."""
    tail_s: float | None
    """Waiting after the last finish reason; None if there was none."""
    chunks: int
    content_chunks: int
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    usage_complete: bool
    """True if the server reported usage and nothing came after it that the report could have missed."""
    token_limit: int | None
    """The limit that the request asked for, per choice."""
    limit_hit: bool
    retries: int | None
    """Attempts of the client before the one that answered; None if not known."""
    buffered: bool
    """True if the answer arrived in one burst: a gap of 0 is blindness there, not smoothness."""
    trace_id: str | None
    span_id: str | None
    freeze_spans: tuple[FreezeSpan, ...] = ()
    """The freezes one by one, in the order in which they began, hidden ones too; of more than 64 the longest."""
    freeze_after_s: float | None = None
    """The gap in seconds from which it counted as a freeze, in the phase of the longest gap where phases differ.
    None: none did, or it is not known."""
    response_id: str | None = None
    """The server's own id of the answer, by which its log knows it; at most 256 characters. None: no chunk had one."""

    def __repr__(self) -> str:
        gap = "" if self.max_gap_s is None else f", max_gap {self.max_gap_s:.2f} s"
        model = self.request_model or self.response_model or "an unnamed model"
        return (
            f"<StreamRecord {model!r} {self.outcome} in {self.duration_s:.2f} s: {self.content_chunks} content chunks"
            f"{gap}, {self.freezes} freezes, {self.hidden} hidden>"
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields under their names, as values that JSON has: durations in seconds, the outcome as its word.

        >>> json.dumps(record.to_dict())  # doctest: +SKIP
        """
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        values.update(
            outcome=self.outcome.value,
            attributes=dict(self.attributes),
            finish_reasons=list(self.finish_reasons),
            freeze_spans=[asdict(span) for span in self.freeze_spans],
        )
        return values


FREEZE_AFTER_S = 5.0
"""The gap in seconds from which it is a freeze, unless something else is set. A gap of exactly this length is one."""
