"""Answers one HTTP request: when its headers go out, what is streamed, and what happens when its client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream.engines.dialect import Dialect
from midstream.engines.faults import Fault
from midstream.lab.admission import AdmissionRefusal, Reason, Request
from midstream.lab.emulation.emulated_engine import EmulatedEngine
from midstream.lab.emulation.mailbox import (
    AnswerMailbox,
    EngineFailed,
    Queued,
    Refused,
    Started,
    StreamEvent,
    TokensEmitted,
)
from midstream.lab.emulation.request_body import ParsedRequest
from midstream.lab.emulation.writing import AnswerWriter

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class AnswerExchange:
    """What it takes to answer a request."""

    engine: EmulatedEngine
    dialect: Dialect
    asked: ParsedRequest
    request: Request
    writer: AnswerWriter
    context: int
    keep_alive_s: float | None

    def open(self) -> AnswerMailbox:
        """Hand the request to the engine."""
        answer = AnswerMailbox(merges=self.dialect.merges)
        self.engine.ask(self.request, self.asked.choices, answer, fail_at=self.asked.fail_at)
        return answer

    def refusal(self, refusal: AdmissionRefusal) -> Fault:
        """Return why the engine refuses the request, in its own wording."""
        faults = self.dialect.faults
        if refusal.status in (429, 503):
            return Fault(refusal.status, faults.busy)
        return faults.too_long(self.asked.prompt_tokens, self._limit_at_fault(), self.context)

    def failure(self) -> Fault:
        """Return why the engine failed the request, in its own wording."""
        return Fault(500, self.dialect.failure)

    def _limit_at_fault(self) -> int | None:
        return None if self.asked.prompt_tokens >= self.context else self.asked.limit


class Streamed:
    """A streamed answer, as an ASGI application."""

    def __init__(self, exchange: AnswerExchange) -> None:
        self._it = exchange
        self._began = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what comes, until the answer is over or the client is gone."""
        async with _opened(self._it, receive) as answer:
            await self._play(answer, send)

    async def _play(self, answer: AnswerMailbox, send: Send) -> None:
        writer = self._it.writer
        while not writer.finished():
            patience_s = self._it.keep_alive_s if self._began else None
            news = await answer.take(patience_s)
            if answer.left:
                return
            if not news:
                await self._send(send, self._it.dialect.keep_alive)
                continue
            for position, each in enumerate(news):
                if isinstance(each, Refused | EngineFailed):
                    await self._fail(each, send)
                    return
                data = await self._frames(each, send)
                # What came together leaves together only where the server merges; tokens stay apart.
                if data:
                    await self._send(send, data, last=writer.finished() and position == len(news) - 1)

    async def _frames(self, news: StreamEvent, send: Send) -> bytes:
        at = self._it.dialect.headers_at
        if isinstance(news, TokensEmitted):
            await self._begin(send)
            return self._it.writer.said(news)
        if isinstance(news, Queued):
            opening = self._it.writer.queued()
            if at == "queued" or opening:
                await self._begin(send)
            return opening
        if isinstance(news, Started) and at == "started":
            await self._begin(send)
        return b""

    async def _begin(self, send: Send) -> None:
        if not self._began:
            self._began = True
            headers = [(name.encode(), value.encode()) for name, value in self._it.dialect.headers.items()]
            await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _send(self, send: Send, data: bytes, *, last: bool = False) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": not last})

    async def _fail(self, news: Refused | EngineFailed, send: Send) -> None:
        it = self._it
        fault = it.refusal(news.refusal) if isinstance(news, Refused) else it.failure()
        if not self._began and fault.status not in it.dialect.streamed_refusals:
            await send_json(send, fault.status, it.dialect.faults.body(fault))
            return
        if isinstance(news, EngineFailed) and it.dialect.on_failure == "break":
            return  # uvicorn cuts the connection of an answer that was not brought to its end
        await self._begin(send)
        done = isinstance(news, Refused) or it.dialect.on_failure == "event and done"
        await self._send(send, it.writer.failed(it.dialect.faults.event(fault), done=done), last=True)


class Whole:
    """An answer in one piece, as an ASGI application."""

    def __init__(self, exchange: AnswerExchange) -> None:
        self._it = exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the whole answer, and send it."""
        async with _opened(self._it, receive) as answer:
            await self._collect(answer, send)

    async def _collect(self, answer: AnswerMailbox, send: Send) -> None:
        counts: dict[int, int] = {}
        reasons: dict[int, Reason] = {}
        while len(reasons) < self._it.asked.choices:
            news = await answer.take()
            if answer.left:
                return
            for each in news:
                if isinstance(each, TokensEmitted):
                    counts[each.choice] = counts.get(each.choice, 0) + each.tokens
                    if each.reason is not None:
                        reasons[each.choice] = each.reason
                elif isinstance(each, Refused | EngineFailed):
                    it = self._it
                    fault = it.refusal(each.refusal) if isinstance(each, Refused) else it.failure()
                    await send_json(send, fault.status, it.dialect.faults.body(fault))
                    return
        await send_json(send, 200, self._it.writer.whole(reasons, counts))


@asynccontextmanager
async def _opened(exchange: AnswerExchange, receive: Receive) -> AsyncIterator[AnswerMailbox]:
    """Submit the request, and abort it when its client has left."""
    answer = exchange.open()
    gone = asyncio.ensure_future(_disconnected(receive))
    gone.add_done_callback(lambda _: answer.leave())
    try:
        yield answer
    finally:
        gone.cancel()
        exchange.engine.hang_up(answer)


async def send_json(send: Send, status: int, body: object) -> None:
    """Send a JSON document."""
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
