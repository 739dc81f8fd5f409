"""The only module that knows the openai SDK: where its streams are born, and what its requests say.

Everything that streams, on every version from 1.40 on, passes three points: `request()` of the client, where the
caller's time begins; `_process_response()`, which knows the HTTP response and the attempts it took; and the constructor
of `Stream` or `AsyncStream`, whether it is called at once, by `.parse()` of a raw response, or by a helper. These three
are wrapped on the SDK's own classes, once; clients and requests are left as they are. Whether a client is monitored is
kept here, beside it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import wrapt
from opentelemetry import context as otel_context
from opentelemetry import trace

from midstream._chunks import reader_for
from midstream._failures import error_type_of
from midstream._guard import trouble
from midstream._model import Call
from midstream._monitor import Monitor
from midstream._request import call_of, count_retries, server_of, with_usage
from midstream._streams import AsyncChunks, SyncChunks
from midstream._tracker import Tracker
from midstream._wire import wire_clock


@dataclass(slots=True)
class _Asked:
    """A call in progress, from `request()` to its stream."""

    monitor: Monitor
    call: Call
    context: otel_context.Context
    hide_usage: bool = False
    client: int = 0


_asked: ContextVar[_Asked | None] = ContextVar("midstream_call", default=None)
_monitors: dict[int, tuple[weakref.ref[Any], Monitor]] = {}
_answers: MutableMapping[Any, _Asked] = weakref.WeakKeyDictionary()
_wrapped: set[tuple[type, str]] = set()


def is_client(obj: object) -> bool:
    """Whether this is an `OpenAI` or `AsyncOpenAI`, or of a subclass such as Azure's; the SDK is not imported for it."""
    sdk = sys.modules.get("openai")
    return sdk is not None and isinstance(obj, (sdk.OpenAI, sdk.AsyncOpenAI))


def watch(client: Any, monitor: Monitor) -> None:
    """Monitor this client and those derived from it. A second call replaces the settings of the first."""
    _wrap_sdk(type(client))
    _register(client, monitor)


def _register(client: Any, monitor: Monitor) -> None:
    key = id(client)
    _monitors[key] = (weakref.ref(client, lambda _: _monitors.pop(key, None)), monitor)


def _monitor_of(client: Any) -> Monitor | None:
    entry = _monitors.get(id(client))
    return entry[1] if entry is not None and entry[0]() is client else None


def _wrap_sdk(client_class: type) -> None:
    from openai import AsyncStream, Stream
    from openai._base_client import AsyncAPIClient, SyncAPIClient

    _wrap(SyncAPIClient, "request", _request)
    _wrap(AsyncAPIClient, "request", _request_async)
    for base in (SyncAPIClient, AsyncAPIClient):
        _wrap(base, "_process_response", _process_response)
    _wrap(Stream, "__init__", _made_sync)
    _wrap(AsyncStream, "__init__", _made_async)
    for kind in client_class.__mro__:
        own = vars(kind)
        if "request" in own:  # a subclass's, or another instrumentation's; nested calls count once
            _wrap(kind, "request", _request_async if issubclass(kind, AsyncAPIClient) else _request)
        for name in ("copy", "with_options"):
            if name in own:
                _wrap(kind, name, _derived)
    if client_class.__reduce_ex__ is object.__reduce_ex__ and not hasattr(client_class, "__copy__"):
        for base in (SyncAPIClient, AsyncAPIClient):
            base.__copy__ = _copy


def _wrap(owner: type, name: str, wrapper: Callable[..., Any]) -> None:
    present = vars(owner)[name]
    if isinstance(present, wrapt.FunctionWrapper) and present._self_wrapper is wrapper:
        return
    setattr(owner, name, wrapt.FunctionWrapper(present, wrapper))


# Clients


def _derived(wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    derived = wrapped(*args, **kwargs)
    monitor = _monitor_of(client)
    if monitor is not None:
        _register(derived, monitor)
    return derived


def _copy(client: Any) -> Any:
    """What `copy.copy` does for a class without `__copy__`; the copy stays monitored."""
    twin = type(client).__new__(type(client))
    twin.__dict__.update(client.__dict__)
    monitor = _monitor_of(client)
    if monitor is not None:
        _register(twin, monitor)
    return twin


# Calls


def _ask(client: Any, args: Any, kwargs: Any) -> tuple[_Asked | None, Any, Any]:
    """The call that begins here, if it streams and is ours to follow, and its arguments."""
    try:
        monitor = _monitor_of(client)
        if monitor is None or not kwargs.get("stream") or _asked_by(client) is not None:
            return None, args, kwargs
        options = kwargs["options"] if "options" in kwargs else args[1]
        process = monitor.process
        call = call_of(client, options, started=process.clock(), started_at=process.wall(), span=_span())
        asked = _Asked(monitor, call, otel_context.get_current(), client=id(client))
        if monitor.settings.include_usage:
            injected = with_usage(options, call.operation)
            if injected is not None:
                asked.hide_usage = True
                if "options" in kwargs:
                    kwargs = {**kwargs, "options": injected}
                else:
                    args = (args[0], injected, *args[2:])
        return asked, args, kwargs
    except Exception as exc:  # noqa: BLE001 - the caller's request goes out as it would without us
        trouble("request", exc)
        return None, args, kwargs


def _asked_by(client: Any) -> _Asked | None:
    asked = _asked.get()
    return asked if asked is not None and asked.client == id(client) else None


def _refuse(asked: _Asked, exc: BaseException) -> None:
    try:
        monitor, call = asked.monitor, asked.call
        took = monitor.process.clock() - (call.started or 0.0)
        monitor.refused(call, took, error_type_of(exc), asked.context)
    except Exception as own:  # noqa: BLE001
        trouble("request", own)


def _request(wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    asked, args, kwargs = _ask(client, args, kwargs)
    if asked is None:
        return wrapped(*args, **kwargs)
    token = _asked.set(asked)
    try:
        return wrapped(*args, **kwargs)
    except BaseException as exc:
        _refuse(asked, exc)
        raise
    finally:
        _asked.reset(token)


async def _request_async(wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    asked, args, kwargs = _ask(client, args, kwargs)
    if asked is None:
        return await wrapped(*args, **kwargs)
    token = _asked.set(asked)
    try:
        return await wrapped(*args, **kwargs)
    except BaseException as exc:
        _refuse(asked, exc)
        raise
    finally:
        try:
            _asked.reset(token)
        except ValueError:  # closed from another context: its variables are gone with it
            pass


def _process_response(wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    try:
        if kwargs.get("stream"):
            asked = _asked_by(client) or _unasked(client, kwargs["options"])
            if asked is not None:
                response = kwargs["response"]
                address, port = server_of(response, asked.call)
                retries = count_retries(response, kwargs.get("retries_taken"))
                asked.call = replace(asked.call, server_address=address, server_port=port, retries=retries)
                _answers[response] = asked
    except Exception as exc:  # noqa: BLE001
        trouble("response", exc)
    return wrapped(*args, **kwargs)


def _unasked(client: Any, options: Any) -> _Asked | None:
    """A call whose beginning was not seen: somebody has put back an older `request()` over ours."""
    monitor = _monitor_of(client)
    if monitor is None:
        return None
    call = call_of(client, options, started=None, started_at=monitor.process.wall(), span=_span())
    return _Asked(monitor, call, otel_context.get_current())


def _span() -> trace.SpanContext:
    return trace.get_current_span().get_span_context()


# Streams


def _made_sync(wrapped: Any, stream: Any, args: Any, kwargs: Any) -> None:
    wrapped(*args, **kwargs)
    _follow(stream, SyncChunks, "close", "gi_running")


def _made_async(wrapped: Any, stream: Any, args: Any, kwargs: Any) -> None:
    wrapped(*args, **kwargs)
    _follow(stream, AsyncChunks, "aclose", "ag_running")


def _follow(stream: Any, chunks: type[SyncChunks | AsyncChunks], close: str, running: str) -> None:
    """Put ourselves between the stream and its iterator. The stream stays the SDK's own object."""
    try:
        response = stream.response
        asked = _answers.pop(response, None)
        if asked is None:
            return
        source = stream._iterator
        monitor = asked.monitor
        tracker = monitor.open(asked.call, asked.context, wire_clock(response, monitor.process.clock))
        hide = _usage_only if asked.hide_usage else None
        read = reader_for(asked.call.operation)
        stream._iterator = chunks(source, tracker, read, monitor.process.clock, hide)
        own = weakref.ref(stream._iterator)
        _notice_close(response.stream, close, tracker, monitor.process.clock, lambda: _runs(own(), running))
    except Exception as exc:  # noqa: BLE001
        trouble("stream", exc)


def _runs(chunks: SyncChunks | AsyncChunks | None, running: str) -> bool:
    """Whether the SDK's own generator is at work, or gone with everything else."""
    return chunks is None or bool(getattr(chunks.source, running, False))


def _notice_close(
    byte_stream: Any, close: str, tracker: Tracker, clock: Callable[[], float], busy: Callable[[], bool]
) -> None:
    """Learn of every close: `Stream.close()`, the helpers, `response.close()` and `with` all end in the byte stream's.

    The SDK closes it too, at the end of its own generator; what happens then, the iterator knows better.
    """
    original = getattr(byte_stream, close)

    def closing() -> Any:
        try:
            vars(byte_stream).pop(close, None)
            if not tracker.session.waiting and not busy():
                exc = sys.exc_info()[1]
                cancelled = exc is not None and not isinstance(exc, (Exception, GeneratorExit))
                tracker.left(clock(), cancelled=cancelled)
        except Exception as exc:  # noqa: BLE001
            trouble("close", exc)
        return original()

    vars(byte_stream)[close] = closing


def _usage_only(chunk: Any) -> bool:
    return getattr(chunk, "usage", None) is not None and not getattr(chunk, "choices", None)
