"""The stall timeout: ends the read in progress once the server's gap has reached its limit.

The watcher decides, by the same attribution as for freezes. What ends a read depends on what the caller waits on: the
socket of the connection, which is shut down so that the pending read returns; a step of a coroutine, whose future is
cancelled on its own loop while the task that awaits it is not; or something that has a way of its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, Protocol

from midstream._support.internal_errors import OnceLog
from midstream._support.lifecycle import RecoverableLock
from midstream._support.sanitize import clean
from midstream.attribution.event_loop_lag import TURNS
from midstream.attribution.rule import Attribution
from midstream.stream.phases import StallLimits
from midstream.stream.session import HOLDING_RECHECK_S, Session
from midstream.stream.stalled import LibraryTimeout, StreamStalled, stalled

_log = OnceLog()
CANNOT = (
    "a stream is past its stall timeout and its read cannot be ended: the connection is not known, or other streams "
    "share it (see docs/stall-timeout.md)"
)


class ReadEnd(Protocol):
    """A way to end the read in progress."""

    has_ended: bool
    """Whether it has ended a read."""

    def end(self, same_wait: Callable[[], bool]) -> bool:
        """End it, from any thread, if `same_wait()` still holds; False if it cannot be ended."""


class SocketEnd:
    """Shuts a connection down that serves this stream alone: the pending read returns as at the end of the data."""

    __slots__ = ("_loop", "_socket", "has_ended")

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._socket = connection
        self._loop = loop
        self.has_ended = False

    def end(self, same_wait: Callable[[], bool]) -> bool:
        """Shut it down, on the loop that reads from it if one does: what has come by then is read before."""

        def shut_down() -> None:
            if not self.has_ended and same_wait() and not self._shut_down():
                _log.warn("end", CANNOT)

        if self._loop is not None:
            return _soon(self._loop, shut_down)
        return not same_wait() or self._shut_down()

    def _shut_down(self) -> bool:
        """Shut it down for both directions, below its TLS if it has any."""
        self.has_ended = True
        connection, ssl = self._socket, sys.modules.get("ssl")
        try:
            if ssl is not None and isinstance(connection, ssl.SSLSocket):
                # Its own method would drop the TLS state under the read.
                super(ssl.SSLSocket, connection).shutdown(socket.SHUT_RDWR)  # type: ignore[misc]
            else:
                connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return True  # it is closed, and the read has ended
        except (AttributeError, TypeError):  # uvloop's sockets have the method and refuse it
            self.has_ended = _shut_down_by_number(connection)
        return self.has_ended


def _shut_down_by_number(connection: Any) -> bool:
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)
    except (OSError, AttributeError, TypeError, ValueError):
        return False
    return True


class CallEnd:
    """Calls something that ends the read, on this loop or, without one, at once."""

    __slots__ = ("_call", "_loop", "has_ended")

    def __init__(self, call: Callable[[], object], loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._call = call
        self._loop = loop
        self.has_ended = False

    def end(self, same_wait: Callable[[], bool]) -> bool:
        """Call it if the wait is still the same by then."""

        def call() -> None:
            if not self.has_ended and same_wait():
                self.has_ended = True
                self._call()

        if self._loop is None:
            call()
            return True
        return _soon(self._loop, call)


class StepEnd:
    """Ends the step of an async source that is awaited now, as a cancellation would, without cancelling the task."""

    __slots__ = ("_cancelled_before", "_loop", "_task", "has_ended")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        self._cancelled_before = 0
        self.has_ended = False

    def end(self, same_wait: Callable[[], bool]) -> bool:
        """Cancel the future that the reading task waits for."""

        def cancel() -> None:
            waits_for = getattr(self._task, "_fut_waiter", None)
            # It may be asked for several times while the loop is blocked; a second cancellation would report False.
            if not self.has_ended and waits_for is not None and same_wait():
                self.has_ended = waits_for.cancel()

        return _soon(self._loop, cancel)

    def begin(self) -> None:
        """A step begins in the task that runs now."""
        self._task = asyncio.current_task()
        self._cancelled_before = _cancellations(self._task)

    def is_cancelled_by_others(self) -> bool:
        """Whether the task was cancelled during this step; one that it survived before does not count."""
        return _cancellations(self._task) > self._cancelled_before

    def over(self) -> None:
        """No step is in progress."""
        self._task = None


def _cancellations(task: asyncio.Task[Any] | None) -> int:
    """How often the task was asked to end; 0 before Python 3.11, where that is not known."""
    cancelling = getattr(task, "cancelling", None)
    return 0 if cancelling is None else int(cancelling())


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> bool:
    """Call it on the loop once what has come by now is delivered: the loop may be blocked until it gets to this."""

    def turn(left: int) -> None:
        if left:
            loop.call_soon(turn, left - 1)
        else:
            call()

    try:
        loop.call_soon_threadsafe(turn, TURNS)
    except RuntimeError:  # the loop is closed
        return False
    return True


class EndableSource:
    """An async source whose steps can be ended by a `StepEnd`."""

    __slots__ = ("_end", "_guard", "_next")

    def __init__(self, source: Any, end: StepEnd, guard: StallGuard) -> None:
        self._next = source.__anext__
        self._end = end
        self._guard = guard

    def __aiter__(self) -> EndableSource:
        return self

    async def __anext__(self) -> Any:
        end = self._end
        end.begin()
        try:
            return await self._next()
        except asyncio.CancelledError:
            if self._guard.error is None or end.is_cancelled_by_others():
                raise
            raise self._guard.error from None
        finally:
            end.over()


class StallGuard:
    """The stall timeout of one stream. The watcher asks `due` and calls `fire`; the iterator raises `error`."""

    __slots__ = ("_end", "_error", "_is_armed", "_library", "_limits", "_stood_still")

    def __init__(
        self,
        limits: StallLimits,
        end: ReadEnd | None,
        library: LibraryTimeout | None,
        stood_still: Callable[[float, float], float],
    ) -> None:
        self._limits = limits
        self._end = end
        self._is_armed = True
        self._library = library
        self._stood_still = stood_still
        self._error: StreamStalled | None = None

    @property
    def error(self) -> StreamStalled | None:
        """What the caller's read raises, once it has been ended here."""
        return self._error if self._end is not None and self._end.has_ended else None

    def due(self, session: Session, now: float) -> float | None:
        """The earliest moment at which the read in progress can have to be ended; None if that cannot come any more."""
        if not self._is_armed or self.error is not None:
            return None
        if session.ended or session.in_tail or session.answer.finished:
            return None
        limit = self.limit(session)
        if limit is None:  # the next phase may have one
            return now + (self._limits.shortest or HOLDING_RECHECK_S)
        left = max(0.0, limit - self.waited(session, now))
        return now + (left if session.waiting else max(left, HOLDING_RECHECK_S))

    def waited(self, session: Session, now: float) -> float:
        """How long the caller has waited for output by now; not counted is when the whole process stood still."""
        wait_from = session.wait_from
        since = now if wait_from is None else wait_from
        before = session.gap if session.content_chunks else session.waited - session.blocked
        return before + now - since - self._stood_still(since, now)

    def check(
        self, session: Session, attribution: Attribution, lock: RecoverableLock, now: float
    ) -> float | None:
        """End the read in progress if its time is over and the server's; the moment of the next check."""
        due = self.due(session, now)
        if due is None or due > now:
            return due
        with lock:
            if session.waiting and attribution.is_server_silent(session, now, self.limit(session)):
                self.fire(session, now)
        return now + HOLDING_RECHECK_S

    def fire(self, session: Session, now: float) -> None:
        """End the read in progress if the limit is still reached. Called under the lock under which `release` is."""
        end, limit, asked = self._end, self.limit(session), session.wait_from
        if not self._is_armed or self.error is not None or limit is None or asked is None or session.ended:
            return
        counted_s = self.waited(session, now)
        if counted_s < limit:
            return
        # The gap is as long as the log and the record have it: with the time in which the process stood still.
        self._error = self._error_for(session, counted_s + self._stood_still(asked, now))
        if end is None or not end.end(lambda: self._is_armed and session.wait_from == asked):
            self._is_armed = False
            _log.warn("end", CANNOT)

    def endable(self, source: Any) -> Any:
        """An async source whose steps can be ended, where nothing else ends them; else the source itself."""
        return EndableSource(source, self._end, self) if isinstance(self._end, StepEnd) else source

    def release(self) -> None:
        """The connection goes back to its pool, or is closed: it is not to be touched any more."""
        self._is_armed = False

    def instead_of(self, session: Session, exc: BaseException | None) -> StreamStalled | None:
        """What to raise in place of this exception, or at the end of the data (None), if we ended the read."""
        if exc is None:
            return None if session.answer.finished else self.error
        return self.error if isinstance(exc, Exception) else None

    def limit(self, session: Session) -> float | None:
        """The limit in force for what the caller waits for now, in seconds."""
        limits = self._limits
        return limits.gap.of(session.phase) if session.content_chunks else limits.first_content_s

    def _error_for(self, session: Session, gap_s: float) -> StreamStalled:
        call, phase, count = session.call, session.phase, session.content_chunks
        model = clean(call.request_model or session.answer.model or "an unnamed model")
        server = clean(call.server_address or "an unnamed server")
        where = f"in {phase}, after {count} content chunks" if count else "and none before"
        # LiteLLM recognises the openai SDK's timeouts by the first three words alone.
        message = f"Request timed out: no output from {model} at {server} for {gap_s:.1f} s, {where} (stall timeout)"
        try:
            return stalled(message, gap_s, phase, count, self._library)
        except Exception:  # noqa: BLE001 - a library whose error is made in another way
            return stalled(message, gap_s, phase, count, None)
