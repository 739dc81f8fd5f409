"""The hot path: what stands between the SDK's own generator and the caller, sync and async side by side.

A generator here costs half of what a class with `__next__` does, and an async one a third: no call, no coroutine, and
its variables at hand. Per chunk it reads the clock twice, classifies the chunk, and passes it on as it came. While
chunks are alike, which is nearly always, it does in place what `Session.on_steady_chunk` does: these are the only lines
outside of `stream.session` that write fields of a session. The two loops are one text, which a test makes sure of.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

from midstream.attribution.rule import LOOP_WAIT_S
from midstream.runtime.host import Sentinel
from midstream.runtime.tracker import Tracker
from midstream.stream.chunks import Reader
from midstream.stream.session import CAUGHT_UP_S


class Chunks:
    """Yields what `source` yields. `hide` names chunks that are there only because we asked for them.

    A loop gets the generator itself. Everything else that is asked of this object, `source` answers.
    """

    __slots__ = ("__weakref__", "_passing", "source")

    def __init__(
        self,
        source: Generator[Any, Any, Any],
        tracker: Tracker,
        read: Reader,
        hide: Callable[[Any], bool] | None = None,
    ) -> None:
        self.source = source
        self._passing = _pass(source, tracker, read, hide)
        next(self._passing)  # begun: now it is ended properly, also if it is never read

    def __iter__(self) -> Iterator[Any]:
        return self._passing

    def __next__(self) -> Any:
        return self._passing.__next__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)


class AsyncChunks:
    """The same for an async source. The source is awaited in the caller's own task, never in another."""

    __slots__ = ("__weakref__", "_passing", "source")

    def __init__(
        self,
        source: AsyncGenerator[Any, Any],
        tracker: Tracker,
        read: Reader,
        hide: Callable[[Any], bool] | None = None,
    ) -> None:
        self.source = source
        self._passing = _apass(tracker.endable(source), tracker, read, hide)
        # The event loop would make a task to close it, and count it among its own: it needs neither.
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)
        try:
            with suppress(StopIteration):
                self._passing.__anext__().send(None)
        finally:
            sys.set_asyncgen_hooks(*hooks)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._passing

    def __anext__(self) -> Any:
        return self._passing.__anext__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)


def _pass(
    source: Generator[Any, Any, Any],
    tracker: Tracker,
    read: Reader,
    hide: Callable[[Any], bool] | None,
) -> Generator[Any, None, None]:
    clock, session = tracker.clock, tracker.session
    candidate_s, is_responsive = tracker.attribution.candidate_s, tracker.attribution.is_responsive
    steady, longest, longest_hold, last = None, 0.0, 0.0, session.opened
    _sentinel = Sentinel(tracker)
    try:
        yield
        session.wait_from = asked = clock()
        for chunk in source:
            now = clock()
            wait, hold, last = now - asked, asked - last, now
            try:
                reading = read(chunk)
                if (
                    reading is steady
                    and wait + hold < candidate_s
                    and (wait + hold < LOOP_WAIT_S or is_responsive(now))
                ):
                    session.wait_from = None
                    session.content_chunks += 1
                    session.waited += wait
                    if wait > CAUGHT_UP_S:
                        session.caught_up = now
                    if wait + hold > longest or hold > longest_hold:
                        session.update_maxima(hold, wait)
                        _, longest, longest_hold = session.fast_path_state
                    session.last_event = now
                else:
                    tracker.chunk(reading, chunk, now)
                    steady, longest, longest_hold = session.fast_path_state
                    if hide is not None and hide(chunk):
                        session.wait_from = asked = clock()
                        continue
            except Exception as exc:  # noqa: BLE001 - a chunk may be anything at all
                tracker.on_unreadable_chunk(now, exc)
                steady = None
            yield (chunk, chunk := None)[0]  # hands it over: while the caller has it, it is not kept here
            session.wait_from = asked = clock()
    except BaseException as exc:
        tracker.failed(exc, clock())
        raise
    tracker.exhausted(clock())


async def _apass(
    source: AsyncGenerator[Any, Any],
    tracker: Tracker,
    read: Reader,
    hide: Callable[[Any], bool] | None,
) -> AsyncGenerator[Any, None]:
    clock, session = tracker.clock, tracker.session
    candidate_s, is_responsive = tracker.attribution.candidate_s, tracker.attribution.is_responsive
    steady, longest, longest_hold, last = None, 0.0, 0.0, session.opened
    _sentinel = Sentinel(tracker)
    try:
        yield
        session.wait_from = asked = clock()
        async for chunk in source:
            now = clock()
            wait, hold, last = now - asked, asked - last, now
            try:
                reading = read(chunk)
                if (
                    reading is steady
                    and wait + hold < candidate_s
                    and (wait + hold < LOOP_WAIT_S or is_responsive(now))
                ):
                    session.wait_from = None
                    session.content_chunks += 1
                    session.waited += wait
                    if wait > CAUGHT_UP_S:
                        session.caught_up = now
                    if wait + hold > longest or hold > longest_hold:
                        session.update_maxima(hold, wait)
                        _, longest, longest_hold = session.fast_path_state
                    session.last_event = now
                else:
                    tracker.chunk(reading, chunk, now)
                    steady, longest, longest_hold = session.fast_path_state
                    if hide is not None and hide(chunk):
                        session.wait_from = asked = clock()
                        continue
            except Exception as exc:  # noqa: BLE001 - a chunk may be anything at all
                tracker.on_unreadable_chunk(now, exc)
                steady = None
            yield (chunk, chunk := None)[0]  # hands it over: while the caller has it, it is not kept here
            session.wait_from = asked = clock()
    except BaseException as exc:
        tracker.failed(exc, clock())
        raise
    tracker.exhausted(clock())
