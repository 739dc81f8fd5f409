"""The lifetime of a stream of unknown origin, and the iterators over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from opentelemetry import context as otel_context

from midstream._support.internal_errors import report_internal_error
from midstream.integrations.tracing import current_trace_ids
from midstream.runtime.iterators import AsyncSteps, Steps
from midstream.runtime.monitor import Monitor
from midstream.runtime.scope import Scope, leave
from midstream.runtime.stall import ReadEnd
from midstream.runtime.tracker import Tracker
from midstream.stream.generic_chunks import read_foreign
from midstream.stream.model import Call


class StreamLifetime:
    """One stream until its end. Its proxy and all iterators over it hold this; when they are gone, it has ended."""

    __slots__ = ("scope", "tracker")

    def __init__(self, tracker: Tracker, scope: Scope, monitor: Monitor) -> None:
        self.tracker = tracker
        self.scope = scope

        def defer_to_inner_stream() -> None:
            tracker.withdraw()

        scope.on_stream(defer_to_inner_stream)

    def on_close(self, exc: BaseException | None) -> None:
        """The stream was closed between two chunks."""
        self.scope.ended = True
        try:
            self.tracker.closed(exc)
        except Exception as own:  # noqa: BLE001 - the caller closes as without us
            report_internal_error("close", own)

    def __del__(self) -> None:
        self.scope.ended = True
        self.tracker.dropped()


def open_tracker(
    monitor: Monitor, started: float | None, end: ReadEnd | None = None, *, on_loop: bool
) -> Tracker:
    """Begin to follow a stream of which neither model nor server is known: those labels are left out."""
    trace_id, span_id = current_trace_ids()
    call = Call(
        operation="other",
        provider="",
        server_address="",
        server_port=None,
        request_model="",
        started=started,
        started_at=monitor.process.wall(),
        trace_id=trace_id,
        span_id=span_id,
    )
    return monitor.open(call, otel_context.get_current(), on_loop=on_loop, end=end)


class ScopedSteps(Steps):
    """One iterator over a stream; its own end is not that of the stream."""

    __slots__ = ("_lifetime",)

    def __init__(self, source: Iterator[Any], lifetime: StreamLifetime) -> None:
        self._lifetime = lifetime
        super().__init__(source, lifetime.tracker, read_foreign)

    def __next__(self) -> Any:
        token = self._lifetime.scope.enter()
        try:
            return super().__next__()
        except StopIteration:
            self._lifetime.scope.ended = True
            raise
        finally:
            leave(token)

    def __del__(self) -> None:
        pass


class AsyncScopedSteps(AsyncSteps):
    """The same for an async stream."""

    __slots__ = ("_lifetime",)

    def __init__(self, source: AsyncIterator[Any], lifetime: StreamLifetime) -> None:
        self._lifetime = lifetime
        super().__init__(source, lifetime.tracker, read_foreign)

    async def __anext__(self) -> Any:
        token = self._lifetime.scope.enter()
        try:
            return await super().__anext__()
        except StopAsyncIteration:
            self._lifetime.scope.ended = True
            raise
        finally:
            leave(token)

    def __del__(self) -> None:
        pass
