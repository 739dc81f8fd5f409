"""Serves recordings as an OpenAI-compatible server would, with the timing they were recorded with.

A request picks a recording by its `model`: the name of a recording, or the model that was recorded, whose
streams then take turns. The path must be the one that was recorded. Times count from the request's arrival
and from nothing else, so that a late send never delays the next. A recording that ended because its client
left ends there too: what the server would have said next was never heard.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from midstream._support.foreign import ForeignError, json_of
from midstream._support.sanitize import clean
from midstream.lab._choice import Choice, RefusedError
from midstream.lab.recording import PATHS, Operation, Recording

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


def replayer(recordings: Sequence[Recording], *, speed: float = 1.0) -> Starlette:
    """Return an application that answers requests with recordings, `speed` times as fast as recorded."""
    if not (math.isfinite(speed) and speed > 0):
        raise ValueError(f"speed must be positive, got {speed}; 1 is as recorded, 2 is twice as fast")
    choice = Choice(recordings)

    def route(operation: Operation, path: str) -> Route:
        async def answer(request: Request) -> Response | _Playback:
            asked_at = asyncio.get_running_loop().time()
            try:
                recording = _pick(choice, operation, json_of((await request.body()).decode()))
            except RefusedError as refusal:
                return _refuse(refusal)
            except (ForeignError, UnicodeDecodeError):
                return _refuse(RefusedError(400, "The request body is not JSON.", None))
            except ClientDisconnect:
                return Response()
            return _Playback(recording, asked_at, speed)

        return Route(path, answer, methods=["POST"])

    async def models(_: Request) -> Response:
        listed = [
            {"id": name, "object": "model", "created": 0, "owned_by": "midstream"} for name in choice.names
        ]
        return JSONResponse({"object": "list", "data": listed})

    return Starlette(
        routes=[*(route(operation, path) for operation, path in PATHS.items()), Route("/v1/models", models)],
        exception_handlers={404: _nothing_here, 405: _nothing_here},
    )


class _Playback:
    """A response that sends what was recorded when it is due, and stops when its client leaves."""

    def __init__(self, recording: Recording, asked_at: float, speed: float) -> None:
        self._recording = recording
        self._asked_at = asked_at
        self._speed = speed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            for at_s, message in _messages(self._recording):
                due = self._asked_at + at_s / self._speed
                await asyncio.wait([gone], timeout=max(0.0, due - clock()))
                if gone.done():
                    return
                await send(message)
        finally:
            gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _messages(recording: Recording) -> Iterator[tuple[float, Message]]:
    """Yield what an ASGI server is to send, and when: one send for all that arrived in one instant."""
    headers = list(recording.headers)
    if not recording.is_stream:
        headers.append(("content-length", str(sum(len(arrival.data) for arrival in recording.arrivals))))
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    start = {"type": "http.response.start", "status": recording.status, "headers": encoded}
    yield recording.headers_at_s, start
    for arrival in recording.arrivals:
        yield arrival.at_s, {"type": "http.response.body", "body": arrival.data, "more_body": True}
    yield recording.ended_at_s, {"type": "http.response.body", "body": b"", "more_body": False}


def _pick(choice: Choice, operation: Operation, body: object) -> Recording:
    if not isinstance(body, dict):
        raise RefusedError(400, "The request body must be a JSON object.", None)
    recording = choice.pick(operation, body.get("model"))
    if recording.is_stream and body.get("stream") is not True:
        raise RefusedError(400, "This is a recording of a stream; ask for it with stream=true.", "stream")
    return recording


async def _nothing_here(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    served = ", ".join(f"POST {path}" for path in PATHS.values())
    message = (
        f"Nothing answers {clean(request.method)} {clean(request.url.path)}; try {served} or GET /v1/models."
    )
    return _refuse(RefusedError(status, message, None))


def _refuse(refusal: RefusedError) -> Response:
    error = {"message": str(refusal), "type": refusal.kind, "param": refusal.param, "code": refusal.status}
    return JSONResponse({"error": error}, status_code=refusal.status)
