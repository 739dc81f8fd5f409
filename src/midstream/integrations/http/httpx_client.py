"""httpx and httpx2, sync and async: where their responses pass.

Every response of a client, whichever transport is below, comes out of `_send_single_request()`, which is patched on the
library's own classes, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from midstream._support.internal_errors import report_internal_error
from midstream.attribution.tcp_info import wire_clock
from midstream.integrations.ending import http_timeout, response_end
from midstream.integrations.http.following import Sending, observer_for, on_failure, sending
from midstream.integrations.http.httpx_streams import ObservedDecoder, observed_kinds
from midstream.integrations.http.observer import BodyObserver
from midstream.integrations.http.requests import Exchange, is_to_be_read
from midstream.integrations.openai.pending import mark_observed
from midstream.integrations.openai.requests import count_retries
from midstream.integrations.patching import Original, Patches, bound

_FOLLOWED = "POST"
"""The method of every request that can have an answer to follow. Most of a program's others are GETs."""


def client_types(library: Any) -> tuple[type, ...]:
    """The classes of this library whose instances can be monitored."""
    return (library.Client, library.AsyncClient)


def patch(library: Any, patches: Patches) -> None:
    """Have the responses of this library pass here."""
    kinds = observed_kinds(library.SyncByteStream, library.AsyncByteStream)
    patches.wrap(library.Client, "_send_single_request", lambda original: _sync(original, kinds[0]))
    patches.wrap(library.AsyncClient, "_send_single_request", lambda original: _async(original, kinds[1]))


def _sync(original: Original, kind: Callable[..., Any]) -> Original:
    call = bound(original)

    def send(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        if args and getattr(args[0], "method", _FOLLOWED) != _FOLLOWED:
            return call(client, *args, **kwargs)
        request = sending(client)
        if request is None:
            return call(client, *args, **kwargs)
        try:
            response = call(client, *args, **kwargs)
        except BaseException as exc:
            on_failure(request, lambda: _failed(*args, **kwargs), exc)
            raise
        finally:
            request.active = False
        observe(request, response, kind, on_loop=False)
        return response

    return send


def _async(original: Original, kind: Callable[..., Any]) -> Original:
    call = bound(original)

    async def send(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        if args and getattr(args[0], "method", _FOLLOWED) != _FOLLOWED:
            return await call(client, *args, **kwargs)
        request = sending(client)
        if request is None:
            return await call(client, *args, **kwargs)
        try:
            response = await call(client, *args, **kwargs)
        except BaseException as exc:
            on_failure(request, lambda: _failed(*args, **kwargs), exc)
            raise
        finally:
            request.active = False
        observe(request, response, kind, on_loop=True)
        return response

    return send


def observe(
    request: Sending,
    response: Any,
    kind: Callable[..., Any],
    *,
    on_loop: bool,
    body: Callable[[], Any] | None = None,
) -> BodyObserver | None:
    """Put ourselves between the response's byte stream and its reader, if the response is an answer to follow.

    `body` gives the request's body where the request itself has no more of it. Returns the observer; None if the
    response is not followed. Of a compressed body the reader must use the response's decoder, or call `read_copy`.
    """
    try:
        headers = response.headers
        content_type = _content_type(headers)
        if not is_to_be_read(response.status_code, content_type):
            return None  # nearly every response of a program
        asked = response.request
        if asked.method != _FOLLOWED:
            return None
        exchange = Exchange(
            method=asked.method,
            url=asked.url,
            status=response.status_code,
            content_type=content_type,
            content_encoding=headers.get("content-encoding", ""),
            body=body or (lambda: _body(asked)),
        )
        observer = observer_for(
            request,
            exchange,
            lambda clock: wire_clock(response, clock),
            on_loop=on_loop,
            stall=lambda monitor: (
                response_end(monitor, response, on_loop=on_loop),
                http_timeout(response),
            ),
            encoded=exchange.compressed,
            retries=count_retries(response, None),
        )
        if observer is not None:
            if exchange.compressed:
                response._decoder = ObservedDecoder(response._get_content_decoder(), observer)
            response.stream = kind(response.stream, observer)
            mark_observed(response, observer.tracker)
            return observer
    except Exception as exc:  # noqa: BLE001 - the response is read as it would be without us
        report_internal_error("response", exc)
    return None


def _content_type(headers: Any) -> str:
    """What `headers.get()` returns, which decodes names and values and takes four times as long."""
    items = getattr(headers, "_list", None)
    if items is None:
        return str(headers.get("content-type", ""))
    for _, name, value in items:
        if name == b"content-type":
            return str(value, "latin-1")
    return ""


def read_copy(response: Any, piece: bytes) -> None:
    """Decode a piece of an observed body for the observer alone: its reader takes the bytes as they are."""
    decoder = response._decoder
    try:
        for _ in _parts(decoder.decode(piece)):
            pass
    except Exception:  # noqa: BLE001 - what does not decompress is passed on as it came
        response._decoder = _Undecodable()


class _Undecodable:
    """Stands where a decoder was that could not go on."""

    def decode(self, _data: bytes) -> bytes:
        return b""


def _parts(decoded: Any) -> Iterable[bytes]:
    return () if isinstance(decoded, bytes) else decoded


def _failed(request: Any) -> Exchange:
    return Exchange(method=request.method, url=request.url, status=0, body=lambda: _body(request))


def _body(request: Any) -> bytes | None:
    try:
        content = request.content
    except Exception:  # noqa: BLE001 - a body that was itself a stream is gone
        return None
    return content if isinstance(content, bytes) else None
