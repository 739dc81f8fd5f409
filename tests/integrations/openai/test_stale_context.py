"""What a call or a function leaves in a context variable, which tasks that it starts copy, is void afterwards."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from midstream.testing import ManualClock, collect, http_library


def chunk(**fields: Any) -> bytes:
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **fields}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


BODY = (
    chunk(choices=[{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}])
    + chunk(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3})
    + b"data: [DONE]\n\n"
)


class Server:
    """A server in memory. `on_request` is an event hook of the HTTP client, as callers have them."""

    def __init__(self, on_request: Any) -> None:
        http = http_library()
        transport = http.MockTransport(self.answer)
        hooks = {"request": [on_request]}
        self.async_client = AsyncOpenAI(
            api_key="k",
            base_url="http://x/v1",
            http_client=http.AsyncClient(transport=transport, event_hooks=hooks),
        )
        self.hooks = hooks

    def answer(self, _request: Any) -> Any:
        return http_library().Response(200, headers={"content-type": "text/event-stream"}, content=BODY)


async def ask(client: Any, model: str, **more: Any) -> list[Any]:
    stream = await client.chat.completions.create(model=model, messages=[], stream=True, **more)
    return [one.usage is not None async for one in stream]


@pytest.mark.parametrize("include_usage", [False, True])
@pytest.mark.parametrize("during", [False, True], ids=["after the call", "during the call"])
def test_task_that_was_started_in_a_request_makes_calls_of_its_own(during: bool, include_usage: bool) -> None:
    """A worker that a hook starts on first use: its streams have their own model, limit and usage chunk."""
    done: list[Any] = []
    workers: list[asyncio.Task[None]] = []
    first_is_over = asyncio.Event()

    async def work() -> None:
        if not during:
            await first_is_over.wait()
        for model in ("second", "third"):
            done.append(  # noqa: PERF401 - one after the other
                await ask(server.async_client, model, max_tokens=7, stream_options={"include_usage": True})
            )

    async def hook(_request: Any) -> None:
        if not workers:
            workers.append(asyncio.create_task(work()))
            if during:
                await workers[0]

    server = Server(hook)
    clock = ManualClock()
    seen = collect(server.async_client, clock=clock, include_usage=include_usage)

    async def main() -> None:
        done.append(await ask(server.async_client, "first"))
        first_is_over.set()
        await workers[0]

    asyncio.run(main())

    found = {record.request_model: (record.token_limit, record.output_tokens) for record in seen.records}
    assert found == {"first": (None, 2), "second": (7, 2), "third": (7, 2)}
    assert sorted(done) == sorted([[False] if include_usage else [False, True], [False, True], [False, True]])


def test_thread_that_got_the_context_of_a_request_makes_calls_of_its_own() -> None:
    """As `asyncio.to_thread` and executors of frameworks hand it on."""
    contexts: list[contextvars.Context] = []
    http = http_library()
    client = OpenAI(
        api_key="k",
        base_url="http://x/v1",
        http_client=http.Client(
            transport=http.MockTransport(
                lambda _: http.Response(200, headers={"content-type": "text/event-stream"}, content=BODY)
            ),
            event_hooks={"request": [lambda _: contexts.append(contextvars.copy_context())]},
        ),
    )
    seen = collect(client, clock=ManualClock())

    def read(model: str) -> None:
        for _ in client.chat.completions.create(model=model, messages=[], stream=True):
            pass

    read("first")
    thread = threading.Thread(target=contexts[0].run, args=(read, "second"))
    thread.start()
    thread.join()

    assert [record.request_model for record in seen.records] == ["first", "second"]


def test_task_that_was_started_in_a_function_is_not_part_of_it_once_it_has_returned() -> None:
    """A worker that a monitored function has started has its own streams; those inside the call are the function's."""
    worker: list[asyncio.Task[Any]] = []

    async def nothing(_request: Any) -> None:
        pass

    server = Server(nothing)
    seen = collect(clock=ManualClock(), attributes={"step": "plan"})
    started = asyncio.Event()

    async def work() -> None:
        await ask(server.async_client, "inside")
        started.set()
        await returned.wait()
        await ask(server.async_client, "later")

    @seen.monitor
    async def function() -> None:
        worker.append(asyncio.create_task(work()))
        await started.wait()

    returned = asyncio.Event()

    async def main() -> None:
        await function()
        returned.set()
        await worker[0]

    asyncio.run(main())

    assert [record.request_model for record in seen.records] == ["inside"]
