"""Which monitor is in force: the client's own, the one of the function at work, or that of the whole process."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context
from opentelemetry import trace

if TYPE_CHECKING:
    from midstream.runtime.monitor import Monitor


class Scope:
    """A monitored function, or a stream of unknown make, at work: the streams that open inside are its own.

    They are what the answer is made of, so whatever they are turned into outside is not an answer of its own.
    """

    __slots__ = ("_on_stream", "ended", "monitor", "parent", "streams")

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.ended = False
        """Whether the function has returned, or the stream has ended. Tasks that were started inside still have the
        scope in their context then, and it means nothing there."""
        self.streams = 0
        self.parent = _in_force()
        self._on_stream: Callable[[], None] | None = None

    def on_stream(self, told: Callable[[], None]) -> None:
        """Have `told` called when a stream opens inside."""
        self._on_stream = told

    def opened(self) -> None:
        """A stream has opened inside."""
        self.streams += 1
        if self._on_stream is not None:
            self._on_stream()
        if self.parent is not None:
            self.parent.opened()

    def enter(self) -> Token[Scope | None]:
        """Put the scope in force until `leave`. Never held over a `yield` of the caller's."""
        return _scope.set(self)


def leave(token: Token[Scope | None]) -> None:
    """Put back what was in force before `enter`."""
    try:  # noqa: SIM105 - `suppress` would cost each step of a stream as much as the rest of it
        _scope.reset(token)
    except ValueError:  # left from another context: its variables are gone with it
        pass


_scope: ContextVar[Scope | None] = ContextVar("midstream_scope", default=None)


class Clients:
    """The monitored clients, kept beside them and not on them: a client may be copied, and shared, as before."""

    def __init__(self) -> None:
        self._monitors: dict[int, tuple[weakref.ref[Any], Monitor]] = {}
        self.everyone: Monitor | None = None
        """The monitor of all clients that have none of their own."""
        self.functions = False
        """Whether there are monitored functions, in which any client's calls are followed."""
        self.awaited = False
        """Whether the SDK's import is being waited for."""

    @property
    def in_use(self) -> bool:
        """Whether any call could have to be followed."""
        return self.functions or self.everyone is not None or bool(self._monitors)

    def register(self, client: Any, monitor: Monitor) -> None:
        """Give a client a monitor of its own, in place of an earlier one."""
        key = id(client)
        self._monitors[key] = (weakref.ref(client, lambda _: self._monitors.pop(key, None)), monitor)

    def own(self, client: Any) -> Monitor | None:
        """The monitor that this client was given."""
        entry = self._monitors.get(id(client))
        return entry[1] if entry is not None and entry[0]() is client else None

    def monitor_of(self, client: Any) -> Monitor | None:
        """The monitor in force for a call of this client, here and now: the closest one."""
        own = self.own(client)
        if own is not None:
            return own
        scope = _in_force()
        if scope is not None:
            return scope.monitor
        return None if self.everyone is None or _suppressed() else self.everyone


def opened_inside() -> None:
    """Tell the function at work, if any, that a stream has opened in it."""
    scope = _in_force()
    if scope is not None:
        scope.opened()


def _in_force() -> Scope | None:
    scope = _scope.get()
    while scope is not None and scope.ended:
        scope = scope.parent
    return scope


def _suppressed() -> bool:
    """Whether the caller asked OpenTelemetry's instrumentations to look away for now."""
    context = otel_context.get_current()
    for key in _SUPPRESS:
        if context.get(key):
            return not _is_span_of_an_sdk(trace.get_current_span(context))
    return False


def _is_span_of_an_sdk(span: Any) -> bool:
    """Whether an instrumentation of an SDK made this span around the call, and so asked for what is below to be quiet.

    Logfire's do (`logfire.openai`), which would otherwise record a call twice. It was not the caller's wish.
    """
    scope = getattr(getattr(span, "instrumentation_scope", None), "name", None)
    return isinstance(scope, str) and scope.rpartition(".")[2] in _SDKS


_SDKS = {"openai", "anthropic"}
_SUPPRESS = (
    *(key for key in (getattr(otel_context, "_SUPPRESS_INSTRUMENTATION_KEY", None),) if key),
    "suppress_instrumentation",
)
