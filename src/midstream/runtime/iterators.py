"""Iterators of any make, followed step by step: what raises once may go on, and what is read twice at once may like it.

The SDK's own streams are generators, and have a shorter way (`_streams`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from midstream.runtime.tracker import Tracker
from midstream.stream.chunks import Reader

if TYPE_CHECKING:
    from typing_extensions import Self


class _Followed:
    """A source, and what follows it. `hide` names chunks that are there only because we asked for them."""

    __slots__ = ("__weakref__", "_clock", "_hide", "_next", "_read", "_session", "_tracker", "source")
    _step: ClassVar[str]

    def __init__(
        self,
        source: Any,
        tracker: Tracker,
        read: Reader,
        hide: Callable[[Any], bool] | None = None,
    ) -> None:
        self.source = source
        self._next = getattr(tracker.endable(source), self._step)
        self._tracker = tracker
        self._session = tracker.session
        self._read = read
        self._clock = tracker.clock
        self._hide = hide

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def __del__(self) -> None:
        self._tracker.dropped()


class Steps(_Followed):
    """Yields what `source` yields."""

    __slots__ = ()
    _step = "__next__"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        session, clock = self._session, self._clock
        if session.wait_from is not None or session.ended:
            return self._next()  # one more call than there are waits is not ours to time
        while True:
            try:
                session.begin_wait(clock())
                chunk = self._next()
                self._tracker.read(chunk, self._read, clock())
            except StopIteration:
                self._tracker.exhausted(clock())
                raise
            except BaseException as exc:
                self._tracker.failed(exc, clock())
                raise
            if self._hide is None or not self._hide(chunk):
                return chunk


class AsyncSteps(_Followed):
    """The same for an async source. The source is awaited in the caller's own task, never in another."""

    __slots__ = ()
    _step = "__anext__"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        session, clock = self._session, self._clock
        if session.wait_from is not None or session.ended:
            return await self._next()
        while True:
            try:
                session.begin_wait(clock())
                chunk = await self._next()
                self._tracker.read(chunk, self._read, clock())
            except StopAsyncIteration:
                self._tracker.exhausted(clock())
                raise
            except BaseException as exc:
                self._tracker.failed(exc, clock())
                raise
            if self._hide is None or not self._hide(chunk):
                return chunk
