"""The openai SDK's stream objects: where their chunks are told to a session, and how their close is noticed.

The SDKs of other vendors that come out of the same code generator (Anthropic's, Groq's) make their streams in the same
shape, and are followed the same way.
"""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, replace
from types import AsyncGeneratorType, GeneratorType, SimpleNamespace
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace

from midstream._support.internal_errors import report_internal_error
from midstream.attribution.tcp_info import wire_clock
from midstream.integrations.openai.requests import call_of, count_retries
from midstream.runtime.generators import AsyncChunks, Chunks
from midstream.runtime.iterators import AsyncSteps, Steps
from midstream.runtime.monitor import Monitor
from midstream.runtime.scope import opened_inside
from midstream.runtime.tracker import Tracker
from midstream.stream.chunks import Reader, reader_for
from midstream.stream.generic_chunks import read_foreign
from midstream.stream.model import Call


@dataclass(slots=True)
class Asked:
    """A call in progress, from its request to its stream."""

    monitor: Monitor
    call: Call
    context: otel_context.Context = field(repr=False)  # the caller's own, baggage and all
    hide_usage: bool = False
    client: int = 0
    read: Reader | None = None


answers: MutableMapping[Any, Asked] = weakref.WeakKeyDictionary()
"""The calls that have their HTTP response, and not yet their stream."""


_FOLLOWERS: dict[type, Callable[..., Any]] = {GeneratorType: Chunks, AsyncGeneratorType: AsyncChunks}
_FOLLOWED = (Chunks, AsyncChunks, Steps, AsyncSteps)


def follow(stream: Any) -> None:
    """Put ourselves between a stream and its iterator. The stream stays the SDK's own object."""
    try:
        response = stream.response
        asked = answers.pop(response, None)
        if asked is None:
            return
        source = stream._iterator
        wire, on_loop = wire_clock(response, asked.monitor.process.clock), hasattr(source, "__anext__")
        tracker = asked.monitor.open(asked.call, asked.context, wire, on_loop=on_loop)
        hide = _usage_only if asked.hide_usage else None
        read = asked.read or reader_for(asked.call.operation)
        follower = _FOLLOWERS.get(type(source)) or (AsyncSteps if on_loop else Steps)
        stream._iterator = followed = follower(source, tracker, read, hide)
        _Closing(response.stream, "aclose" if on_loop else "close", followed, tracker)
        opened_inside()
    except Exception as exc:  # noqa: BLE001 - the caller reads the stream as it would without us
        report_internal_error("stream", exc)


def adopt(obj: Any, monitor: Monitor, started: float | None = None) -> bool:
    """Follow a stream that exists already. False if `obj` is none of this make, nor a helper around one.

    A stream that is followed stays with the monitor that it has.
    """
    stream = _stream_in(obj)
    if stream is None:
        return False
    if not isinstance(stream._iterator, _FOLLOWED):
        answers[stream.response] = _late(stream, monitor, started)
        follow(stream)
    return True


def current_span() -> trace.SpanContext:
    """The span in which the caller makes the call, valid or not."""
    return trace.get_current_span().get_span_context()


def _stream_in(obj: Any) -> Any:
    for stream in (getattr(obj, "_raw_stream", None), obj):
        # An attribute, or with newer generators one that is made when it is first asked for.
        if "_iterator" in getattr(stream, "__dict__", ()) or hasattr(type(stream), "_iterator"):
            response = getattr(stream, "response", None)
            if hasattr(response, "request") and hasattr(getattr(response, "stream", None), "__dict__"):
                return stream
    return None


def _late(stream: Any, monitor: Monitor, started: float | None) -> Asked:
    """A call of which only the stream was seen: what its HTTP request says must do."""
    response, request = stream.response, stream.response.request
    foreign = type(stream).__module__.partition(".")[0] != "openai"
    path = str(request.url.path)
    if foreign and path.endswith("/messages"):
        path = "/chat/completions"  # Anthropic's name for a chat, with the same name for its limit
    call = call_of(
        SimpleNamespace(base_url=request.url),
        SimpleNamespace(method=request.method, url=path, json_data=_body(request)),
        started=started,
        started_at=monitor.process.wall(),
        span=current_span(),
    )
    provider = "" if foreign and call.provider == "openai" else call.provider
    call = replace(call, provider=provider, retries=count_retries(response, None))
    return Asked(monitor, call, otel_context.get_current(), read=read_foreign if foreign else None)


def _body(request: Any) -> Any:
    try:
        return json.loads(request.content)
    except Exception:  # noqa: BLE001 - a body that was itself a stream is gone, and one that is no JSON says nothing
        return None


class _Closing:
    """Learns of every close: `Stream.close()`, the helpers, `response.close()` and `with` all end in the byte stream's.

    The SDK closes it too, at the end of its own generator; what happens then, the iterator knows better.
    """

    __slots__ = ("_before", "_byte_stream", "_followed", "_name", "_tracker")

    def __init__(self, byte_stream: Any, name: str, followed: Any, tracker: Tracker) -> None:
        self._before = vars(byte_stream).get(name)
        self._byte_stream = byte_stream
        self._name = name
        self._followed = weakref.ref(followed)
        self._tracker = tracker
        vars(byte_stream)[name] = self

    def __call__(self) -> Any:
        try:
            if self._before is None:
                vars(self._byte_stream).pop(self._name, None)
            else:
                vars(self._byte_stream)[self._name] = self._before
            if not self._sdk_runs():
                self._tracker.closed(sys.exc_info()[1])
        except Exception as exc:  # noqa: BLE001 - the connection is closed all the same
            report_internal_error("close", exc)
        return getattr(self._byte_stream, self._name)()

    def _sdk_runs(self) -> bool:
        """Whether the SDK's own generator is at work, or gone with everything else."""
        followed = self._followed()
        if followed is None:
            return True
        source = followed.source
        # An async generator counts as running while it awaits, and then it is not the one who closes.
        runs = getattr(source, "ag_running", False) and getattr(source, "ag_await", None) is None
        return bool(runs or getattr(source, "gi_running", False))


def _usage_only(chunk: Any) -> bool:
    return getattr(chunk, "usage", None) is not None and not getattr(chunk, "choices", None)
