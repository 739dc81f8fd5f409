"""Sends requests to an upstream over httpx, and has the answers observed.

httpx's transport is used without its client, which would follow redirects, keep cookies and add headers.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING, Any

import httpx

from midstream.integrations.http.following import Sending, on_failure
from midstream.integrations.http.httpx_client import observe, read_copy
from midstream.integrations.http.httpx_streams import observed_kinds
from midstream.integrations.http.observer import BodyObserver
from midstream.integrations.http.requests import Exchange
from midstream.proxy.faults import UPSTREAM, RefusedRequestError, unanswered
from midstream.proxy.headers import Headers, client_headers, value_of
from midstream.proxy.request_copy import RequestCopy
from midstream.proxy.upstream import Upstream

if TYPE_CHECKING:
    import ssl

CONNECT_S = 5.0
"""How long an upstream may take to accept a connection."""
KEEP_ALIVE_S = 3.0
"""How long an idle connection to an upstream is kept: less than uvicorn's 5 s, or requests would meet closed ones."""
_IN_A_POOL = 64
"""Requests that share a pool of connections: httpx looks at all connections of a pool for each of its requests."""
_OBSERVED = observed_kinds(httpx.SyncByteStream, httpx.AsyncByteStream)[1]

UpstreamBroke = httpx.TransportError
"""What reading an answer raises when the upstream's connection breaks."""


class UpstreamAnswer:
    """The head of an upstream's answer, and its body as it comes in."""

    def __init__(self, response: httpx.Response, observer: BodyObserver | None, pool: _Pool) -> None:
        self._response = response
        self._observer = observer
        self._pool = pool
        self.status = response.status_code
        self.headers: Headers = client_headers(response.headers.raw)
        encoding = response.headers.get("content-encoding", "").strip().lower()
        self._decodes = observer is not None and encoding not in {"", "identity"}
        self.may_be_written_to = (
            encoding in {"", "identity"} and value_of(self.headers, b"content-length") is None
        )
        """Whether the proxy may write something of its own between two events."""

    @property
    def content_type(self) -> str:
        """The media type, as the upstream wrote it."""
        return str(self._response.headers.get("content-type", ""))

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is made of server-sent events."""
        return self.content_type.lower().startswith("text/event-stream")

    @property
    def path(self) -> str:
        """The path that was asked for."""
        return self._response.request.url.path

    @property
    def events(self) -> int:
        """How many events have come so far; 0 if they are not counted."""
        return 0 if self._observer is None else self._observer.tracker.session.chunks

    def pieces(self) -> AsyncIterator[bytes]:
        """The body, in the pieces in which it came. Raises UpstreamBroke or StreamStalled."""
        stream: Any = self._response.stream
        return aiter(stream)

    def passed(self, piece: bytes) -> None:
        """Have the observer see what a compressed piece holds."""
        if self._decodes:
            read_copy(self._response, piece)

    async def close(self) -> None:
        """Give the connection back, or close it if the body is not read to its end."""
        stream: Any = self._response.stream
        self._pool.requests -= 1
        await stream.aclose()


class _Pool:
    """Some of the connections, and how many requests they serve."""

    def __init__(self, transport: httpx.AsyncHTTPTransport) -> None:
        self.transport = transport
        self.requests = 0


class _Body(httpx.AsyncByteStream):
    def __init__(self, pieces: AsyncIterable[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._pieces:
            yield piece


class Connections:
    """The connections to all upstreams. `head_s`: how long one may take to begin an answer; None is for ever."""

    def __init__(self, *, head_s: float | None, verify: ssl.SSLContext | None = None) -> None:
        self._head_s = head_s
        self._verify = verify or httpx.create_ssl_context()
        self._pools: list[_Pool] = []

    def _pool(self) -> _Pool:
        """The first pool that has room: with few requests there is one, whose connections are used again."""
        found = next((pool for pool in self._pools if pool.requests < _IN_A_POOL), None)
        if found is None:
            limits = httpx.Limits(
                max_connections=None,
                max_keepalive_connections=_IN_A_POOL,
                keepalive_expiry=KEEP_ALIVE_S,
            )
            found = _Pool(
                httpx.AsyncHTTPTransport(verify=self._verify, limits=limits, http1=True, http2=False)
            )
            self._pools.append(found)
        return found

    async def send(
        self,
        upstream: Upstream,
        method: str,
        target: bytes,
        headers: Headers,
        body: AsyncIterable[bytes],
        *,
        sending: Sending | None,
        copy: RequestCopy,
    ) -> UpstreamAnswer:
        """Send a request, and return once the head of its answer is there.

        `sending` is its monitor; None is none. Raises RefusedRequestError if there is no answer.
        """
        limits = {"connect": CONNECT_S, "read": self._head_s, "write": self._head_s, "pool": None}
        path = target.partition(b"?")[0].decode("ascii")
        request = httpx.Request(
            method,
            httpx.URL(scheme=upstream.scheme, host=upstream.host, port=upstream.port, path=path),
            headers=headers,
            stream=_Body(body),
            extensions={"timeout": limits, "target": target},
        )
        pool = self._pool()
        pool.requests += 1
        try:
            response = await pool.transport.handle_async_request(request)
        except BaseException as error:
            pool.requests -= 1
            if sending is not None:
                failed = Exchange(method=method, url=request.url, status=0, body=copy.value)
                on_failure(sending, lambda: failed, error)
            if isinstance(error, httpx.HTTPError):
                raise unanswered(error, CONNECT_S, self._head_s) from error
            raise
        # httpcore looks again when it reads the body, which may be silent for as long as it likes.
        limits["read"] = None
        response.request = request
        if response.status_code > 599:
            pool.requests -= 1
            await response.aclose()
            raise RefusedRequestError(
                502, "The model server sent no valid HTTP.", "upstream_invalid", UPSTREAM
            )
        observer = (
            None if sending is None else observe(sending, response, _OBSERVED, on_loop=True, body=copy.value)
        )
        return UpstreamAnswer(response, observer, pool)

    async def close(self) -> None:
        """Close every connection."""
        for pool in self._pools:
            await pool.transport.aclose()
