"""The server of the soak: behaves as the name of the model that is asked for says, and counts who was answered."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

BEHAVIOURS = ("steady", "freezes", "cut", "error", "unfinished", "usage")
MOST = 400_000
"""Streams that can be told apart."""
FROZEN_S = 1.6


def server() -> Callable[..., Any]:
    """Make the application. `/seen` gives a byte for each number: how often a stream of it was begun."""
    seen = bytearray(MOST)

    async def app(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["path"].endswith("/seen"):
            await _whole(send, bytes(seen))
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        behaviour, _, number = json.loads(body)["model"].partition("-")
        seen[int(number)] += 1
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await _stream(send, gone, behaviour, random.Random(int(number)))
        finally:
            gone.cancel()

    return app


async def _stream(
    send: Callable[..., Any], gone: asyncio.Future[None], behaviour: str, dice: random.Random
) -> None:
    start = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", b"text/event-stream")],
    }
    await send(start)
    chunks = dice.randrange(6, 16)
    turn = dice.randrange(2, chunks - 1)
    for n in range(chunks):
        await _say(send, _chunk({"content": f"word {n} "}))
        if n == turn and behaviour == "cut":
            return
        if n == turn and behaviour == "error":
            await _say(send, {"error": {"message": "the engine died", "code": 500}})
            break
        pause_s = FROZEN_S if n == turn and behaviour == "freezes" else dice.uniform(0.1, 0.6)
        await asyncio.wait([gone], timeout=pause_s)
        if gone.done():
            return
    if behaviour not in {"unfinished", "error"}:
        await _say(send, _chunk({}, "stop"))
    if behaviour == "usage":
        usage = {"prompt_tokens": 9, "completion_tokens": chunks, "total_tokens": 9 + chunks}
        await _say(send, {**_chunk({}), "choices": [], "usage": usage})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


def _chunk(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


async def _say(send: Callable[..., Any], body: Any) -> None:
    data = f"data: {json.dumps(body)}\n\n".encode()
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _whole(send: Callable[..., Any], body: bytes) -> None:
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]}
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _gone(receive: Callable[..., Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
