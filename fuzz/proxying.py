"""Fuzzes what the proxy reads of clients: that what it sends on is one request, whatever it was sent."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import h11

from midstream.proxy.events import EventBoundary
from midstream.proxy.faults import RefusedRequestError
from midstream.proxy.headers import client_headers, upstream_headers
from midstream.proxy.incoming import IncomingRequest
from midstream.proxy.request_copy import RequestCopy
from midstream.proxy.routes import Routes, routes_of
from midstream.proxy.upstream import upstream_of

UPSTREAM = upstream_of("http://upstream:8000/base")
SEEDS = (
    b'POST /v1/chat/completions?a=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\nX-A: b\r\n\r\n{"model":"m"}',
    (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close, x-a\r\nX-A: b\r\n c\r\n\r\n"
        b"2;a=b\r\n{}\r\n0\r\nT: x\r\n\r\n"
    ),
    b"GET / HTTP/1.0\nHost: a\nUpgrade: websocket\nVia: 1.1 b\nX-Forwarded-For: c\n\n",
)
WORDS = (
    "Content-Length: ",
    "Transfer-Encoding: chunked",
    "Connection: ",
    "Expect: 100-continue",
    "Host: ",
    " HTTP/1.1",
    "\r\n\r\n",
    "\n ",
    "\x0b",
    "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n",
)
ROUTE_SEEDS = (
    (
        b'{"a": {"upstream": "http://a:8000", "path": "/a"}, "b": {"upstream": "http://b/c", "models": ["q*"]}}\n'
        b"/a/v1/chat\nqwen"
    ),
)
_ENDS = (h11.NEED_DATA, h11.PAUSED, h11.ConnectionClosed())


async def _nothing() -> dict[str, Any]:
    raise AssertionError("nothing is to be received")


def request(data: bytes) -> None:
    """A request of a client, read as the server reads it: what goes on is read as one request with the same body."""
    server = h11.Connection(h11.SERVER)
    body, incoming = bytearray(), None
    with suppress(h11.RemoteProtocolError):
        server.receive_data(data)
        while (event := server.next_event()) not in _ENDS and not isinstance(event, h11.EndOfMessage):
            if isinstance(event, h11.Request):
                incoming = event
            elif isinstance(event, h11.Data):
                body += event.data
        if incoming is not None and isinstance(event, h11.EndOfMessage):
            _sent_on(incoming, bytes(body))


def _sent_on(event: h11.Request, body: bytes) -> None:
    path, _, query = event.target.partition(b"?")
    scope = {
        "type": "http",
        "method": event.method.decode(),
        "raw_path": path,
        "query_string": query,
        "headers": [(name.lower(), value) for name, value in event.headers],
        "scheme": "http",
        "http_version": event.http_version.decode(),
        "client": ("127.0.0.1", 1),
    }
    try:
        request = IncomingRequest(scope, _nothing)
    except RefusedRequestError:
        return
    assert request.has_body or not body
    headers = upstream_headers(
        request.headers,
        UPSTREAM.authority,
        client=request.client,
        scheme=request.scheme,
        via=b"1.1 midstream-0",
    )
    client, upstream = h11.Connection(h11.CLIENT), h11.Connection(h11.SERVER)
    target = UPSTREAM.target(request.raw_path, request.query)
    sent = client.send(h11.Request(method=request.method, target=target, headers=headers))
    for part in (h11.Data(data=body), h11.EndOfMessage()):
        sent = (sent or b"") + (client.send(part) or b"")
    upstream.receive_data(sent or b"")
    first = upstream.next_event()
    assert isinstance(first, h11.Request)
    assert (first.method.decode(), first.target) == (request.method, target)
    names = [name for name, _ in first.headers]
    assert names.count(b"host") == 1
    assert not (b"content-length" in names and b"transfer-encoding" in names)
    read = b""
    while isinstance(event_ := upstream.next_event(), h11.Data):
        read += event_.data
    assert isinstance(event_, h11.EndOfMessage)
    assert read == body
    assert upstream.trailing_data == (b"", False)
    client_headers(headers)


def routes(data: bytes) -> None:
    """A file of routes, a path and a model."""
    text, _, rest = data.partition(b"\n")
    path, _, model = rest.partition(b"\n")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    with suppress(ValueError):
        made = Routes(routes_of(value))
        found = made.of_path(path)
        assert found is None or path.endswith(found[1]) or found[1] == b"/"
        made.of_model(model.decode("utf-8", "replace"))


def body(data: bytes) -> None:
    """A body in two pieces: what is kept of it is numbers and names; and an answer, whose events end where they end."""
    copy = RequestCopy(wanted=True)
    copy.add(data[: len(data) // 2])
    copy.add(data[len(data) // 2 :])
    copy.complete()
    value = copy.value()
    if value is not None:
        texts = [name for name, each in value.items() if isinstance(each, str)]
        assert texts in ([], ["model"])
    whole, parts = EventBoundary("text/event-stream"), EventBoundary("text/event-stream")
    if data:
        whole.passed(data)
    for at in range(len(data)):
        parts.passed(data[at : at + 1])
    if len(data) >= 4:
        assert whole.is_here == parts.is_here
