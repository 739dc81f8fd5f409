"""What others are shown of a session: the record at its end, the open stream meanwhile, the freeze as it happens."""

from __future__ import annotations

from midstream.stream.model import (
    Call,
    Freeze,
    FreezeSpan,
    OpenStream,
    Outcome,
    Phase,
    StreamRecord,
    Suspicion,
)
from midstream.stream.session import Session

CLOCK_JUMP_S = 1.0
BURST_CHUNKS = 20
BURST_S = 0.05
BURST_SHARE = 0.1
"""An answer is one burst if at least 20 content chunks came within 50 ms and within a tenth of the wait for the first.

The first two numbers are a hundred times faster than people read. The third keeps a truly fast small model apart from
a proxy that let go of a finished answer.
"""


def record_of(
    session: Session,
    outcome: Outcome,
    error_type: str | None,
    *,
    wire_gap_s: float | None = None,
    sees_blocks: bool = False,
    clock_jump_s: float | None = None,
    freeze_spans: tuple[FreezeSpan, ...] = (),
) -> StreamRecord:
    """The immutable result of an ended session, with what its observers saw beside it."""
    call, answer = session.call, session.answer
    duration = session.last_event - _start(session)
    # One content chunk makes no gap; a gap that stayed open, or that froze the stream, is one all the same.
    gap_known = session.content_chunks >= 2 or session.max_gap_open or session.freezes > 0
    return StreamRecord(
        started_at=call.started_at,
        operation=call.operation,
        provider=call.provider,
        server_address=call.server_address,
        server_port=call.server_port,
        request_model=call.request_model,
        response_model=answer.model,
        attributes=dict(session.attributes),
        outcome=outcome,
        error_type=error_type,
        finish_reasons=answer.finish_reasons,
        duration_s=duration,
        waited_s=session.waited,
        held_s=max(0.0, duration - session.waited),
        time_to_first_chunk_s=_since_call(session, session.first_chunk),
        time_to_first_content_s=_since_call(session, session.first_content),
        max_gap_s=session.max_gap if gap_known else None,
        max_gap_at_s=_offset(session, session.max_gap_at) if gap_known else None,
        max_gap_phase=session.max_gap_phase if gap_known else None,
        max_gap_open=session.max_gap_open,
        freezes=session.freezes,
        frozen_s=session.frozen_s,
        max_interval_s=session.max_interval,
        hidden=session.hidden,
        shared=session.shared,
        suspected=session.suspected if gap_known else "unknown",
        wire_gap_s=wire_gap_s,
        max_hold_s=session.max_hold,
        loop_blocked_s=session.blocked if sees_blocks or session.blocked else None,
        clock_jump_s=clock_jump_s,
        stood_still_s=session.stood_still or None,
        tail_s=session.tail if session.in_tail else None,
        chunks=session.chunks,
        content_chunks=session.content_chunks,
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        cached_tokens=answer.cached_tokens,
        reasoning_tokens=answer.reasoning_tokens,
        usage_complete=answer.usage_complete,
        token_limit=call.token_limit,
        limit_hit=answer.limit_hit(call.token_limit, call.choices),
        retries=call.retries,
        buffered=_buffered(session),
        trace_id=call.trace_id,
        span_id=call.span_id,
        freeze_spans=freeze_spans,
        freeze_after_s=threshold_in(session, session.max_gap_phase or session.phase),
        response_id=answer.response_id,
    )


def freeze_of(session: Session, now: float, *, shared: bool = False) -> Freeze:
    """The freeze in progress, as `on_freeze` gets it."""
    return _freeze(session, session.open_gap(now), session.last_content, session.phase, shared=shared)


def thaw_of(session: Session, *, shared: bool = False) -> Freeze:
    """The freeze that has just ended, in full, as `on_thaw` gets it."""
    longest = session.last_gap == session.max_gap
    return _freeze(
        session,
        session.last_gap,
        session.last_gap_at,
        session.last_gap_phase,
        shared=shared,
        suspected=session.suspected if longest else "unknown",
    )


def stalled_of(session: Session, *, shared: bool = False) -> Freeze:
    """The gap that a stall timeout ended; without any content, all that was waited for it."""
    if session.content_chunks:
        return thaw_of(session, shared=shared)
    return _freeze(session, session.waited, session.opened, session.phase, shared=shared)


def hidden_of(session: Session, since: float, gap_s: float) -> Freeze:
    """A freeze that the caller did not wait for, as `on_freeze` gets it once it is known."""
    return _freeze(session, gap_s, since, session.phase, hidden=True)


def threshold_in(session: Session, phase: Phase) -> float | None:
    """From how many seconds on a gap in this phase of the stream is a freeze; None: never."""
    return session.freeze_after_s if session.by_phase is None else session.by_phase.of(phase)


def span_of(freeze: Freeze, *, open: bool = False) -> FreezeSpan:  # noqa: A002 - the field's own name
    """A freeze that is over, as the record keeps it; `open` says that the end of the stream was its end."""
    return FreezeSpan(
        at_s=freeze.at_s or 0.0,
        length_s=freeze.gap_s,
        phase=freeze.phase,
        hidden=freeze.hidden,
        shared=freeze.shared,
        open=open,
    )


def _freeze(
    session: Session,
    gap_s: float,
    since: float | None,
    phase: Phase,
    *,
    hidden: bool = False,
    shared: bool = False,
    suspected: Suspicion = "unknown",
) -> Freeze:
    call = session.call
    return Freeze(
        started_at=call.started_at,
        at_s=_offset(session, since),
        gap_s=gap_s,
        freeze_after_s=threshold_in(session, phase) or 0.0,
        phase=phase,
        operation=call.operation,
        provider=call.provider,
        server_address=call.server_address,
        server_port=call.server_port,
        request_model=call.request_model,
        response_model=session.answer.model,
        attributes=dict(session.attributes),
        hidden=hidden,
        shared=shared,
        suspected=suspected,
        trace_id=call.trace_id,
        span_id=call.span_id,
        response_id=session.answer.response_id,
    )


def view_of(session: Session, now: float) -> OpenStream:
    """An open stream as `streams()` lists it."""
    call = session.call
    return OpenStream(
        started_at=call.started_at,
        age_s=None if call.started is None else now - call.started,
        operation=call.operation,
        provider=call.provider,
        server_address=call.server_address,
        server_port=call.server_port,
        request_model=call.request_model,
        response_model=session.answer.model,
        attributes=dict(session.attributes),
        state=session.state,
        frozen=session.frozen,
        open_gap_s=session.open_gap(now),
        since_chunk_s=None if session.first_chunk is None else now - session.last_event,
        since_content_s=None if session.last_content is None else now - session.last_content,
        freezes=session.freezes,
        chunks=session.chunks,
        content_chunks=session.content_chunks,
        response_id=session.answer.response_id,
    )


def clock_jump(call: Call, now: float, wall: float) -> float | None:
    """How far wall time ran away from monotonic time since the call; None if it did not, or the call was not seen."""
    if call.started is None:
        return None
    jump = (wall - call.started_at) - (now - call.started)
    return jump if abs(jump) >= CLOCK_JUMP_S else None


def _start(session: Session) -> float:
    return session.opened if session.call.started is None else session.call.started


def _offset(session: Session, moment: float | None) -> float | None:
    return None if moment is None else moment - _start(session)


def _since_call(session: Session, moment: float | None) -> float | None:
    return None if moment is None or session.call.started is None else moment - session.call.started


def _buffered(session: Session) -> bool:
    first, last = session.first_content, session.last_content
    if session.content_chunks < BURST_CHUNKS or first is None or last is None:
        return False
    return last - first <= min(BURST_S, BURST_SHARE * (first - _start(session)))
