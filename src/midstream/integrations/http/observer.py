"""Drives the session of one stream from the pieces of its body, which the reader gets as they came.

The wait of the reader for a piece is the wait for the events that end in it. A piece that ends no event interrupts the
wait and is no chunk: the time before it and after it are one gap. The stream ends with the event that ends it in its
protocol, since many readers stop there and leave the response open, or else with the body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from midstream._support.internal_errors import report_internal_error
from midstream.integrations.http.events import EventSplitter, LineSplitter
from midstream.integrations.http.reading import DONE, Steady, is_last, parse_event
from midstream.runtime.tracker import Tracker
from midstream.stream.chunks import NOTHING, Reading


class BodyObserver:
    """One body of an answer, from the first piece to the end. Holds an unfinished event at most.

    `encoded` says that the pieces are compressed: their arrival is observed by `arrived`, their contents by `decoded`.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_encoded",
        "_long_s",
        "_moment",
        "_read",
        "_session",
        "_splitter",
        "_steady",
        "_whole",
        "tracker",
    )

    def __init__(
        self,
        tracker: Tracker,
        read: Callable[[Any], Reading],
        splitter: EventSplitter | LineSplitter,
        *,
        encoded: bool = False,
    ) -> None:
        self.tracker = tracker
        self._session = tracker.session
        self._clock = tracker.clock
        self._read = read
        self._splitter = splitter
        self._encoded = encoded
        self._long_s = tracker.attribution.long_s
        self._moment = 0.0
        self._steady = Steady()
        self._whole = True
        """Whether the pieces so far end with an event."""

    def asked(self) -> None:
        """The reader asks for the next piece."""
        session = self._session
        if session.ended:
            return
        if session.wait_from is not None:
            self.tracker.on_partial_chunk(self._moment)  # a compressed piece whose contents were not read
        session.begin_wait(self._clock())

    def arrived(self, piece: bytes) -> None:
        """The wait ended with this piece."""
        self._moment = now = self._clock()
        if not self._encoded and not self._session.ended:
            self._take(piece, now)

    def decoded(self, piece: bytes) -> None:
        """What the last compressed piece holds."""
        if self._session.ended:
            return
        if self._session.wait_from is None:  # more of the same piece
            self._moment = self._clock()
            self._session.begin_wait(self._moment)
        self._take(piece, self._moment)

    def exhausted(self) -> None:
        """The body has ended."""
        now = self._clock()
        try:
            for name, data in self._splitter.rest():
                self._event(name, data, now)
                self._session.begin_wait(now)
        except Exception as exc:  # noqa: BLE001
            report_internal_error("event reader", exc)
        self.tracker.exhausted(now)

    def failed(self, exc: BaseException) -> None:
        """The wait ended with an exception."""
        self.tracker.failed(exc, self._clock())

    def closed(self, exc: BaseException | None) -> None:
        """The reader closes the response, perhaps because of this exception."""
        self.tracker.release()
        self.tracker.closed(exc)

    def _take(self, piece: bytes, now: float) -> None:
        try:
            at, length = 0, len(piece)
            while at < length:
                if self._whole:
                    count, at = self._steady.run(piece, at)
                    if count:
                        self._steadies(count, now)
                        if at == length:
                            return
                end = piece.find(b"\n\n", at) + 2
                part = piece[at : end if end > 1 else length]
                at += len(part)
                self._parse(part, now)
        except Exception as exc:  # noqa: BLE001 - a piece may be anything at all
            report_internal_error("event reader", exc)
        if self._session.wait_from is not None:
            self.tracker.on_partial_chunk(now)

    def _steadies(self, count: int, now: float) -> None:
        """So many events came that were recognised by their bytes."""
        session, reading = self._session, self._steady.reading or NOTHING
        while reading is not session.steady or now - session.last_event >= self._long_s:
            if session.wait_from is None:
                session.begin_wait(now)
            self.tracker.read(None, lambda _: reading, now)
            count -= 1
            if not count:
                return
        if session.wait_from is None:
            session.begin_wait(now)
        session.on_steady_chunk(now, count)

    def _parse(self, part: bytes, now: float) -> None:
        session, splitter, whole = self._session, self._splitter, self._whole
        for name, data in splitter.split(part):
            if session.wait_from is None:
                session.begin_wait(now)
            reading = self._event(name, data, now)
            if whole and reading is not None and reading is session.steady and not splitter.pending:
                self._steady.learn(part, reading, self._reading_of)
        self._whole = not splitter.pending

    def _event(self, name: bytes, data: bytes, now: float) -> Reading | None:
        if data == DONE:
            self.tracker.exhausted(now, marked=True)
            return None
        value = parse_event(name, data)
        reading = self._read(value)
        self.tracker.read(value, lambda _: reading, now)
        if is_last(value):
            self.tracker.exhausted(now, marked=True)
        return reading

    def _reading_of(self, piece: bytes) -> Reading:
        splitter = type(self._splitter)()
        events = splitter.split(piece)
        return self._read(parse_event(*events[0])) if len(events) == 1 and not splitter.pending else NOTHING
