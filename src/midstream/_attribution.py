"""Whose silence: how much of a wait was the server's, and what the server did while the caller looked elsewhere.

Three observers, asked only when a wait or a hold is long enough to matter: the heartbeat of the event loop, the process's
own watcher (which stands still when everything does), and the wire clock.
"""

from __future__ import annotations

from collections.abc import Callable

from midstream._heartbeat import BEAT_S, Heartbeat
from midstream._session import Session
from midstream._silence import FINENESS, FINEST_S, SHARP_S, Silence
from midstream._wire import WireClock

LOOP_WAIT_S = 0.1
"""A wait on an event loop that is worth a look at its heartbeat, which costs no system call."""
DEFAULT_CANDIDATE_S = 2.5


class Attribution:
    """The observers of one stream. The iterator asks at the end of a long wait, the watcher meanwhile."""

    __slots__ = ("_pulse", "_silence", "_stalled_since", "_wire", "candidate_s", "long_s")

    def __init__(
        self,
        freeze_after_s: float | None,
        wire: WireClock | None = None,
        pulse: Heartbeat | None = None,
        stalled_since: Callable[[float], float | None] = lambda _: None,
    ) -> None:
        self._wire = wire
        self._pulse = pulse
        self._stalled_since = stalled_since
        self._silence = Silence()
        self.candidate_s = DEFAULT_CANDIDATE_S if freeze_after_s is None else freeze_after_s / 2
        """How long a silence must be to be worth a system call, in seconds."""
        self.long_s = self.candidate_s if pulse is None else min(LOOP_WAIT_S, self.candidate_s)
        """How long a wait must be for `waited` to be called at its end."""

    @property
    def sees_blocks(self) -> bool:
        """Whether anything here can tell a wait for the server from a wait for ourselves."""
        return self._pulse is not None or self._wire is not None

    def waited(self, session: Session, now: float) -> float:
        """A long wait ends with a chunk: the seconds of it in which the chunk was there already."""
        wait_from = session.wait_from
        if wait_from is None:
            return 0.0
        stalled = self._stalled_since(now)
        blocked_from = self._blocked_since(now, stalled)
        arrival = now if blocked_from is None else max(blocked_from, wait_from)
        if self._wire is not None and now - wait_from >= self.candidate_s:
            arrival = self._arrival(session, self._wire, arrival, blocked=blocked_from is not None, now=now)
            if session.last_content is not None and not session.in_tail:
                self._silence.waited(session.last_content, max(arrival, wait_from))
        blocked = now - min(max(arrival, wait_from), now)
        if stalled is not None:
            session.stood_still += min(blocked, now - stalled)
        return blocked

    def look(self, session: Session, now: float) -> float | None:
        """Sample the connection if that can tell something now; say when to look again."""
        if self._wire is None or session.ended:
            return None
        quiet_since = session.last_event if session.content_chunks else now
        if now - quiet_since < self.candidate_s and now - session.caught_up < self.candidate_s:
            return min(quiet_since, session.caught_up) + self.candidate_s
        if session.in_tail or session.content_chunks == 0:
            return now + self.candidate_s
        self._catch_up(session)
        blocked = self._pulse is not None and self._pulse.blocked_at(now)
        if session.waiting and not blocked:
            return self._look_at_wait(session, now)
        return self._look_behind(session, now)

    def sure_of_silence(self, session: Session, now: float) -> bool:
        """Whether the caller waits because the server is silent, as far as anyone can tell at this moment."""
        pulse = self._pulse
        unsure = self._stalled_since(now) is not None or (pulse is not None and pulse.blocked_at(now))
        sample = None if self._wire is None else self._wire.sample()
        if sample is None:
            return not unsure
        self._catch_up(session)
        self._silence.look(sample, session.last_content or now, reading=not unsure)
        came = self._silence.first_output_after(session.wait_from or now)
        return came is None and (not unsure or self._silence.quiet_for(sample) >= (session.freeze_after_s or 0.0))

    def ending(self, session: Session, now: float) -> None:
        """The stream ends now, before the session knows: settle what was seen of its silences."""
        silence, wire = self._silence, self._wire
        if wire is None:
            return
        self._catch_up(session)
        if silence.last is not None:
            sample = wire.sample()
            silence.settle(None if sample is None else sample.received)
        if session.last_content is None or session.in_tail:
            return
        if session.wait_from is not None:
            if now - session.wait_from >= self.candidate_s:
                silence.waited(session.last_content, now)
        elif silence.since is not None and silence.since <= session.last_content + SHARP_S:
            silence.waited(silence.since, now)

    def close(self) -> None:
        """Let go of the loop and of the connection."""
        if self._pulse is not None:
            self._pulse.leave()
        if self._wire is not None:
            self._wire.close()

    def wire_gap(self, max_gap: float | None) -> float | None:
        """The server's longest silence in seconds, at least the longest gap; None if it cannot be known."""
        if self._wire is None:
            return None
        return max((gap for gap in (self._silence.longest, max_gap) if gap is not None), default=None)

    def hidden(self, limit: float) -> list[tuple[float, float]]:
        """Silences of at least `limit` seconds that the caller did not wait for, newly known: begin and length."""
        found = [(start, end - start) for start, end in self._silence.hidden if end - start >= limit]
        self._silence.hidden.clear()
        return found

    def _blocked_since(self, now: float, stalled: float | None) -> float | None:
        blocked = None if self._pulse is None else self._pulse.blocked_since(now)
        known = [moment for moment in (stalled, blocked) if moment is not None]
        return min(known) if known else None

    def _arrival(self, session: Session, wire: WireClock, arrival: float, *, blocked: bool, now: float) -> float:
        sample = wire.sample()
        if sample is None:
            return arrival
        self._catch_up(session)
        last_content = session.last_content if session.last_content is not None else session.opened
        self._silence.look(sample, last_content, reading=not blocked)
        if not blocked and sample.at - sample.last_data_at < SHARP_S:
            return now  # taken as it came
        came = self._silence.first_output_after(session.wait_from or now)
        if came is not None:
            return came
        # Nobody looked while it came. Without a blocked loop to explain it, this thread was starved of time to take it.
        return arrival if blocked else sample.last_data_at

    def _catch_up(self, session: Session) -> None:
        last = self._silence.last
        if last is not None and session.caught_up > last.at:
            self._silence.confirm()
            self._silence.forget()

    def _look_at_wait(self, session: Session, now: float) -> float | None:
        gap = session.open_gap(now)
        if gap < self.candidate_s:
            return now + self.candidate_s - gap
        if self._silence.last is None or (self._pulse is None and now - self._silence.last.at > self.candidate_s):
            self._sample(session, now, reading=True)
        # A loop may block in the middle of a wait, and then somebody must look in its place.
        return now + (BEAT_S if self._pulse is not None else self.candidate_s)

    def _look_behind(self, session: Session, now: float) -> float | None:
        quiet = self._sample(session, now, reading=False)
        if quiet is None:
            return None
        wait = FINENESS * quiet if quiet >= self.candidate_s else self.candidate_s - quiet
        return now + max(wait, FINEST_S)

    def _sample(self, session: Session, now: float, *, reading: bool) -> float | None:
        sample = None if self._wire is None else self._wire.sample()
        if sample is None:
            return None
        self._silence.look(sample, session.last_content or now, reading=reading)
        return self._silence.quiet_for(sample)
