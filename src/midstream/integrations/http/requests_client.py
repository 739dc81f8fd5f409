"""requests: where its responses pass, and what stands between a body and its reader.

Bodies are read through urllib3's response (`response.raw`): by its `stream()` for `iter_content` and `iter_lines`, or
by its `read()`. Both are observed on the one object.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from midstream._support.internal_errors import report_internal_error
from midstream.attribution.tcp_info import WireClock, wire_clock_of
from midstream.integrations.ending import http_timeout, socket_end
from midstream.integrations.http.following import Sending, observer_for, on_failure, sending
from midstream.integrations.http.observer import BodyObserver
from midstream.integrations.http.requests import Exchange, is_to_be_read
from midstream.integrations.patching import Original, Patches, bound

_request: ContextVar[Sending | None] = ContextVar("midstream_requests", default=None)


def client_types(library: Any) -> tuple[type, ...]:
    """The classes of this library whose instances can be monitored."""
    return (library.Session,)


def patch(library: Any, patches: Patches) -> None:
    """Have the responses of this library pass here: a session decides whose they are, its adapter has them first."""
    patches.wrap(library.Session, "send", _sent_by_session)
    patches.wrap(library.adapters.HTTPAdapter, "send", _sent_by_adapter)


def _sent_by_session(original: Original) -> Original:
    call = bound(original)

    def send(session: Any, /, *args: Any, **kwargs: Any) -> Any:
        ours = sending(session)
        if ours is None:
            return call(session, *args, **kwargs)
        _request.set(ours)
        try:
            return call(session, *args, **kwargs)
        finally:
            ours.active = False

    return send


def _sent_by_adapter(original: Original) -> Original:
    call = bound(original)

    def send(adapter: Any, /, *args: Any, **kwargs: Any) -> Any:
        ours = _request.get()
        if ours is None or not ours.active:
            return call(adapter, *args, **kwargs)
        try:
            response = call(adapter, *args, **kwargs)
        except BaseException as exc:
            on_failure(ours, lambda: _failed(*args, **kwargs), exc)
            raise
        _observe(ours, response)
        return response

    return send


def _observe(request: Sending, response: Any) -> None:
    try:
        headers = response.headers
        content_type = headers.get("content-type", "")
        if not is_to_be_read(response.status_code, content_type):
            return
        asked, raw = response.request, response.raw
        if asked.method != "POST" or not hasattr(raw, "stream"):
            return
        exchange = Exchange(
            method=asked.method,
            url=_Url(asked.url),
            status=response.status_code,
            content_type=content_type,
            content_encoding=headers.get("content-encoding", ""),
            body=lambda: asked.body,
        )
        observer = observer_for(
            request,
            exchange,
            lambda clock: _wire(raw, clock),
            on_loop=False,
            stall=lambda monitor: (socket_end(monitor, _socket(raw)), http_timeout(response)),
        )
        if observer is not None:
            _ObservedRaw(raw, observer, compressed=exchange.compressed)
    except Exception as exc:  # noqa: BLE001 - the response is read as it would be without us
        report_internal_error("response", exc)


def _failed(request: Any, *_args: Any, **_kwargs: Any) -> Exchange:
    return Exchange(method=request.method, url=_Url(request.url), status=0, body=lambda: request.body)


def _wire(raw: Any, clock: Callable[[], float]) -> WireClock | None:
    return wire_clock_of(_socket(raw), clock, raw.headers)


def _socket(raw: Any) -> Any:
    return getattr(getattr(raw, "_connection", None), "sock", None)


class _Url:
    """The parts of a URL under the names that httpx gives them."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.scheme, self.host, self.port, self.path = (
            parts.scheme,
            parts.hostname or "",
            parts.port,
            parts.path,
        )


class _ObservedRaw:
    """Stands on urllib3's response object, in the place of the methods that read it, and dies with it."""

    def __init__(self, raw: Any, observer: BodyObserver, *, compressed: bool) -> None:
        self._raw = weakref.ref(raw)
        self._observer = observer
        self._compressed = compressed
        self._inside = False  # one reading method calls another
        for name in ("stream", "read_chunked"):
            if hasattr(raw, name):
                setattr(raw, name, self._pieces(name))
        for name in ("read", "read1"):
            if hasattr(raw, name):
                setattr(raw, name, self._reading(name))
        for name in ("close", "release_conn"):
            setattr(raw, name, self._closing(name))

    def __del__(self) -> None:
        self._observer.tracker.dropped()

    def _method(self, name: str) -> Callable[..., Any]:
        raw = self._raw()
        method: Callable[..., Any] = getattr(type(raw), name).__get__(raw)
        return method

    def _pieces(self, name: str) -> Callable[..., Any]:
        def pieces(*args: Any, **kwargs: Any) -> Any:
            source = self._method(name)(*args, **kwargs)
            if self._inside:
                return source
            decoded = kwargs.get("decode_content", args[1] if len(args) > 1 else None)
            return self._observed(iter(source), opaque=self._compressed and not decoded)

        return pieces

    def _observed(self, source: Iterator[bytes], *, opaque: bool) -> Iterator[bytes]:
        while True:
            try:
                piece = self._step(lambda: next(source))
            except StopIteration:
                self._observer.exhausted()
                return
            self._observer.arrived(b"" if opaque else piece)
            yield piece

    def _reading(self, name: str) -> Callable[..., Any]:
        def read(*args: Any, **kwargs: Any) -> Any:
            method = self._method(name)
            if self._inside:
                return method(*args, **kwargs)
            piece = self._step(lambda: method(*args, **kwargs))
            size = args[0] if args else kwargs.get("amt")
            opaque = self._compressed and not kwargs.get("decode_content", args[1] if len(args) > 1 else None)
            if piece:
                self._observer.arrived(b"" if opaque else piece)
            if not piece or size is None or size < 0:
                self._observer.exhausted()
            return piece

        return read

    def _step(self, step: Callable[[], bytes]) -> bytes:
        self._observer.asked()
        self._inside = True
        try:
            return step()
        except StopIteration:
            raise
        except BaseException as exc:
            self._observer.failed(exc)
            raise
        finally:
            self._inside = False

    def _closing(self, name: str) -> Callable[..., Any]:
        def close(*args: Any, **kwargs: Any) -> Any:
            self._observer.tracker.release()
            if not self._inside:
                try:
                    self._observer.closed(sys.exc_info()[1])
                except Exception as exc:  # noqa: BLE001 - the connection is closed all the same
                    report_internal_error("close", exc)
            return self._method(name)(*args, **kwargs)

        return close
