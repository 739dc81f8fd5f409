"""One process with another instrumentation in it, read through HTTP libraries and the SDK. Prints JSON.

python http_neighbour.py PEER alone|before|after        whether we are there, and come before it or after it
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import aiohttp
import httpx
import requests
from benchmarks.wire import Script, WireServer
from openai import AsyncOpenAI, OpenAI
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import midstream
from midstream.runtime.monitor import PROCESS
from midstream.testing import DONE, finish, role, text, usage

FREEZE_AFTER_S = 0.2
CHAT: Script = [
    (0.01, role()),
    (0.02, text("Hel")),
    (0.03, text("lo")),
    (0.43, text(" you")),
    (0.43, finish()),
    (0.43, usage(5, 3)),
    (0.43, DONE),
]
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
VARIES = re.compile(r"0x[0-9a-f]+|:\d{4,5}\b|\d+\.\d+|[0-9a-f-]{16,}")


def readings(base_url: str) -> dict[str, Callable[[], Any]]:
    """The ways to read a stream, and to leave it after its first bytes."""
    where = f"{base_url}/chat/completions"

    def with_httpx(*, most: int | None = None) -> list[str]:
        with httpx.Client() as client, client.stream("POST", where, json=ASK) as response:
            return [line for _, line in zip(range(most or 99), response.iter_lines(), strict=False)]

    async def with_httpx_async() -> list[str]:
        async with httpx.AsyncClient() as client, client.stream("POST", where, json=ASK) as response:
            return [line async for line in response.aiter_lines()]

    async def with_aiohttp(*, most: int | None = None) -> list[str]:
        async with aiohttp.ClientSession() as session, session.post(where, json=ASK) as response:
            found = []
            async for line in response.content:
                found.append(line.decode())
                if len(found) == most:
                    break
            return found

    def with_requests(*, most: int | None = None) -> list[str]:
        with requests.Session() as session, session.post(where, json=ASK, stream=True) as response:
            return [line.decode() for _, line in zip(range(most or 99), response.iter_lines(), strict=False)]

    def with_sdk() -> list[str]:
        with OpenAI(api_key="none", base_url=base_url, max_retries=0) as client:
            return [type(chunk).__name__ for chunk in client.chat.completions.create(**ASK)]

    async def with_sdk_async() -> list[str]:
        async with AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0) as client:
            return [type(chunk).__name__ async for chunk in await client.chat.completions.create(**ASK)]

    return {
        "httpx": with_httpx,
        "httpx async": lambda: asyncio.run(with_httpx_async()),
        "httpx left": lambda: with_httpx(most=1),
        "aiohttp": lambda: asyncio.run(with_aiohttp()),
        "aiohttp left": lambda: asyncio.run(with_aiohttp(most=1)),
        "requests": with_requests,
        "requests left": lambda: with_requests(most=1),
        "openai": with_sdk,
        "openai async": lambda: asyncio.run(with_sdk_async()),
    }


class Spans:
    """The spans of a peer that uses OpenTelemetry."""

    def __init__(self) -> None:
        self.memory = InMemorySpanExporter()
        self.flush: Callable[[], object] = lambda: None

    def provider(self) -> TracerProvider:
        made = TracerProvider()
        made.add_span_processor(SimpleSpanProcessor(self.memory))
        return made

    def around(self) -> AbstractContextManager[object]:
        return nullcontext()

    def taken(self) -> list[Any]:
        self.flush()
        found = [_span(span) for span in self.memory.get_finished_spans()]
        self.memory.clear()
        return found


def _span(span: ReadableSpan) -> Any:
    attributes = {
        name: VARIES.sub("#", str(value))
        for name, value in (span.attributes or {}).items()
        if not re.search(r"port|duration|latency|time|host|address|logfire\.json_schema", name)
    }
    events = [event.name for event in span.events if event.name != "stream.freeze"]
    return [VARIES.sub("#", span.name), span.status.status_code.name, attributes, events]


class Envelopes(Spans):
    """What Sentry sends: a transaction around each reading, with its spans."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []

    def around(self) -> AbstractContextManager[object]:
        import sentry_sdk

        return sentry_sdk.start_transaction(name="reading")  # type: ignore[no-any-return]

    def taken(self) -> list[Any]:
        found = [
            [span["op"], VARIES.sub("#", str(span.get("description"))), span.get("status")]
            for event in self.sent
            for span in event.get("spans", ())
        ]
        self.sent.clear()
        return found


def otel() -> Spans:
    spans = Spans()
    for module, name in (
        ("httpx", "HTTPXClientInstrumentor"),
        ("aiohttp_client", "AioHttpClientInstrumentor"),
        ("requests", "RequestsInstrumentor"),
        ("urllib3", "URLLib3Instrumentor"),
    ):
        instrumentor = getattr(import_module(f"opentelemetry.instrumentation.{module}"), name)
        instrumentor().instrument(tracer_provider=spans.provider())
    return spans


def openinference() -> Spans:
    spans = Spans()
    instrumentor = import_module("openinference.instrumentation.openai").OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=spans.provider())
    return spans


def logfire() -> Spans:
    import logfire

    spans = Spans()
    logfire.configure(
        send_to_logfire=False,
        console=False,
        additional_span_processors=[SimpleSpanProcessor(spans.memory)],
    )
    for name in ("openai", "httpx", "requests", "aiohttp_client"):
        getattr(logfire, f"instrument_{name}")()
    return spans


def langfuse() -> Spans:
    from langfuse import Langfuse

    spans = Spans()
    client = Langfuse(
        public_key="pk-none",
        secret_key="sk-none",
        base_url="http://127.0.0.1:9",
        span_exporter=spans.memory,
    )
    import_module("langfuse.openai")  # this is what instruments
    spans.flush = client.flush
    return spans


def sentry() -> Spans:
    import sentry_sdk
    from sentry_sdk.transport import Transport

    spans = Envelopes()

    class Keeping(Transport):  # type: ignore[misc]  # not installed where types are checked
        def capture_envelope(self, envelope: Any) -> None:
            spans.sent += [item.payload.json for item in envelope.items if item.payload.json]

    sentry_sdk.init(dsn="http://none@127.0.0.1/1", transport=Keeping, traces_sample_rate=1.0)
    return spans


PEERS: dict[str, Callable[[], Spans]] = {
    "otel": otel,
    "openinference": openinference,
    "logfire": logfire,
    "langfuse": langfuse,
    "sentry": sentry,
}


def main(peer: str, order: str) -> None:
    """Instrument in this order, read in every way, print what both of us have seen."""
    records: list[Any] = []

    def ours() -> None:
        midstream.instrument(freeze_after_s=FREEZE_AFTER_S, on_end=records.append)

    if order == "before":
        ours()
    spans = PEERS[peer]()
    if order == "after":
        ours()
    seen = {}
    with WireServer(CHAT) as server:
        for name, read in readings(server.base_url).items():
            with spans.around():
                got = read()
            gc.collect()
            PROCESS.flush()
            seen[name] = {
                "got": [VARIES.sub("#", line) for line in got],
                "spans": spans.taken(),
                "records": [
                    (str(record.outcome), record.freezes, record.max_gap_s, record.request_model)
                    for record in records
                ],
            }
            records.clear()
    sys.stdout.write(json.dumps(seen))
    sys.stdout.flush()
    os._exit(0)  # what they would still send at exit has nowhere to go


if __name__ == "__main__":
    main(*sys.argv[1:])
