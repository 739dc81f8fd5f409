"""The proxy as an ASGI application: checks a request, sends it on, and relays the answer until one side leaves."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from midstream._support.asgi_server import send_error
from midstream._support.http_hosts import AllowedHosts
from midstream._support.internal_errors import report_internal_error
from midstream.integrations.http.following import Sending
from midstream.proxy.attributes import MonitorChoice
from midstream.proxy.connections import Connections, UpstreamAnswer
from midstream.proxy.faults import ClientLeftError, RefusedRequestError
from midstream.proxy.headers import upstream_headers
from midstream.proxy.incoming import IncomingRequest
from midstream.proxy.relay import relay
from midstream.proxy.routes import Routes
from midstream.proxy.upstream import Upstream

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


class ProxyApplication:
    """Passes every request on to the upstream of its route.

    `monitors` gives the monitor of a request; None is none. `keep_alive_s`: see `relay`.
    """

    def __init__(
        self,
        routes: Routes,
        connections: Connections,
        hosts: AllowedHosts,
        monitors: MonitorChoice | None,
        *,
        keep_alive_s: float | None = None,
    ) -> None:
        self._routes = routes
        self._connections = connections
        self._hosts = hosts
        self._monitors = monitors
        self._keep_alive_s = keep_alive_s
        self._name = f"midstream-{secrets.token_hex(4)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._answer(scope, receive, sending)
        except RefusedRequestError as refusal:
            if not started:
                await send_error(send, refusal.status, str(refusal), refusal.kind, refusal.code)
        except (ClientLeftError, asyncio.CancelledError):
            return  # what was sent so far is cut
        except Exception as error:  # noqa: BLE001 - a client must not be able to end the server, or print a traceback
            if not started:
                await send_error(send, 500, "The proxy failed; its log says why.", "proxy_error", "internal")
            report_internal_error("proxy", error, "one request was cut")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = IncomingRequest(scope, receive)
        sending = None if self._monitors is None else Sending(self._monitors.of(request.headers))
        refusal = self._hosts.refusal(request.header(b"host"), request.header(b"origin"))
        if refusal is not None:
            raise RefusedRequestError(403, refusal, "host_not_allowed")
        if self._name in (request.header(b"via") or ""):
            raise RefusedRequestError(508, "The proxy's upstream is the proxy itself.", "loop")
        answered = asyncio.create_task(self._forward(request, sending, send))
        left = asyncio.create_task(request.client_left())
        try:
            await asyncio.wait({answered, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            request.copy.drop()
            if not answered.done():
                answered.cancel()
            left.cancel()
            results = await asyncio.gather(answered, left, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]

    async def _forward(self, request: IncomingRequest, sending: Sending | None, send: Send) -> None:
        upstream, raw_path = await self._route(request)
        headers = upstream_headers(
            request.headers,
            upstream.authority,
            client=request.client,
            scheme=request.scheme,
            via=f"1.1 {self._name}".encode(),
        )
        answer = await self._connections.send(
            upstream,
            request.method,
            upstream.target(raw_path, request.query),
            headers,
            request.body(),
            sending=sending,
            copy=request.copy,
        )
        request.received()
        await _pass_on(answer, send, self._keep_alive_s)

    async def _route(self, request: IncomingRequest) -> tuple[Upstream, bytes]:
        """The upstream for a request, and the path that it gets. Raises RefusedRequestError if none takes it."""
        found = self._routes.of_path(request.raw_path)
        if found is not None:
            return found
        model = None
        if self._routes.by_models and request.copy.is_wanted:
            await request.whole()
            parameters = request.copy.value()
            model = parameters.get("model") if isinstance(parameters, dict) else None
        upstream = self._routes.of_model(model)
        if upstream is None:
            what = "this model" if isinstance(model, str) else "this path, or it names no model"
            raise RefusedRequestError(404, f"No route takes {what}.", "no_route")
        return upstream, request.raw_path


async def _pass_on(answer: UpstreamAnswer, send: Send, keep_alive_s: float | None) -> None:
    """Send an answer to the client as it comes. What breaks before its end is cut for the client, too."""
    try:
        head = {
            "type": "http.response.start",
            "status": answer.status,
            "headers": answer.headers,
        }
        await send(head)
        is_whole = await relay(answer, send, keep_alive_s=keep_alive_s)
    finally:
        await answer.close()
    if is_whole:
        await send({"type": "http.response.body", "body": b"", "more_body": False})
