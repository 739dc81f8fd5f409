"""Something secret in every place where a program or a server can put it, and a look at everything that comes out.

Each canary is a word of its own, so that a failure names the place it came from. They are planted in what midstream
must never keep; model names, hosts, finish reasons and attributes are kept, and docs/privacy.md says so.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import gc
import logging
import pickle
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, is_dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, AzureOpenAI, OpenAI
from opentelemetry import baggage
from opentelemetry import context as otel_context
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

import midstream
from midstream import Outcome
from midstream._support import internal_errors
from midstream.cli import COMMANDS as EVERY_COMMAND
from midstream.cli import main
from midstream.cli.dashboard.page import DashboardPage
from midstream.integrations.generic.object_proxy import ObjectProxy
from midstream.integrations.patching import Patches
from midstream.journal import Journal, flush
from midstream.monitoring.alerts import Naming
from midstream.monitoring.dashboards import DASHBOARDS
from midstream.setup import Setup
from midstream.sources.prometheus_api import PrometheusError
from midstream.telemetry.exporters.configuration import export_configuration
from midstream.testing import (
    CUT,
    DONE,
    SILENCE,
    Collected,
    ManualClock,
    Script,
    chunk,
    collect,
    finish,
    frame,
    http_library,
    role,
    scripted,
    scripted_async,
    usage,
)
from support.commands import end, read_until, running
from support.harness import Answer, settled
from support.needs import needs_responses
from support.records import a_record


class Canaries:
    """Words that may come out nowhere."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def __call__(self, place: str) -> str:
        """A word for one place, the same each time."""
        word = f"canary{place}zq7"
        if word not in self.words:
            self.words.append(word)
        return word

    def in_(self, what: str | bytes) -> list[str]:
        """Which of them are in there, plain or as basic authentication writes them."""
        data = what.encode("utf-8", "replace") if isinstance(what, str) else what
        lower = data.lower()
        login = base64.b64encode(f"{self('user')}:{self('password')}".encode())
        return [word for word in self.words if word.encode() in lower] + (["login"] if login in data else [])


bird = Canaries()
SERVED = {
    "content-type": "text/event-stream",
    "x-request-id": bird("responseheader"),
    "set-cookie": bird("cookie"),
}


class Everything(logging.Handler):
    """Keeps every log line at every level: as text, with its traceback, and with what it was made of."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.setFormatter(logging.Formatter("%(message)s"))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{self.format(record)} {record.args!r} {record.exc_info!r} {record.__dict__!r}")


class Outlets:
    """Every way in which something can come out of midstream."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock(time.time())  # a journal lets go of what is older than a month
        self.log = Everything()
        self.memory = InMemoryMetricReader()
        self.prometheus = CollectorRegistry()
        readers = [self.memory, PrometheusMetricReader(registry=self.prometheus)]
        self.meters = MeterProvider(readers, shutdown_on_exit=False)
        self.spans = InMemorySpanExporter()
        self.tracing = TracerProvider(shutdown_on_exit=False)
        self.tracing.add_span_processor(SimpleSpanProcessor(self.spans))
        self.shown: list[str] = []

    @property
    def journal(self) -> Path:
        """The file that records go to."""
        return self.path / "streams.db"

    def watch(self, client: Any, **settings: Any) -> Any:
        """Monitor something with every outlet open."""
        seen = collect(
            None if callable(client) else client,
            clock=self.clock,
            meter_provider=self.meters,
            journal=self.journal,
            attributes={"team": "search"},
            on_freeze=self.show,
            on_thaw=self.show,
            on_end=self.show,
            **settings,
        )
        self.shown += [repr(seen.monitor), repr(seen)]
        return seen

    def look_inside(self, seen: Collected) -> None:
        """Keep how everything looks that a debugger, a crash report or a curious program could print."""
        ours = [seen, seen.process, *seen.process.roster]
        ours += [thing for thing in gc.get_objects() if str(type(thing).__module__).startswith("midstream")]
        self.shown += [repr(thing) for thing in ours if not isinstance(thing, ObjectProxy)]

    def show(self, value: Any) -> None:
        """Keep what a hook or a list of streams was given, in every form that it can be given on in."""
        self.shown += [repr(value), str(value)]
        for one in value if isinstance(value, tuple) else (value,):
            if is_dataclass(one) and not isinstance(one, type):
                self.shown += [repr(pickle.dumps(one)), repr(asdict(one)), repr(copy.deepcopy(one))]

    def all(self) -> dict[str, str | bytes]:
        """Everything that came out, by where it came out."""
        assert flush()
        data = self.memory.get_metrics_data()
        return {
            "values": "\n".join(self.shown),
            "log": "\n".join(self.log.lines),
            "metrics": "" if data is None else data.to_json(),
            "OTLP": b"" if data is None else encode_metrics(data).SerializeToString(),
            "Prometheus page": generate_latest(self.prometheus),
            "spans": "\n".join(span.to_json() for span in self.spans.get_finished_spans()),
            "journal": b"".join(file.read_bytes() for file in sorted(self.path.iterdir())),
        }


@pytest.fixture
def outlets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outlets]:
    monkeypatch.setattr(internal_errors, "RAISE", False)
    monkeypatch.setattr(internal_errors, "_internal_errors", internal_errors.OnceLog())
    found = Outlets(tmp_path)
    log = logging.getLogger("midstream")
    before = log.level
    log.setLevel(logging.DEBUG)
    log.addHandler(found.log)
    yield found
    log.removeHandler(found.log)
    log.setLevel(before)


def clean(outlets: Outlets, *expected: str) -> None:
    """No canary came out anywhere, though each outlet was used and each of `expected` came out."""
    found = outlets.all()
    assert {outlet: bird.in_(data) for outlet, data in found.items() if bird.in_(data)} == {}
    said = "\n".join(data if isinstance(data, str) else repr(data) for data in found.values())
    assert [word for word in expected if word not in said] == []


# What programs and servers say

CALL = {
    "index": 0,
    "id": bird("toolid"),
    "type": "function",
    "function": {"name": bird("toolname"), "arguments": bird("toolarguments")},
}
DELTAS: list[dict[str, Any]] = [
    {"content": bird("text")},
    {"reasoning": bird("reasoning")},
    {"reasoning_content": bird("reasoningcontent")},
    {"refusal": bird("refusal")},
    {"tool_calls": [CALL]},
    {"function_call": {"name": bird("functionname"), "arguments": bird("functionarguments")}},
    {"audio": {"data": bird("audio"), "transcript": bird("transcript")}},
    {bird("unknownfield"): bird("unknownvalue")},
]
SPOKEN: Script = [
    (0.5, f": {bird('comment')}\n\n"),
    (1, role()),
    *[(2.0 + 10 * number, chunk(delta)) for number, delta in enumerate(DELTAS)],
    (80, chunk({}, None, system_fingerprint=bird("fingerprint"), extra=bird("extra"))),
    (81, finish()),
    (82, usage(3, 4, details=bird("usage"))),
    (82, DONE),
]
EVENTS: Script = [
    (
        1,
        frame(
            {
                "type": "response.created",
                "response": {"id": "resp_1", "instructions": bird("instructions")},
            }
        ),
    ),
    (2, frame({"type": "response.output_text.delta", "delta": bird("outputtext")})),
    (
        12,
        frame(
            {
                "type": "response.output_item.added",
                "item": {"type": "function_call", "name": bird("itemname")},
            }
        ),
    ),
    (22, frame({"type": "response.function_call_arguments.delta", "delta": bird("itemarguments")})),
    (23, frame({"type": "response.failed", "response": {"error": {"message": bird("failure")}}})),
]
ENDS: dict[str, Script] = {
    "error event": [(20, frame({"error": {"message": bird("errormessage"), "code": bird("errorcode")}}))],
    "error that is yielded": [
        (20, "event: error\n" + frame({"message": bird("flatmessage"), "code": bird("flatcode")}))
    ],
    "undecodable frame": [(20, f"data: {bird('brokenframe')}\n\n")],
    "exception of the transport": [(20, RuntimeError(bird("exception")))],
    "chunk of no known shape": [
        (20, frame({"choices": bird("choices"), "usage": bird("usagetext")})),
        (21, DONE),
    ],
}
REQUEST: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": bird("systemprompt")},
        {"role": "user", "content": [{"type": "text", "text": bird("prompt")}], "name": bird("username")},
    ],
    "user": bird("endusers"),
    "stop": [bird("stop")],
    "tools": [
        {"type": "function", "function": {"name": bird("tool"), "description": bird("tooldescription")}}
    ],
    "extra_body": {"more": bird("extrabody"), "metadata": {"trace": bird("metadata")}},
    "extra_headers": {"x-extra": bird("extraheader")},
    "extra_query": {"q": bird("extraquery")},
}


def client(kind: str, outlets: Outlets, script: Script, **response: Any) -> Any:
    """A client with a canary in everything that it is made of."""
    http = scripted if kind == "sync" else scripted_async
    make = OpenAI if kind == "sync" else AsyncOpenAI
    return make(
        api_key=bird("key"),
        organization=bird("organization"),
        project=bird("project"),
        base_url=f"http://{bird('user')}:{bird('password')}@llm.example.com/{bird('path')}/v1?key={bird('query')}",
        default_headers={"x-default": bird("defaultheader")},
        default_query={"d": bird("defaultquery")},
        http_client=http(script, outlets.clock, **{"headers": SERVED, **response}),
        max_retries=0,
    )


async def ask(outlets: Outlets, made: Any, method: Any, **request: Any) -> None:
    """Ask for a stream and read it to whatever end it has, with the streams that are open looked at all along."""
    seen = outlets.watch(made)
    with outlets.tracing.get_tracer("shop").start_as_current_span(
        "ask", record_exception=False, set_status_on_exception=False
    ):
        try:
            async for _ in Answer(await settled(method(**request, stream=True))):
                outlets.show(seen.streams())
        except Exception:
            outlets.show("it raised")
    seen.flush()


KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


@KINDS
@pytest.mark.parametrize("end", ["spoken to its end", *ENDS])
def test_nothing_of_a_chat_comes_out(end: str, kind: str, outlets: Outlets) -> None:
    """Prompts, output of every kind, tools, headers, key, URL and messages of errors stay where they are."""
    script = SPOKEN if end not in ENDS else [*SPOKEN[:6], *((40 + at, data) for at, data in ENDS[end])]
    made = client(kind, outlets, script)

    asyncio.run(ask(outlets, made, made.chat.completions.create, **REQUEST))

    clean(
        outlets, "llm.example.com", "stream froze", "stream.freeze", "stream_max_gap_seconds_bucket", "search"
    )


@KINDS
def test_nothing_of_a_completion_comes_out(kind: str, outlets: Outlets) -> None:
    """The older API says its text in another place."""
    piece = frame(
        {
            "id": "c",
            "model": "m",
            "choices": [{"index": 0, "text": bird("completion"), "finish_reason": None}],
        }
    )
    made = client(kind, outlets, [(1, piece), (20, piece), (21, DONE)])

    asyncio.run(
        ask(
            outlets,
            made,
            made.completions.create,
            model="m",
            prompt=bird("completionprompt"),
            suffix=bird("suffix"),
        )
    )

    clean(outlets, "llm.example.com", "stream froze", "no_finish")


@needs_responses
@KINDS
def test_nothing_of_a_response_comes_out(kind: str, outlets: Outlets) -> None:
    """Nor of the events of the Responses API."""
    made = client(kind, outlets, EVENTS)

    asyncio.run(
        ask(
            outlets,
            made,
            made.responses.create,
            model="m",
            input=bird("input"),
            instructions=bird("theinstructions"),
            metadata={"m": bird("responsemetadata")},
        )
    )

    clean(outlets, "llm.example.com", "stream froze", "response.failed")


@KINDS
@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_nothing_of_a_refusal_comes_out(status: int, kind: str, outlets: Outlets) -> None:
    """What a server answers instead of a stream is its own business, and the program's."""
    http = http_library()
    body = {"error": {"message": f"bad key {bird('refusedkey')}", "code": bird("refusedcode")}}
    transport = http.MockTransport(
        lambda _: http.Response(status, json=body, headers={"x-id": bird("refusedheader")})
    )
    made = client(kind, outlets, [])
    made._client = (http.Client if kind == "sync" else http.AsyncClient)(transport=transport)

    asyncio.run(ask(outlets, made, made.chat.completions.create, **REQUEST))

    clean(outlets, "llm.example.com", "Error")


async def exhausted(answer: Answer) -> None:
    async for _ in answer:
        pass


async def closed(answer: Answer) -> None:
    async for _ in answer:
        await answer.close()
        break


async def response_closed(answer: Answer) -> None:
    async for _ in answer:
        await answer.close_response()
        break


async def dropped(answer: Answer) -> None:
    async for _ in answer:
        break
    answer.raw = None
    gc.collect()


async def never_read(answer: Answer) -> None:
    answer.raw = None
    gc.collect()


async def raised_in_the_body(answer: Answer) -> None:
    async with answer:
        async for _ in answer:
            raise LookupError(bird("callers"))


async def cancelled(answer: Answer) -> None:
    async with answer:
        async for _ in answer:
            raise asyncio.CancelledError(bird("cancelled"))


LEAVINGS = [exhausted, closed, response_closed, dropped, never_read, raised_in_the_body, cancelled]
WAITS: dict[str, Script] = {"cut": [(20, CUT)], "timeout": [(20, SILENCE)], "nothing": []}


@KINDS
@pytest.mark.parametrize(
    ("leave", "end"),
    [*((leave, "nothing") for leave in LEAVINGS), (exhausted, "cut"), (exhausted, "timeout")],
)
def test_nothing_comes_out_however_a_stream_is_left(
    leave: Callable[[Answer], Any], end: str, kind: str, outlets: Outlets
) -> None:
    """Nor from what the program and midstream hold meanwhile, should somebody print it."""
    made = client(kind, outlets, [*SPOKEN[:5], *((40 + at, data) for at, data in WAITS[end])])
    seen = outlets.watch(made)

    async def use() -> None:
        token = otel_context.attach(baggage.set_baggage(bird("baggagename"), bird("baggage")))
        try:
            answer = Answer(await settled(made.chat.completions.create(**REQUEST, stream=True)))
            outlets.look_inside(seen)
            await leave(answer)
        except (Exception, asyncio.CancelledError):
            outlets.show("it raised")
        finally:
            otel_context.detach(token)

    asyncio.run(use())
    gc.collect()
    seen.flush()
    outlets.look_inside(seen)

    assert len(seen.records) == 1
    clean(outlets, "llm.example.com", str(seen.records[0].outcome), "<StreamRecord ")


def test_nothing_of_a_proxy_comes_out(outlets: Outlets) -> None:
    """A proxy has a login of its own, and its address is nobody's business but the program's."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        proxy = f"http://{bird('user')}:{bird('password')}@127.0.0.1:{taken.getsockname()[1]}"
        made = OpenAI(
            api_key=bird("key"),
            base_url="http://llm.example.com/v1",
            http_client=http_library().Client(proxy=proxy),
            max_retries=0,
        )
        asyncio.run(ask(outlets, made, made.chat.completions.create, **REQUEST))

    clean(outlets, "APIConnectionError")


def test_nothing_of_an_azure_client_comes_out(outlets: Outlets) -> None:
    """Its deployment is a model's name; token, version and path are not."""
    made = AzureOpenAI(
        azure_endpoint=f"https://{bird('user')}:{bird('password')}@shop.openai.azure.com/{bird('path')}",
        azure_deployment=bird("deployment"),
        azure_ad_token=bird("adtoken"),
        api_version=bird("version"),
        http_client=scripted(SPOKEN, outlets.clock, headers=SERVED),
        max_retries=0,
    )
    asyncio.run(ask(outlets, made, made.chat.completions.create, **REQUEST))

    clean(outlets, "shop.openai.azure.com", "azure.ai.openai")


def test_nothing_of_a_raw_response_comes_out(outlets: Outlets) -> None:
    """Headers and bytes are there for the caller alone."""
    made = client("sync", outlets, SPOKEN)
    seen = outlets.watch(made)
    raw = made.chat.completions.with_raw_response.create(**REQUEST, stream=True)
    outlets.look_inside(seen)
    assert bird("responseheader") in raw.headers.values()
    list(raw.parse())
    with made.chat.completions.with_streaming_response.create(**REQUEST, stream=True) as response:
        outlets.look_inside(seen)
        assert any(bird("text") in line for line in response.iter_lines())
    seen.flush()

    clean(outlets, "llm.example.com", "completed")


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://{user}:{password}@127.0.0.1:9",
        "http://{user}:{password}@127.0.0.1:9/{path}?key={query}",
        "{user}:{password}@127.0.0.1:9",
        "http://{user}:{password}/x@127.0.0.1:9",
        "http://{user}:{password}?x@127.0.0.1:9",
        "http://{user}:{password}#x@127.0.0.1:9",
    ],
)
def test_nothing_of_a_collectors_address_comes_out(
    endpoint: str, outlets: Outlets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Host and port of the collector are said when it cannot be reached; login, path and headers are not."""
    url = endpoint.format(**{name: bird(name) for name in ("user", "password", "path", "query")})
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={bird('otlpheader')}",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    try:
        with Setup(export_configuration(environ)) as handle:
            outlets.show(handle)
            outlets.show(repr(vars(handle).get("_plan")))
            handle.flush(2.0)
    except Exception as exc:
        outlets.show(exc)
    said = "\n".join([*outlets.shown, *outlets.log.lines])

    assert bird.in_(said) == []
    assert "127.0.0.1:9" in said or "must" in said


def test_nothing_is_in_what_a_refused_argument_says(outlets: Outlets) -> None:
    """A key in the wrong place is not repeated."""
    for refused in (bird("key"), bird("key").encode(), {"api_key": bird("key")}):
        with pytest.raises(TypeError, match=r"^monitor\(\) takes") as caught:
            midstream.monitor(refused)
        outlets.show(caught.value)
    for settings in ({"on_end": bird("key")}, {"include_usage": bird("key")}, {"attributes": bird("key")}):
        with pytest.raises(TypeError) as caught:
            midstream.monitor(OpenAI(api_key="none"), **settings)  # type: ignore[call-overload]
        assert isinstance(caught.value, TypeError)


def test_nothing_of_a_stream_of_another_make_comes_out(outlets: Outlets) -> None:
    """Generators, functions and their arguments, whatever they yield and however they fail."""

    def words(question: str) -> Iterator[Any]:
        yield bird("word")
        outlets.clock.advance(20)
        yield {"choices": [{"delta": {"content": bird("dictionary")}}]}
        raise ValueError(bird("generator"))

    async def words_async(question: str) -> AsyncIterator[Any]:
        for word in words(question):
            yield word

    watch = outlets.watch(words).monitor
    with pytest.raises(ValueError, match="canary"):
        for _ in watch(words)(bird("argument")):
            pass
    stream = watch(words(bird("argument")))
    next(stream)
    outlets.show(stream)
    stream.close()

    async def read() -> None:
        async for _ in watch(words_async)(bird("argument")):
            pass

    with pytest.raises(ValueError, match="canary"):
        asyncio.run(read())

    clean(outlets, "stream froze", "ValueError")


class Hostile:
    """A chunk that raises whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        secret = bird("local")  # an error collector that keeps the variables of frames would keep this
        raise RuntimeError(f"{bird('chunkexception')} {secret}") from ValueError(bird("cause"))


def test_nothing_comes_out_of_our_own_failures(outlets: Outlets, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever part of midstream or of a hook fails, with whatever message: class and place are told, and no more."""

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError(bird("ownexception")) from KeyError(bird("owncause"))

    list(outlets.watch(Hostile).monitor(iter([Hostile(), "a", Hostile()])))
    for part in (
        "integrations.openai.calls.call_of",
        "integrations.openai.streams.wire_clock",
        "runtime.tracker.record_of",
        "telemetry.recorder.samples_of",
    ):
        with monkeypatch.context() as patched:
            patched.setattr(f"midstream.{part}", fails)
            made = client("sync", outlets, SPOKEN)
            asyncio.run(ask(outlets, made, made.chat.completions.create, **REQUEST))
    made = client("sync", outlets, SPOKEN)
    hooked = midstream.monitor(made, on_end=fails, on_freeze=fails)
    list(hooked.chat.completions.create(**REQUEST, stream=True))
    until_said(outlets, "the hook")

    clean(
        outlets,
        "RuntimeError",
        "from KeyError",
        "test_canaries.py",
        "the request failed",
        "the record failed",
    )


def until_said(outlets: Outlets, words: str) -> None:
    from support.waiting import until

    until(lambda: any(words in line for line in outlets.log.lines))


def test_nothing_comes_out_of_an_import_that_fails(outlets: Outlets, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even from the failure to find our place in another SDK."""

    def fails(*_: Any) -> None:
        raise TypeError(bird("patchexception"))

    monkeypatch.setattr(Patches, "wrap", fails)
    from midstream.integrations.openai.calls import clients
    from midstream.integrations.openai.clients import _imported

    monkeypatch.setattr(type(clients), "in_use", True)
    _imported(None)

    clean(outlets, "openai clients are not monitored")


# What is made of a journal


def test_nothing_is_in_what_is_made_of_a_journal(
    outlets: Outlets, tmp_path_factory: pytest.TempPathFactory, capfd: pytest.CaptureFixture[str]
) -> None:
    """Report, page, advice, comparison and exports know no more than the records do."""
    parquet = pytest.importorskip("pyarrow.parquet")
    for script in (SPOKEN, [*SPOKEN[:6], *((40 + at, data) for at, data in ENDS["error event"])]):
        made = client("sync", outlets, script)
        asyncio.run(ask(outlets, made, made.chat.completions.create, **REQUEST, max_tokens=16))
    assert flush()
    out = tmp_path_factory.mktemp("out")
    journal = ["--journal", str(outlets.journal), "--since", "1970-01-01"]
    for command in (
        ["report", *journal],
        ["report", *journal, "--html", str(out / "report.html")],
        ["advise", "max-tokens", *journal],
        ["export", *journal],
        ["export", *journal, "-o", str(out / "streams.csv")],
        ["export", *journal, "-o", str(out / "streams.jsonl")],
        ["export", *journal, "-o", str(out / "streams.parquet")],
    ):
        assert main(command) in {0, 3}, command
    said = capfd.readouterr()
    files = {file.name: file.read_bytes() for file in sorted(out.iterdir())}
    rows = parquet.read_table(out / "streams.parquet").to_pylist()  # the file itself is compressed
    files["streams.parquet"] += repr(rows).encode()

    assert sorted(files) == ["report.html", "streams.csv", "streams.jsonl", "streams.parquet"]
    assert all(b"llm.example.com" in data or name == "report.html" for name, data in files.items())
    assert bird.in_(said.out + said.err) == []
    assert {name: bird.in_(data) for name, data in files.items() if bird.in_(data)} == {}


EVIL = """</script><script>alert(1)</script><img src=x onerror=alert(2)>"'`{{7*7}}\x1b]0;title\x07\x1b[31m"""
"""What a server may call itself, its model and its reasons."""


def test_name_of_a_served_model_is_one_line_of_a_log(outlets: Outlets) -> None:
    """A server that names its model with line breaks in it cannot write lines of its own into somebody's log."""

    def words() -> Iterator[Any]:
        for _ in range(3):
            yield {"model": f"m\nERROR all is lost{EVIL}", "choices": [{"delta": {"content": "a"}}]}
            outlets.clock.advance(20)

    seen = outlets.watch(words)
    list(seen.monitor(words)())

    froze = [line.partition(" (")[0] for line in outlets.log.lines if "stream froze" in line]
    assert froze
    assert [line for line in froze if "\n" in line or "\x1b" in line] == []


READING = [
    ["report"],
    ["report", "--html", "{page}"],
    ["advise", "max-tokens"],
    ["compare", "--at", "{halfway}"],
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_names_of_servers_run_nothing_and_steer_no_terminal(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever stands in a journal, a report is a page without a script of others, and the rest is plain lines."""
    journal = Journal(tmp_path / "streams.db")
    now = time.time()
    for number in range(60):
        journal.write(
            a_record(
                started_at=now - number,
                provider=EVIL,
                server_address=EVIL,
                request_model=EVIL,
                response_model=EVIL,
                operation=EVIL,
                attributes={"team": EVIL},
                error_type=EVIL,
                outcome=Outcome.ERROR if number % 2 else Outcome.COMPLETED,
                finish_reasons=(EVIL,),
                max_gap_s=9.0,
                max_gap_at_s=1.0,
                freezes=1,
                duration_s=12.0,
                token_limit=16,
                output_tokens=16,
            )
        )
    assert journal.flush(60)
    page = tmp_path / "report.html"
    halfway = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now - 30))
    words = [word.format(page=page, halfway=halfway) for word in command]

    assert main([*words, "--journal", str(journal.path), "--since", "1970-01-01"]) in {0, 3, 4}

    said = capfd.readouterr()
    assert "60" in said.out + said.err or "30" in said.out + said.err
    assert "\x1b" not in said.out + said.err
    if page.exists():
        written = page.read_text()
        assert "alert(1)" in written  # its name is there
        for run in ("<script>alert", "<img", "</script><script>alert", "\x1b"):
            assert run not in written
        assert written.count("</script>") == written.count("<script")


# What commands say of servers


@pytest.fixture
def refusing() -> Iterator[int]:
    """A server that answers everything with a page of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<html>no</html>"
            self.send_response(401)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - named by the base class

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join(5)


COMMANDS = [
    ["probe", "{url}", "--model", "m", "-n", "1"],
    ["report", "--prometheus", "{url}", "--header", f"X-Scope-OrgID:{bird('header')}"],
    ["compare", "--prometheus", "{url}", "--at", "1h", "--header", f"X-Scope-OrgID:{bird('header')}"],
    ["advise", "max-tokens", "--prometheus", "{url}", "--header", f"X-Scope-OrgID:{bird('header')}"],
    ["watch", "--server", "{url}", "--header", f"X-Key:{bird('header')}", "--once"],
    ["rules", "--check", "{url}"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("server", ["refuses", "is not there"])
@pytest.mark.parametrize("address", ["user", "query", "malformed", "slash", "hash", "unclosed"])
def test_no_login_key_or_query_is_in_what_a_command_says(  # noqa: PLR0917 - fixtures
    command: list[str],
    server: str,
    address: str,
    refusing: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However a command fails to reach a server, it repeats nothing of what lets one in."""
    caplog.set_level(logging.DEBUG)
    for name in ("OPENAI_API_KEY", "MIDSTREAM_SERVER_TOKEN", "MIDSTREAM_PROMETHEUS_TOKEN"):
        monkeypatch.setenv(name, bird("key"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        port = refusing if server == "refuses" else taken.getsockname()[1]
        urls = {
            "user": f"http://{bird('user')}:{bird('password')}@127.0.0.1:{port}",
            "query": f"http://127.0.0.1:{port}/?key={bird('query')}",
            "slash": f"http://{bird('user')}:{bird('password')}/x@127.0.0.1:{port}",
            "hash": f"http://{bird('user')}:{bird('password')}#x@127.0.0.1:{port}",
            "unclosed": f"http://[{bird('user')}:{bird('password')}@127.0.0.1:{port}",
            "malformed": f"http://{bird('user')}:{bird('password')}@127.0.0.1:{port}x/?key={bird('query')}",
        }
        status = main([part.format(url=urls[address]) for part in command])

    said = capfd.readouterr()
    assert status != 0
    assert said.err
    assert bird.in_(said.out + said.err) == []
    ours = [record for record in caplog.records if record.name.startswith("midstream")]
    assert bird.in_(repr([(record.getMessage(), record.args) for record in ours])) == []


def test_no_login_is_in_what_the_dashboard_says() -> None:
    """Neither on the console nor on the page, which shows what is wrong with the Prometheus behind it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://{bird('user')}:{bird('password')}@127.0.0.1:{taken.getsockname()[1]}"
        with running("dashboard", "--serve", url, "--port", "0") as process:
            printed = read_until(process, "^http://")
            status, said = end(process)
        dashboard = DASHBOARDS["overview"](Naming.PROMETHEUS)
        with (
            DashboardPage(("127.0.0.1", 0), url, dashboard) as page,
            pytest.raises(PrometheusError) as caught,
        ):
            page.query(0, 0, 0.0, 60.0)

    assert status == 130
    assert "Showing overview from http://127.0.0.1:" in printed
    assert "nothing listens at http://127.0.0.1:" in str(caught.value)
    assert bird.in_(printed + said + page.prometheus + str(caught.value)) == []


# Where we listen


def test_whoever_listens_beyond_this_machine_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    """`setup()` serves metrics on loopback; elsewhere only when told to, and it says so."""
    with Setup(export_configuration({}, prometheus=0)) as handle:
        assert (handle.prometheus_url or "").startswith("http://127.0.0.1:")
    assert caplog.records == []
    with Setup(export_configuration({}, prometheus=0, host="0.0.0.0")) as handle:
        pass
    assert [record.getMessage() for record in caplog.records] == [
        f"every machine that can reach this one on 0.0.0.0 can read the metrics at {handle.prometheus_url}"
    ]


LISTENING = [["replay"], ["serve"], ["dashboard", "--serve", "http://127.0.0.1:9"]]


@pytest.mark.parametrize("command", LISTENING, ids=lambda command: command[0])
@pytest.mark.parametrize(("host", "warns"), [(None, False), ("0.0.0.0", True)])
def test_commands_listen_on_loopback_and_warn_elsewhere(
    command: list[str],
    host: str | None,
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Every command that serves something: by default nobody else can reach it, and else it says who can."""

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", interrupt)
    options = ["--port", "0"] + ([] if host is None else ["--host", host])

    assert main([*command, *options]) == 130

    said = capfd.readouterr()
    assert ("warning: every machine that can reach this one on 0.0.0.0" in said.err) == warns
    assert "http://" in said.out


def test_no_other_command_listens(capsys: pytest.CaptureFixture[str]) -> None:
    """A command with `--host` is one of those above, or the proxy, which tests/cli/test_proxy.py runs."""
    listening = []
    for command in sorted(EVERY_COMMAND):
        assert main([command, "--help"]) == 0
        if re.search(r"--host\b", capsys.readouterr().out):
            listening.append(command)
    assert listening == sorted([*(command[0] for command in LISTENING), "proxy"])
