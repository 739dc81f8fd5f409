"""The life of a stream of another make, and the iterators over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry.trace import format_span_id, format_trace_id

from midstream._support.internal_errors import report_internal_error
from midstream.integrations.openai.streams import current_span
from midstream.runtime.iterators import AsyncSteps, Steps
from midstream.runtime.monitor import Monitor
from midstream.runtime.scope import Scope, leave
from midstream.runtime.tracker import Tracker
from midstream.stream.generic_chunks import read_foreign
from midstream.stream.model import Call


class Life:
    """One stream until its end. Its stand-in and all iterators over it hold it; when they are gone, it has ended."""

    __slots__ = ("scope", "tracker")

    def __init__(self, tracker: Tracker, scope: Scope, monitor: Monitor) -> None:
        self.tracker = tracker
        self.scope = scope

        def give_way() -> None:
            if not tracker.session.ended:
                tracker.disown()
                tracker.attribution.close()
                monitor.closed(tracker)

        scope.on_stream(give_way)

    def left(self, exc: BaseException | None) -> None:
        """The stream was closed between two chunks."""
        try:
            self.tracker.closed(exc)
        except Exception as own:  # noqa: BLE001 - the caller closes as without us
            report_internal_error("close", own)

    def __del__(self) -> None:
        self.tracker.dropped()


def opened(monitor: Monitor, started: float | None, *, on_loop: bool) -> Tracker:
    """Begin to follow a stream of which neither model nor server is known: those labels are left out."""
    span = current_span()
    call = Call(
        operation="other",
        provider="",
        server_address="",
        server_port=None,
        request_model="",
        started=started,
        started_at=monitor.process.wall(),
        trace_id=format_trace_id(span.trace_id) if span.is_valid else None,
        span_id=format_span_id(span.span_id) if span.is_valid else None,
    )
    return monitor.open(call, otel_context.get_current(), on_loop=on_loop)


class LifeSteps(Steps):
    """One iterator over a stream; its own end is not the stream's."""

    __slots__ = ("_life",)

    def __init__(self, source: Iterator[Any], life: Life) -> None:
        self._life = life
        super().__init__(source, life.tracker, read_foreign)

    def __next__(self) -> Any:
        token = self._life.scope.enter()
        try:
            return super().__next__()
        finally:
            leave(token)

    def __del__(self) -> None:
        pass


class AsyncLifeSteps(AsyncSteps):
    """The same for an async stream."""

    __slots__ = ("_life",)

    def __init__(self, source: AsyncIterator[Any], life: Life) -> None:
        self._life = life
        super().__init__(source, life.tracker, read_foreign)

    async def __anext__(self) -> Any:
        token = self._life.scope.enter()
        try:
            return await super().__anext__()
        finally:
            leave(token)

    def __del__(self) -> None:
        pass
