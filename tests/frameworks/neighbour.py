"""One process with another instrumentation in it, and with us before it, after it, or not at all. Prints JSON.

python neighbour.py PEER alone|before|after
python neighbour.py PEER theirs,ours,-theirs      # who comes and who leaves: a stream is read after each step
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import re
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.wire import WireServer
from openai import AsyncOpenAI, OpenAI
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import midstream
from midstream.runtime.monitor import PROCESS
from support.frameworks_through import CHAT, FREEZE_AFTER_S

PEERS = {
    "genai-openai": "opentelemetry.instrumentation.genai.openai",
    "traceloop": "opentelemetry.instrumentation.openai",
    "openinference": "openinference.instrumentation.openai",
}
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
VARIES = (
    "latency",
    "duration",
    "time_to_first_chunk",
    "port",
    "address",
    "api_base",
    "stream.max_gap",
    "response.id",
)
"""Attributes that differ from run to run, or are ours."""


def exits(base_url: str) -> dict[str, Callable[[], Any]]:
    """The ways to read a stream, and to leave it, that instrumentations disagree about."""
    client = OpenAI(api_key="none", base_url=base_url, max_retries=0)

    def whole() -> int:
        return len(list(client.chat.completions.create(**ASK)))

    def left() -> None:
        with client.chat.completions.create(**ASK) as stream:
            next(stream)

    def raw() -> int:
        response = client.chat.completions.with_raw_response.create(**ASK)
        return len(list(response.parse())) if response.headers else 0

    def legacy() -> int:
        return len(list(client.completions.create(model="m", prompt="hi", stream=True)))

    async def streaming() -> int:
        async with (
            AsyncOpenAI(api_key="none", base_url=base_url) as own,
            own.chat.completions.with_streaming_response.create(**ASK) as response,
        ):
            return len([chunk async for chunk in await response.parse()])

    async def cancelled() -> None:
        async def read() -> None:
            async for _ in await own.chat.completions.create(**ASK):
                pass

        async with AsyncOpenAI(api_key="none", base_url=base_url) as own:
            await asyncio.wait_for(read(), 0.7)

    return {
        "whole": whole,
        "left": left,
        "raw": raw,
        "legacy": legacy,
        "streaming": lambda: asyncio.run(streaming()),
        "cancelled": lambda: asyncio.run(cancelled()),
    }


ORDERS = {"alone": "theirs", "before": "ours,theirs", "after": "theirs,ours"}


def main(peer: str, order: str) -> None:
    """Instrument in this order, read in every way, print what both of us have seen."""
    spans = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    reader = InMemoryMetricReader()
    records: list[Any] = []

    instrumentor = importlib.import_module(PEERS[peer]).OpenAIInstrumentor()
    providers = {"tracer_provider": tracers, "meter_provider": MeterProvider(metric_readers=[reader])}
    steps = {
        "theirs": lambda: instrumentor.instrument(**providers),
        "-theirs": instrumentor.uninstrument,
        "ours": lambda: midstream.instrument(freeze_after_s=FREEZE_AFTER_S, on_end=records.append),
        "-ours": midstream.uninstrument,
    }
    if order not in ORDERS:
        counts = []
        with WireServer(CHAT[-3:]) as server:
            for step in order.split(","):
                steps[step]()
                spans.clear()
                records.clear()
                exits(server.base_url)["whole"]()
                PROCESS.flush()
                counts.append((step, len(spans.get_finished_spans()), len(records)))
        sys.stdout.write(json.dumps(counts))
        return
    for step in ORDERS[order].split(","):
        steps[step]()
    seen = {}
    with WireServer(CHAT) as server:
        for name, leave in exits(server.base_url).items():
            spans.clear()
            records.clear()
            try:
                result = repr(leave())
            except Exception as exc:
                result = type(exc).__name__
            gc.collect()
            PROCESS.flush()
            seen[name] = {
                "result": result,
                "spans": [_span(span) for span in spans.get_finished_spans()],
                "span_s": [_seconds(span) for span in spans.get_finished_spans()],
                "records": [(str(record.outcome), record.max_gap_s, record.freezes) for record in records],
            }
    data = reader.get_metrics_data()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
    metrics = {
        m.name: sum(p.count for p in m.data.data_points if hasattr(p, "count"))
        for s in scopes
        for m in s.metrics
    }
    sys.stdout.write(json.dumps({"exits": seen, "metrics": metrics}))


def _seconds(span: Any) -> float:
    return float(span.end_time - span.start_time) / 1e9


def _span(span: Any) -> dict[str, Any]:
    attributes = {
        name: re.sub(" at 0x[0-9a-f]+", "", str(value))
        for name, value in span.attributes.items()
        if not name.endswith(VARIES)
    }
    events = [event.name for event in span.events if event.name != "stream.freeze"]
    return {
        "name": span.name,
        "status": span.status.status_code.name,
        "attributes": attributes,
        "events": events,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
