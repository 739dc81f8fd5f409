"""Runs the streams of a probe with a real client, a few at a time, and collects their records."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from openai import APIStatusError, AsyncOpenAI

from midstream import StreamRecord, monitor
from midstream.probe.ask import Ask, first_ask, send
from midstream.probe.patience import GRACE_S, read_out
from midstream.probe.plan import Api, Plan, ProbeError, Server
from midstream.probe.problems import broken, unfinished, unreachable
from midstream.probe.refusal import refusal_of
from midstream.probe.refused import refused
from midstream.probe.server import open_client
from midstream.probe.summary import Seen
from midstream.runtime.settings import DISABLED, disabled
from midstream.sources.address import shown

if TYPE_CHECKING:
    from midstream.probe.ask import Stream

WORKER = "probe.worker"
"""The attribute that tells the workers apart in `midstream.streams()`: each has one stream open at a time."""

RECORD_S = 1.0
"""How long to wait for the record of a stream that has ended: hooks run on a thread of their own."""


@dataclass(slots=True)
class _Begun:
    """What is known of one stream so far. `content_type` is None until the server has answered."""

    stream: int
    content_type: str | None = None
    problem: str | None = None
    record: StreamRecord | None = None


class Probe:
    """One probe of one server. It may be cut short at any moment, and still knows what was seen so far."""

    def __init__(self, plan: Plan, server: Server) -> None:
        if _switched_off():
            raise ProbeError(f"{DISABLED} switches midstream off, so that it sees nothing; unset it to probe")
        if plan.api is Api.RESPONSES and not hasattr(AsyncOpenAI, "responses"):
            raise ProbeError("the installed openai package knows no Responses API; upgrade it")
        self.plan = plan
        self.server = server
        self.ask = first_ask(plan, server)
        self.elapsed_s = 0.0
        self.running: dict[str, int] = {}
        """Which stream each worker has open, by the worker's name."""
        self.ended = 0
        self._left = iter(range(1, plan.count + 1))
        self._hopeless = False
        self._begun: list[_Begun] = []
        self._unrecorded: defaultdict[str, deque[_Begun]] = defaultdict(deque)
        self._clients: dict[tuple[str, str], AsyncOpenAI] = {}
        self._records: SimpleQueue[tuple[str, StreamRecord]] = SimpleQueue()

    @property
    def url(self) -> str:
        """The base URL that is asked, as it may be shown."""
        return shown(self.ask.base_url)

    async def run(self) -> None:
        """Stream every answer of the plan, or as many as the server makes possible."""
        async with open_client(self.plan) as client:
            started = time.monotonic()
            try:
                workers = range(self.plan.at_a_time)
                await asyncio.gather(*(self._work(client, str(worker)) for worker in workers))
            finally:
                self.elapsed_s = time.monotonic() - started

    def seen(self) -> tuple[Seen, ...]:
        """Return what was seen of each stream that was begun, in order."""
        while any(self._unrecorded.values()):
            try:
                worker, record = self._records.get(timeout=RECORD_S)
            except Empty:
                break
            # A worker's streams end in the order in which they began.
            self._unrecorded[worker].popleft().record = record
        return tuple(self._seen(begun) for begun in self._begun)

    def _seen(self, begun: _Begun) -> Seen:
        problem, record = begun.problem, begun.record
        if problem is None and record is not None:
            problem = unfinished(record, self.ask.base_url, begun.content_type or "")
        redact = self.plan.secrets.redact
        return Seen(
            begun.stream,
            None if record is None else redacted(record, redact),
            None if problem is None else redact(problem),
        )

    async def _work(self, client: AsyncOpenAI, worker: str) -> None:
        """Stream answer after answer until none is left to begin, or it is clear that none will come."""
        for stream in self._left:
            begun = _Begun(stream)
            self._begun.append(begun)
            self.running[worker] = stream
            try:
                begun.problem = await self._stream(client, worker, begun)
            finally:
                del self.running[worker]
                self.ended += 1
            if self._hopeless:
                return

    async def _stream(self, client: AsyncOpenAI, worker: str, begun: _Begun) -> str | None:
        """Stream one answer; return what went wrong, if anything did."""
        while True:
            ask = self.ask
            try:
                # The client's own timeout begins anew with each byte of the headers.
                answer = await asyncio.wait_for(
                    send(self._watched(client, worker, ask.base_url), ask), self.plan.timeout_s + GRACE_S
                )
            except APIStatusError as exc:
                problem = self._refused(exc, ask)
                if problem is not None:
                    return problem
            except Exception as exc:
                problem = unreachable(exc, ask.base_url, self.plan.timeout_s)
                if problem is None:
                    raise
                return problem
            else:
                begun.content_type = answer.response.headers.get("content-type", "")
                self._unrecorded[worker].append(begun)
                return await self._read(answer)

    def _watched(self, client: AsyncOpenAI, worker: str, base_url: str) -> AsyncOpenAI:
        """Return the worker's own monitored client. It is kept: each call of `monitor()` costs a thread."""
        if (worker, base_url) not in self._clients:
            self._clients[worker, base_url] = monitor(
                client.with_options(base_url=base_url),
                freeze_after_s=self.plan.freeze_after_s,
                on_end=lambda record: self._records.put((worker, record)),
                attributes={WORKER: worker},
                include_usage=False,
                journal=None,  # what a probe asks for is not what users do
            )
        return self._clients[worker, base_url]

    def _refused(self, exc: APIStatusError, ask: Ask) -> str | None:
        """Say why the server refused; None if it is to be asked again, in other words."""
        if ask is not self.ask:
            return None  # another stream has found out meanwhile what the server takes
        refusal = refusal_of(exc.response)
        changed = ask.adapted(refusal)
        if changed is not None:
            self.ask = changed
            return None
        self._hopeless = self._hopeless or refusal.is_final
        return refused(
            refusal, ask.base_url, ask.api.path, ask.model, models=self.server.models, key=self.plan.key
        )

    async def _read(self, answer: Stream) -> str | None:
        try:
            async with answer:
                await read_out(answer, self.plan.timeout_s, self.plan.longest_s, self.plan.most_chunks)
        except Exception as exc:  # noqa: BLE001 - what the SDK fails with is the server's doing
            return broken(exc, self.ask.base_url, self.plan.timeout_s, self.plan.key)
        return None


def redacted(record: StreamRecord, redact: Callable[[str], str]) -> StreamRecord:
    """Return the record without any secret that the server named its model or a finish reason by."""
    return replace(
        record,
        request_model=redact(record.request_model),
        response_model=None if record.response_model is None else redact(record.response_model),
        finish_reasons=tuple(None if each is None else redact(each) for each in record.finish_reasons),
        error_type=None if record.error_type is None else redact(record.error_type),
    )


def _switched_off() -> bool:
    try:
        return disabled(os.environ)
    except ValueError as error:
        raise ProbeError(str(error)) from error
