"""Attribution: how much of a wait was the server's gap, and what the server did while the caller was busy.

Three observers, asked only when a wait or a hold is long enough to matter: the lag of the event loop, the lag of the
process's own watcher thread, and the wire clock. Where they disagree the wire clock decides, since it saw the bytes.
Without one, all the time for which our own side was too busy to deliver is taken off: the gap is a lower bound then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from midstream.attribution.event_loop_lag import BEAT_S, Heartbeat
from midstream.attribution.tcp_info import Sample, WireClock
from midstream.attribution.wire_gap import FINENESS, FINEST_S, SHARP_S, SMALL, WireGaps
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
        self._seen: WireGaps | None = None
        self.candidate_s = _candidate_s(freeze_after_s)
        """How long a gap must be to be worth a system call, in seconds."""

    @property
    def long_s(self) -> float:
        """How long an interval between two chunks must be for `waited` to be asked at its end."""
        return self.candidate_s if self._pulse is None else min(LOOP_WAIT_S, self.candidate_s)

    @property
    def is_responsive(self) -> Callable[[float], bool]:
        """Whether now, at the end of a long interval that was no candidate, there is nothing to ask. It takes no lock.

        Below half a freeze the connection is not asked and no freeze can have been announced, and a responsive loop
        shows that the whole process is.
        """
        return _always if self._pulse is None else self._pulse.is_responsive

    @property
    def _wire_gaps(self) -> WireGaps:
        """What samples of the connection have shown; made with the first, since most streams need none."""
        if self._seen is None:
            self._seen = WireGaps()
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

        `spoke` says that the chunk ends the gap: it carries output, or finishes. A ping does neither.
        """
        wait_from = session.wait_from
        if wait_from is None or now - wait_from <= CAUGHT_UP_S:
            return 0.0  # it lay ready: whatever gap there was, this wait is no part of it
        stalled = self._stalled_since(now)
        blocked_from = self._busy_since(now, stalled)
        arrival = now if blocked_from is None else max(blocked_from, wait_from)
        last_content = session.last_content  # None: waiting for the first output is no gap
        if self._wire is not None and last_content is not None and now - last_content >= self.candidate_s:
            blocked = blocked_from is not None
            arrival = self._arrival(session, arrival, last_content, blocked=blocked, now=now)
            if blocked_from is not None and self._pulse is not None:
                arrival = max(arrival, blocked_from)  # what had come before, the loop would have delivered
            if arrival <= wait_from:
                pass  # the chunk was already there when the caller asked: no waiting time
            elif spoke:
                self._waited(session, arrival, caught_up=not blocked)
            elif not blocked:
                self._wire_gaps.goes_on(last_content)
        return self._taken_off(session, arrival, now, stalled if blocked_from is not None else None)

    def busy_seconds(self, session: Session, now: float) -> float:
        """A long wait ends without a chunk: the seconds of it in which one may have been there, undelivered."""
        wait_from = session.wait_from
        if wait_from is None:
            return 0.0
        stalled = self._stalled_since(now)
        busy_from = self._busy_since(now, stalled)
        if busy_from is None:
            return 0.0
        arrival = max(busy_from, wait_from)
        sample = self._sample()
        if sample is not None and session.last_content is not None:
            self._take(session, sample, session.last_content, nothing_new=False)
            came = self._wire_gaps.first_output_after(wait_from)
            if came is None and sample.last_data_at <= arrival:
                return 0.0  # nothing has come all the while
            arrival = arrival if came is None else came
        return self._taken_off(session, arrival, now, stalled)

    def _taken_off(self, session: Session, arrival: float, now: float, stalled: float | None) -> float:
        """The seconds from the arrival of a chunk to now, for the wait in progress."""
        wait_from = now if session.wait_from is None else session.wait_from
        if session.frozen and session.freeze_after_s is not None:
            # When the freeze was announced, the server had been silent for that long; it stays true.
            arrival = max(arrival, wait_from + session.freeze_after_s - session.gap)
        blocked_s = now - min(max(arrival, wait_from), now)
        if stalled is not None:
            session.note_stood_still(min(blocked_s, now - stalled))
        return blocked_s

    def thawed(self, session: Session) -> None:
        """A freeze that the caller waited for, in one wait or in many, has ended: no part of it is hidden."""
        began = session.last_gap_at
        if self._wire is None or began is None:
            return
        ended = began + session.last_gap
        if not self._wire_gaps.accounts_for(ended - CAUGHT_UP_S):
            came_as_read = session.caught_up == session.last_event
            self._wire_gaps.waited(began, began, session.last_event if came_as_read else ended)
            self._wire_gaps.account_for(session.last_event)

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
        if session.waiting and self._busy_at(now) is None:
            return self._look_at_wait(session, now)
        return self._look_behind(session, wire, now)

    def is_server_silent(self, session: Session, now: float, limit_s: float | None = None) -> bool:
        """Whether the caller waits because the server sends nothing, as far as can be known at this moment.

        `limit_s` is for how long it has to have been so, by default the freeze threshold.
        """
        busy_since = self._busy_at(now)
        limit_s = session.freeze_after_s if limit_s is None else limit_s
        if session.content_chunks == 0:
            return busy_since is None  # before the first output there is no gap: the connection is not asked
        sample = self._sample()
        if sample is None:
            return busy_since is None
        last_content = session.last_content or now
        self._take(session, sample, last_content, nothing_new=busy_since is None)
        if self._wire_gaps.first_output_after(session.wait_from or now) is not None:
            return False
        if busy_since is None:
            return True
        # While our own side delivers late, the server is silent only if nothing has arrived for that long, and
        # if all that came before was delivered: it came before our side was busy, or the loop has turned often since.
        if limit_s is None or now - sample.last_data_at < limit_s:
            return False
        delivered = self._pulse is not None and self._pulse.delivered(sample.last_data_at)
        return delivered or sample.last_data_at <= busy_since

    def ending(self, session: Session, now: float) -> None:
        """The stream ends now, before the session knows: settle what was seen of its gaps."""
        gaps, wire = self._wire_gaps, self._wire
        if wire is None:
            return
        sample = self._sample()  # None: the connection may be gone by now
        self._catch_up(session, sample)
        if gaps.last is not None:
            gaps.settle((sample or gaps.last).received)
        if session.last_content is None or session.in_tail:
            return
        if session.wait_from is not None:
            if now - session.last_content >= self.candidate_s:
                self._waited(session, now, caught_up=True)
        elif gaps.since is not None and gaps.since <= session.last_content + SHARP_S:
            begun = gaps.waited(gaps.since, gaps.since, now)
            if (
                begun is not None
                and session.freeze_after_s is not None
                and now - begun >= session.freeze_after_s
            ):
                gaps.hide(begun, now)

    def close(self) -> None:
        """Let go of the loop and of the connection."""
        pulse, self._pulse = self._pulse, None
        if pulse is not None:
            pulse.leave()
        if self._wire is not None:
            self._wire.close()

    def wire_gap(self, max_gap: float | None) -> float | None:
        """The longest gap on the connection in seconds, never less than `max_gap`; None if it cannot be known."""
        if self._wire is None:
            return None
        longest = None if self._seen is None else self._seen.longest
        return max((gap for gap in (longest, max_gap) if gap is not None), default=None)

    def take_hidden_gaps(self, limit: float) -> list[tuple[float, float]]:
        """Gaps of at least `limit` seconds that the caller did not wait for, newly known: begin and length."""
        if self._seen is None or not self._seen.hidden:
            return []
        found = [(start, end - start) for start, end in self._seen.hidden if end - start >= limit]
        self._seen.hidden.clear()
        return found

    def _busy_since(self, now: float, stalled: float | None) -> float | None:
        """Since when our side has been too busy to deliver, as a chunk comes; a loop knows better than the watcher."""
        if self._pulse is None:
            return stalled
        busy = self._pulse.busy_since(now)
        return busy if busy is None or stalled is None else min(busy, stalled)

    def _busy_at(self, now: float) -> float | None:
        """The same as seen from the watcher's thread."""
        return self._stalled_since(now) if self._pulse is None else self._pulse.busy_at(now)

    def _arrival(
        self,
        session: Session,
        arrival: float,
        last_content: float,
        *,
        blocked: bool,
        now: float,
    ) -> float:
        sample = self._sample()
        if sample is None:
            return arrival
        self._take(session, sample, last_content, nothing_new=not blocked)
        if not blocked and sample.at - sample.last_data_at < SHARP_S:
            return now  # taken as it came
        came = self._wire_gaps.first_output_after(session.wait_from or now)
        if came is not None:
            return came
        # No sample was taken while it came. If no loop was busy, this thread was starved of time to take it.
        return arrival if blocked else sample.last_data_at

    def _catch_up(self, session: Session, sample: Sample | None) -> None:
        last = self._wire_gaps.last
        if last is None or session.caught_up <= last.at:
            return
        if sample is not None:
            pieces = sample.segments - last.segments
            if pieces <= 0 or (pieces == 1 and sample.last_data_at > session.caught_up + SHARP_S):
                return  # nothing had come by then: what was read had been there, and the reader was slow
        # A ping that was read ends no gap: only output does, or the finish.
        if session.in_tail or (session.last_content is not None and session.last_content > last.at):
            self._wire_gaps.caught_up(in_answer=not session.in_tail)

    def _waited(self, session: Session, until: float, *, caught_up: bool) -> None:
        """The wait in progress ends a gap; the caller may not have waited from its beginning."""
        if session.last_content is None or session.in_tail or session.wait_from is None:
            return
        gaps, since, asked = self._wire_gaps, session.last_content, session.wait_from
        limit = math.inf if session.freeze_after_s is None else session.freeze_after_s
        # No part of a freeze that the caller waited for is hidden, whatever the caller held meanwhile.
        froze = session.gap + until - asked >= limit
        begun = gaps.waited(since, since if froze else asked, until)
        # The kernel's clock is good for milliseconds: a gap that was waited for from its beginning is the wait.
        if begun is not None and not froze and asked - begun > SHARP_S and until - begun >= limit:
            gaps.hide(begun, until)
        if caught_up:
            gaps.caught_up()

    def _look_at_wait(self, session: Session, now: float) -> float:
        gap = session.open_gap(now)
        if gap < self.candidate_s:
            return now + self.candidate_s - gap
        last = self._wire_gaps.last
        stale = last is None or session.caught_up > last.at
        if stale or (self._pulse is None and last is not None and now - last.at > self.candidate_s):
            sample = self._sample()
            if sample is not None:
                self._take(session, sample, session.last_content or now, nothing_new=True)
        # A loop may block in the middle of a wait, and then the watcher must look in its place.
        return now + (BEAT_S if self._pulse is not None else self.candidate_s)

    def _look_behind(self, session: Session, wire: WireClock, now: float) -> float | None:
        sample = self._sample()
        if sample is None:
            return None
        # What lies unread came since the caller read last. If it is next to nothing, it is no output. Asked after the
        # sample, so that nothing which it knows of can have come in between.
        # A busy loop may have read it and not delivered it yet.
        unread = wire.unread() if self._wire_gaps.last is None and not session.waiting else None
        nothing_new = unread is not None and unread <= SMALL
        self._take(session, sample, session.last_content or now, nothing_new=nothing_new)
        quiet = self._wire_gaps.quiet_for(sample)
        wait = FINENESS * quiet if quiet >= self.candidate_s else self.candidate_s - quiet
        return now + max(wait, FINEST_S)

    def _sample(self) -> Sample | None:
        """Ask the kernel. A clock that restarts without new data is none, and is given up."""
        wire, last = self._wire, None if self._seen is None else self._seen.last
        sample = None if wire is None else wire.sample()
        if sample is None or last is None or wire is None:
            return sample
        same = sample.segments == last.segments and sample.received == last.received
        if same and sample.last_data_at - last.last_data_at > LOOP_WAIT_S:
            wire.close()
            self._wire = self._seen = None
            return None
        return sample

    def _take(self, session: Session, sample: Sample, last_content: float, *, nothing_new: bool) -> None:
        self._catch_up(session, sample)
        # A ping that was read shows that all before it was read.
        emptied = session.caught_up if session.caught_up > last_content else -math.inf
        self._wire_gaps.look(sample, last_content, nothing_new=nothing_new, emptied=emptied)
