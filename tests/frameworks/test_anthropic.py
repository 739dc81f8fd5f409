"""Anthropic's SDK: another vendor's streams, given to `monitor()` one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.wire import Script, WireServer

from support.frameworks_through import FREEZE_AFTER_S, Through

anthropic = pytest.importorskip("anthropic")
ASK: dict[str, Any] = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


def event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def delta(text: str) -> str:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


MESSAGE: dict[str, Any] = {
    "id": "m1", "type": "message", "role": "assistant", "model": "claude-x", "content": [], "stop_reason": None,
    "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 1},
}  # fmt: skip
SCRIPT: Script = [
    (0.05, event("message_start", message=MESSAGE)),
    (0.05, event("content_block_start", index=0, content_block={"type": "text", "text": ""})),
    (0.1, delta("Hel")),
    (0.1, event("ping")),
    (0.2, delta("lo")),
    (0.5, event("ping")),
    (0.9, delta(" you")),
    (0.9, event("content_block_stop", index=0)),
    (
        0.9,
        event(
            "message_delta",
            delta={"stop_reason": "end_turn", "stop_sequence": None},
            usage={"output_tokens": 3},
        ),
    ),
    (0.9, event("message_stop")),
]


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer(SCRIPT) as wire:
        yield wire


def client(server: WireServer, kind: str) -> Any:
    sdk = anthropic.Anthropic if kind == "sync" else anthropic.AsyncAnthropic
    return sdk(api_key="none", base_url=f"http://127.0.0.1:{server.port}", max_retries=0)


def events(server: WireServer, through: Through) -> str:
    stream = through.monitor(client(server, "sync").messages.create(**ASK, stream=True))
    assert type(stream) is anthropic.Stream
    return "".join(getattr(getattr(event, "delta", None), "text", None) or "" for event in stream)


def helper(server: WireServer, through: Through) -> str:
    with through.monitor(client(server, "sync").messages.stream(**ASK)) as stream:
        return "".join(stream.text_stream)


def final(server: WireServer, through: Through) -> str:
    with through.monitor(client(server, "sync").messages.stream(**ASK)) as stream:
        return str(stream.get_final_message().content[0].text)


def function(server: WireServer, through: Through) -> str:
    @through.monitor
    def ask() -> Iterator[str]:
        with client(server, "sync").messages.stream(**ASK) as stream:
            yield from stream.text_stream

    return "".join(ask())


async def events_async(server: WireServer, through: Through) -> str:
    stream = through.monitor(await client(server, "async").messages.create(**ASK, stream=True))
    return "".join([getattr(getattr(event, "delta", None), "text", None) or "" async for event in stream])


async def helper_async(server: WireServer, through: Through) -> str:
    async with through.monitor(client(server, "async").messages.stream(**ASK)) as stream:
        return "".join([text async for text in stream.text_stream])


@pytest.mark.parametrize("read", [events, helper, final, function, events_async, helper_async])
def test_messages(through: Through, server: WireServer, read: Any) -> None:
    """However its streams are read, the gap is the server's silence between two deltas, pings or not."""
    assert through.settled(read(server, through)) == "Hello you"

    (record,) = through.records
    sent = server.exchanges[0].sent
    through.row(f"Anthropic, {read.__name__}", "anthropic", record, sent[6] - sent[4])
    assert record.freezes == 1
    assert (record.max_gap_s or 0) > FREEZE_AFTER_S
    # A monitored function passes on text alone: the rest is known from the response that it reads.
    assert (record.outcome, record.finish_reasons) == ("completed", ("end_turn",))
    assert (record.operation, record.request_model, record.server_port) == ("chat", "claude", server.port)
    assert (record.token_limit, record.input_tokens, record.output_tokens) == (9, 3, 3)
