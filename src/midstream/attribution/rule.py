"""Whose silence: how much of a wait was the server's, and what the server did while the caller looked elsewhere.

Three observers, asked only when a wait or a hold is long enough to matter: the heartbeat of the event loop, the
process's own watcher (which stands still when everything does), and the wire clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from midstream.attribution.event_loop_lag import BEAT_S, Heartbeat
from midstream.attribution.tcp_info import Sample, WireClock
from midstream.attribution.wire_gap import FINENESS, FINEST_S, SHARP_S, SMALL, Silence
from midstream.stream.session import CAUGHT_UP_S, Session

LOOP_WAIT_S = 0.1
"""A wait on an event loop that is worth a look at its heartbeat, which costs no system call."""
DEFAULT_CANDIDATE_S = 2.5


@lru_cache(maxsize=64)
def _candidate_s(freeze_after_s: float | None) -> float:
    """Half a freeze: one number for all streams of a threshold, since each would take 24 bytes."""
    return DEFAULT_CANDIDATE_S if freeze_after_s is None else freeze_after_s / 2


def _always(_: float) -> bool:
    return True


class Attribution:
    """The observers of one stream. The iterator asks at the end of a long wait, the watcher meanwhile."""

    __slots__ = ("_pulse", "_seen", "_stalled_since", "_wire", "candidate_s")

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
        self._seen: Silence | None = None
        self.candidate_s = _candidate_s(freeze_after_s)
        """How long a silence must be to be worth a system call, in seconds."""

    @property
    def long_s(self) -> float:
        """How long an interval between two chunks must be for `waited` to be asked at its end."""
        return self.candidate_s if self._pulse is None else min(LOOP_WAIT_S, self.candidate_s)

    @property
    def is_responsive(self) -> Callable[[float], bool]:
        """Whether now, at the end of a long interval that was no candidate, there is nothing to ask. It takes no lock.

        Below half a freeze the connection is not asked and no freeze can have been told, and a loop whose heart beats
        says for the whole process that it does not stand still.
        """
        return _always if self._pulse is None else self._pulse.is_responsive

    @property
    def _silence(self) -> Silence:
        """What samples of the connection have shown; made with the first, since most streams need none."""
        if self._seen is None:
            self._seen = Silence()
        return self._seen

    @property
    def sees_blocks(self) -> bool:
        """Whether anything here can tell a wait for the server from a wait for ourselves."""
        return self._pulse is not None or self._wire is not None

    def nothing_until(self, session: Session, now: float) -> float | None:
        """Until when there is nothing to look at, if output has just come and been waited for; else None. No lock."""
        if session.steady is None or session.frozen:
            return None
        if self._wire is None:
            since, until_s = session.last_event, 2 * self.candidate_s
        else:
            since, until_s = min(session.last_event, session.caught_up), self.candidate_s
        return since + until_s if now - since < until_s else None

    def blocked_seconds(self, session: Session, now: float, *, spoke: bool = False) -> float:
        """A long wait ends with a chunk: the seconds of it in which the chunk was there already.

        `spoke` says that the chunk ends the silence: it carries output, or finishes. A ping does neither.
        """
        wait_from = session.wait_from
        if wait_from is None or now - wait_from <= CAUGHT_UP_S:
            return 0.0  # it lay ready: whatever silence there was, this wait is none of it
        stalled = self._stalled_since(now)
        blocked_from = self._blocked_since(now, stalled)
        arrival = now if blocked_from is None else max(blocked_from, wait_from)
        last_content = session.last_content  # None: waiting for the first output is no silence of an answer
        if self._wire is not None and last_content is not None and now - last_content >= self.candidate_s:
            blocked = blocked_from is not None
            arrival = self._arrival(session, self._wire, arrival, last_content, blocked=blocked, now=now)
            if arrival <= wait_from:
                pass  # what he got lay there when he asked: he has waited out nothing
            elif spoke:
                self._waited(session, arrival, caught_up=not blocked)
            elif not blocked:
                self._silence.goes_on(last_content)
        if session.frozen and session.freeze_after_s is not None:
            # When the freeze was told, the server had been silent for that long; it stays true.
            arrival = max(arrival, wait_from + session.freeze_after_s - session.gap)
        blocked_s = now - min(max(arrival, wait_from), now)
        if stalled is not None:
            session.stood_still += min(blocked_s, now - stalled)
        return blocked_s

    def thawed(self, session: Session) -> None:
        """A freeze that the caller waited for, in one wait or in many, has ended: no part of it is hidden."""
        began = session.last_gap_at
        if self._wire is None or began is None:
            return
        ended = began + session.last_gap
        if not self._silence.accounts_for(ended - CAUGHT_UP_S):
            came_as_read = session.caught_up == session.last_event
            self._silence.waited(began, began, session.last_event if came_as_read else ended)
            self._silence.account_for(session.last_event)

    def look(self, session: Session, now: float) -> float | None:
        """Sample the connection if that can tell something now; say when to look again."""
        wire = self._wire
        if wire is None or session.ended:
            return None
        quiet_since = session.last_event if session.content_chunks else now
        if now - quiet_since < self.candidate_s and now - session.caught_up < self.candidate_s:
            return min(quiet_since, session.caught_up) + self.candidate_s
        if session.in_tail or session.content_chunks == 0:
            return now + self.candidate_s
        blocked = self._pulse is not None and self._pulse.blocked_at(now)
        if session.waiting and not blocked:
            return self._look_at_wait(session, wire, now)
        return self._look_behind(session, wire, now)

    def sure_of_silence(self, session: Session, now: float) -> bool:
        """Whether the caller waits because the server is silent, as far as anyone can tell at this moment."""
        pulse = self._pulse
        unsure = self._stalled_since(now) is not None or (pulse is not None and pulse.blocked_at(now))
        sample = None if self._wire is None else self._wire.sample()
        if sample is None:
            return not unsure
        last_content = session.last_content or now
        self._take(session, sample, last_content, nothing_new=not unsure)
        if self._silence.first_output_after(session.wait_from or now) is not None:
            return False
        # While our own side cannot read, the server is silent only if nothing has come since the last output was read.
        return not unsure or sample.last_data_at <= last_content + SHARP_S

    def ending(self, session: Session, now: float) -> None:
        """The stream ends now, before the session knows: settle what was seen of its silences."""
        silence, wire = self._silence, self._wire
        if wire is None:
            return
        sample = wire.sample()  # None: the connection may be gone by now
        self._catch_up(session, sample)
        if silence.last is not None:
            silence.settle((sample or silence.last).received)
        if session.last_content is None or session.in_tail:
            return
        if session.wait_from is not None:
            if now - session.last_content >= self.candidate_s:
                self._waited(session, now, caught_up=True)
        elif silence.since is not None and silence.since <= session.last_content + SHARP_S:
            begun = silence.waited(silence.since, silence.since, now)
            if (
                begun is not None
                and session.freeze_after_s is not None
                and now - begun >= session.freeze_after_s
            ):
                silence.hide(begun, now)

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
        longest = None if self._seen is None else self._seen.longest
        return max((gap for gap in (longest, max_gap) if gap is not None), default=None)

    def take_hidden_gaps(self, limit: float) -> list[tuple[float, float]]:
        """Silences of at least `limit` seconds that the caller did not wait for, newly known: begin and length."""
        if self._seen is None or not self._seen.hidden:
            return []
        found = [(start, end - start) for start, end in self._seen.hidden if end - start >= limit]
        self._seen.hidden.clear()
        return found

    def _blocked_since(self, now: float, stalled: float | None) -> float | None:
        blocked = None if self._pulse is None else self._pulse.blocked_since(now)
        known = [moment for moment in (stalled, blocked) if moment is not None]
        return min(known) if known else None

    def _arrival(
        self,
        session: Session,
        wire: WireClock,
        arrival: float,
        last_content: float,
        *,
        blocked: bool,
        now: float,
    ) -> float:
        sample = wire.sample()
        if sample is None:
            return arrival
        self._take(session, sample, last_content, nothing_new=not blocked)
        if not blocked and sample.at - sample.last_data_at < SHARP_S:
            return now  # taken as it came
        came = self._silence.first_output_after(session.wait_from or now)
        if came is not None:
            return came
        # Nobody looked while it came. Without a blocked loop to explain it, this thread was starved of time to take it.
        return arrival if blocked else sample.last_data_at

    def _catch_up(self, session: Session, sample: Sample | None) -> None:
        last = self._silence.last
        if last is None or session.caught_up <= last.at:
            return
        if sample is not None:
            pieces = sample.segments - last.segments
            if pieces <= 0 or (pieces == 1 and sample.last_data_at > session.caught_up + SHARP_S):
                return  # nothing had come by then: he read what lay there, and waited for his own slowness
        # A ping that was read ends no silence: only output does, or the finish.
        if session.in_tail or (session.last_content is not None and session.last_content > last.at):
            self._silence.caught_up(in_answer=not session.in_tail)

    def _waited(self, session: Session, until: float, *, caught_up: bool) -> None:
        """The wait in progress ends a silence; the caller may not have been there from its beginning."""
        if session.last_content is None or session.in_tail or session.wait_from is None:
            return
        silence, since, asked = self._silence, session.last_content, session.wait_from
        limit = math.inf if session.freeze_after_s is None else session.freeze_after_s
        # Of a freeze that he waited for no part is hidden, whatever he held meanwhile.
        froze = session.gap + until - asked >= limit
        begun = silence.waited(since, since if froze else asked, until)
        # The kernel's clock is good for milliseconds: a silence that was waited out from its beginning is the wait.
        if begun is not None and not froze and asked - begun > SHARP_S and until - begun >= limit:
            silence.hide(begun, until)
        if caught_up:
            silence.caught_up()

    def _look_at_wait(self, session: Session, wire: WireClock, now: float) -> float:
        gap = session.open_gap(now)
        if gap < self.candidate_s:
            return now + self.candidate_s - gap
        last = self._silence.last
        stale = last is None or session.caught_up > last.at
        if stale or (self._pulse is None and last is not None and now - last.at > self.candidate_s):
            sample = wire.sample()
            if sample is not None:
                self._take(session, sample, session.last_content or now, nothing_new=True)
        # A loop may block in the middle of a wait, and then somebody must look in its place.
        return now + (BEAT_S if self._pulse is not None else self.candidate_s)

    def _look_behind(self, session: Session, wire: WireClock, now: float) -> float | None:
        sample = wire.sample()
        if sample is None:
            return None
        # What lies unread came since the caller read last. If it is next to nothing, it is no output. Asked after the
        # sample, so that nothing which it knows of can have come in between.
        unread = wire.unread() if self._silence.last is None else None
        nothing_new = unread is not None and unread <= SMALL
        self._take(session, sample, session.last_content or now, nothing_new=nothing_new)
        quiet = self._silence.quiet_for(sample)
        wait = FINENESS * quiet if quiet >= self.candidate_s else self.candidate_s - quiet
        return now + max(wait, FINEST_S)

    def _take(self, session: Session, sample: Sample, last_content: float, *, nothing_new: bool) -> None:
        self._catch_up(session, sample)
        # Whoever reads a ping has read all that came before it.
        emptied = session.caught_up if session.caught_up > last_content else -math.inf
        self._silence.look(sample, last_content, nothing_new=nothing_new, emptied=emptied)
