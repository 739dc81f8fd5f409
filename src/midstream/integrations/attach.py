"""The library's front door: `monitor()`, `instrument()` and `streams()`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from midstream.integrations.generic import functions
from midstream.integrations.generic import streams as generic_streams
from midstream.integrations.http import clients as http_clients
from midstream.integrations.openai import clients
from midstream.integrations.openai.streams import adopt
from midstream.runtime.monitor import PROCESS, Monitor
from midstream.runtime.settings import UNSET, ByPhase, EndHook, Hook, Unset, disabled, settings_from
from midstream.stream.model import OpenStream

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

T = TypeVar("T")


class Decorator(Protocol):
    """What `monitor(freeze_after_s=10)` gives: it takes what `monitor()` takes, and gives back the same."""

    def __call__(self, obj: T, /) -> T:
        """Monitor a function, a client or a stream with the settings at hand."""


@overload
def monitor(
    obj: T,
    *,
    freeze_after_s: ByPhase | Unset = ...,
    on_freeze: Hook | None = ...,
    on_thaw: Hook | None = ...,
    on_end: EndHook | None = ...,
    attributes: Mapping[str, str] | Unset | None = ...,
    include_usage: bool | Unset = ...,
    journal: str | os.PathLike[str] | Unset | None = ...,
    stall_timeout_s: ByPhase | Unset = ...,
    first_content_timeout_s: float | Unset | None = ...,
    meter_provider: MeterProvider | None = ...,
) -> T: ...


@overload
def monitor(
    *,
    freeze_after_s: ByPhase | Unset = ...,
    on_freeze: Hook | None = ...,
    on_thaw: Hook | None = ...,
    on_end: EndHook | None = ...,
    attributes: Mapping[str, str] | Unset | None = ...,
    include_usage: bool | Unset = ...,
    journal: str | os.PathLike[str] | Unset | None = ...,
    stall_timeout_s: ByPhase | Unset = ...,
    first_content_timeout_s: float | Unset | None = ...,
    meter_provider: MeterProvider | None = ...,
) -> Decorator: ...


def monitor(
    obj: Any = UNSET,
    *,
    freeze_after_s: ByPhase | Unset = UNSET,
    on_freeze: Hook | None = None,
    on_thaw: Hook | None = None,
    on_end: EndHook | None = None,
    attributes: Mapping[str, str] | Unset | None = UNSET,
    include_usage: bool | Unset = UNSET,
    journal: str | os.PathLike[str] | Unset | None = UNSET,
    stall_timeout_s: ByPhase | Unset = UNSET,
    first_content_timeout_s: float | Unset | None = UNSET,
    meter_provider: MeterProvider | None = None,
) -> Any:
    """Monitor the streams of a client, of a function, or one stream of any make.

        client = monitor(OpenAI())      # every stream of this client, and of the clients derived from it

        @monitor                        # every stream that opens in the function, and the one it returns or yields
        def ask(question): ...

        for chunk in monitor(stream):   # one stream, sync or async

    A client is returned as it is, and so is a stream of the openai SDK; any other stream comes back behind a stand-in
    that is and does what the stream is and does; a function remains one, sync or async, generator or not. Without `obj`
    it is a decorator.

    `freeze_after_s`: server silence in seconds from which a gap is a freeze (default 5, None switches freezes off), or
    a number for each phase: `{"text": 5, "reasoning": 60, "tool_call": 10}`.
    `on_freeze`, `on_thaw`: called with a `Freeze` when a stream freezes, while it lasts, and when it goes on.
    `on_end`: called with the `StreamRecord` of every stream, exactly once. Hooks run on a thread of their own; what
    they raise is logged once and changes nothing for the caller.
    `attributes`: a few fixed attributes for the metrics, such as `{"team": "search"}`.
    `include_usage`: ask the server for token counts where the caller did not decide; the extra chunk stays hidden.
    `journal`: the path of a file that keeps every record (SQLite; see docs/journal.md).
    `stall_timeout_s`: server silence in seconds, one number or one for each phase, after which the connection is closed
    and the pending read raises `StreamStalled`, which is the library's own timeout error too. Off by default.
    `first_content_timeout_s`: the same for the time from the call to the first output.
    `meter_provider`: where the metrics go, by default the global one.

    Keywords win over `MIDSTREAM_FREEZE_AFTER_S`, `MIDSTREAM_STALL_TIMEOUT_S`, `MIDSTREAM_FIRST_CONTENT_TIMEOUT_S`,
    `MIDSTREAM_ATTRIBUTES`, `MIDSTREAM_INCLUDE_USAGE` and `MIDSTREAM_JOURNAL`; `MIDSTREAM_DISABLED=1` leaves everything
    as it is. A second call for the same client replaces its settings.

    Raises ValueError or TypeError for an invalid setting, naming the value and the remedy. Nothing raises later.
    """
    made = _monitor(
        freeze_after_s=freeze_after_s,
        on_freeze=on_freeze,
        on_thaw=on_thaw,
        on_end=on_end,
        attributes=attributes,
        include_usage=include_usage,
        journal=journal,
        stall_timeout_s=stall_timeout_s,
        first_content_timeout_s=first_content_timeout_s,
        meter_provider=meter_provider,
    )
    if obj is UNSET:
        return lambda taken: attach(taken, made)
    return attach(obj, made)


def instrument(
    *,
    freeze_after_s: ByPhase | Unset = UNSET,
    on_freeze: Hook | None = None,
    on_thaw: Hook | None = None,
    on_end: EndHook | None = None,
    attributes: Mapping[str, str] | Unset | None = UNSET,
    include_usage: bool | Unset = UNSET,
    journal: str | os.PathLike[str] | Unset | None = UNSET,
    stall_timeout_s: ByPhase | Unset = UNSET,
    first_content_timeout_s: float | Unset | None = UNSET,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Monitor every openai client of this process, those made before and those made later.

    The keywords are those of `monitor()`. A client or function that was given to `monitor()` keeps the settings it has
    there. A second call replaces the settings of the first. Calls under OpenTelemetry's `suppress_instrumentation()`
    are left alone.

    Raises ValueError or TypeError for an invalid setting, naming the value and the remedy.
    """
    made = _monitor(
        freeze_after_s=freeze_after_s,
        on_freeze=on_freeze,
        on_thaw=on_thaw,
        on_end=on_end,
        attributes=attributes,
        include_usage=include_usage,
        journal=journal,
        stall_timeout_s=stall_timeout_s,
        first_content_timeout_s=first_content_timeout_s,
        meter_provider=meter_provider,
    )
    if made is not None:
        clients.watch_all(made)
        http_clients.watch_all(made)


def uninstrument() -> None:
    """Undo `instrument()`. Streams that are open stay monitored to their end, and so does what `monitor()` was given.

    If nothing else is monitored the SDK's classes have their own methods back; where others have patched them since,
    that patch stays. Without an `instrument()` before it does nothing.
    """
    clients.unwatch_all()
    http_clients.unwatch_all()


def streams() -> tuple[OpenStream, ...]:
    """Every monitored stream that is open now in this process, the longest open gap first."""
    return PROCESS.streams()


def attach(obj: Any, monitor: Monitor | None) -> Any:
    """Have `obj` monitored, whatever it is; None leaves it as it is, once it is known to be something to monitor."""
    follow = _way_for(obj)
    return obj if monitor is None else follow(obj, monitor)


def _way_for(obj: Any) -> Callable[[Any, Monitor], Any]:
    if clients.is_client(obj):
        return _watch
    if http_clients.is_client(obj):
        return _watch_http
    if isinstance(obj, str | bytes | bytearray | Mapping | type):
        pass
    elif generic_streams.is_iterable(obj):
        return _follow
    elif callable(obj) or isinstance(obj, staticmethod | classmethod):
        return functions.decorate
    elif functions.is_manager(obj):
        return functions.manage
    raise TypeError(f"{_TAKES}, got {_described(obj)}")


_TAKES = (
    "monitor() takes an OpenAI or AsyncOpenAI client (or one of a subclass), a client or session of httpx, aiohttp or "
    "requests, a function, a stream (anything that can be iterated over), or a context manager that opens one"
)


def _described(obj: Any) -> str:
    kind = obj if isinstance(obj, type) else type(obj)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(obj, type):
        return f"the class {name}: pass an instance"
    if hasattr(kind, "__enter__") or hasattr(kind, "__aenter__"):
        return f"{name}: pass the stream that it opens, or put @monitor above the function that reads it"
    return name


def _watch(client: Any, monitor: Monitor) -> Any:
    clients.watch(client, monitor)
    return client


def _watch_http(client: Any, monitor: Monitor) -> Any:
    http_clients.watch(client, monitor)
    return client


def _follow(stream: Any, monitor: Monitor) -> Any:
    return stream if adopt(stream, monitor) else generic_streams.follow(stream, monitor)


def _monitor(*, meter_provider: MeterProvider | None, **keywords: Any) -> Monitor | None:
    settings = settings_from(os.environ, keywords)
    if meter_provider is not None and not callable(getattr(meter_provider, "get_meter", None)):
        raise TypeError(
            "meter_provider must be an OpenTelemetry MeterProvider or None (the global one), "
            f"got {_described(meter_provider)}"
        )
    return None if disabled(os.environ) else Monitor(settings, PROCESS, meter_provider)
