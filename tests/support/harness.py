"""One face for the sync and the async client, so that the same test drives both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from openai import AsyncOpenAI, OpenAI

from midstream.testing import Collected, ManualClock, Script, collect, scripted, scripted_async

if TYPE_CHECKING:
    from typing_extensions import Self

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class Answer:
    """A stream of either client, read with `async for`."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._chunks()

    async def _chunks(self) -> AsyncIterator[Any]:
        if hasattr(self.raw, "__aiter__"):
            async for chunk in self.raw:
                yield chunk
        else:
            for chunk in self.raw:
                yield chunk

    async def __anext__(self) -> Any:
        if hasattr(self.raw, "__anext__"):
            return await self.raw.__anext__()
        return next(self.raw)

    async def close(self) -> None:
        await settled(self.raw.close())

    async def close_response(self) -> None:
        response = self.raw.response
        await settled(response.aclose() if hasattr(self.raw, "__aiter__") else response.close())

    async def __aenter__(self) -> Self:
        await settled((getattr(self.raw, "__aenter__", None) or self.raw.__enter__)())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await settled((getattr(self.raw, "__aexit__", None) or self.raw.__exit__)(*exc))


class Client:
    """A monitored client of either kind that talks to a scripted server."""

    def __init__(self, sdk: Any, seen: Collected, cancellation: type[BaseException]) -> None:
        self.sdk = sdk
        self.seen = seen
        self.cancellation = cancellation
        self.caught: BaseException | None = None

    async def create(self, **request: Any) -> Answer:
        return Answer(await settled(self.sdk.chat.completions.create(**ASK, stream=True, **request)))

    async def raw(self, **request: Any) -> Any:
        return await settled(
            self.sdk.chat.completions.with_raw_response.create(**ASK, stream=True, **request)
        )

    @asynccontextmanager
    async def streaming_response(self) -> AsyncIterator[Answer]:
        manager = self.sdk.chat.completions.with_streaming_response.create(**ASK, stream=True)
        async with both(manager) as response:
            yield Answer(await settled(response.parse()))

    @asynccontextmanager
    async def helper(self) -> AsyncIterator[Answer]:
        chat = (
            self.sdk.chat.completions
            if hasattr(self.sdk.chat.completions, "stream")
            else self.sdk.beta.chat.completions
        )
        manager = chat.stream(**ASK)
        async with both(manager) as events:
            yield Answer(events)


async def settled(value: Any) -> Any:
    return await value if isawaitable(value) else value


@asynccontextmanager
async def both(manager: Any) -> AsyncIterator[Any]:
    """Enter a sync or an async context manager."""
    if hasattr(manager, "__aenter__"):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


async def stream_of(client: Client, **request: Any) -> Answer:
    return await client.create(**request)


def a_client(kind: str, script: Script, clock: ManualClock, **settings: Any) -> Client:
    cancellation: type[BaseException] = KeyboardInterrupt if kind == "sync" else asyncio.CancelledError
    frames = [(at_s, cancellation() if data == "cancel" else data) for at_s, data in script]
    if kind == "sync":
        sdk: Any = OpenAI(api_key="none", max_retries=0, http_client=scripted(frames, clock))
    else:
        sdk = AsyncOpenAI(api_key="none", max_retries=0, http_client=scripted_async(frames, clock))
    return Client(sdk, collect(sdk, clock=clock, **settings), cancellation)
