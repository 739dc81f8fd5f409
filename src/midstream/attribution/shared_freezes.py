"""Whether a freeze is one stream's or its server's: streams that fall silent together tell of the engine."""

from __future__ import annotations

from collections.abc import Iterable

from midstream.stream.session import Session

TOGETHER = 0.8
"""The share of a gap that another stream must have been silent for, and of the other streams that must be silent."""


def shared(session: Session, everybody: Iterable[Session], now: float) -> bool:
    """Whether most other streams of this one's server, in mid-answer as it is, are silent for about as long.

    A preemption or a buffering parser stops one stream, or some, while the others go on; a long prefill, a stalled
    engine or a broken network stops all. A stream that is alone with its server cannot be told either way: False.
    """
    gap = session.open_gap(now)
    server = _server(session)
    others = [
        other
        for other in everybody
        if other is not session and _server(other) == server and other.content_chunks and not other.in_tail
    ]
    silent = sum(other.open_gap(now) >= TOGETHER * gap for other in others)
    return bool(others) and silent >= TOGETHER * len(others)


def _server(session: Session) -> tuple[str, int | None]:
    return session.call.server_address, session.call.server_port
