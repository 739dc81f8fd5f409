"""`instrument()`: every client of the process, whenever it was made; and `uninstrument()`, which leaves no trace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider

import midstream
from midstream.runtime.monitor import PROCESS
from midstream.testing import (
    DONE,
    ManualClock,
    Script,
    collect,
    finish,
    http_library,
    scripted,
    scripted_async,
    text,
)
from support.apart import run
from support.harness import ASK, Answer, settled

ANSWER: Script = [(0, text("a")), (0, text("b")), (0, finish()), (0, DONE)]
KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


@pytest.fixture(autouse=True)
def _undone() -> Iterator[None]:
    yield
    midstream.uninstrument()


@pytest.fixture
def records() -> Any:
    """What ends while the process is instrumented."""
    ended: list[midstream.StreamRecord] = []
    midstream.instrument(on_end=ended.append, attributes={"by": "process"})

    def flushed() -> list[tuple[str, dict[str, str]]]:
        PROCESS.flush()
        return [(str(record.outcome), dict(record.attributes)) for record in ended]

    return flushed


def a_client(kind: str) -> Any:
    if kind == "sync":
        return OpenAI(api_key="none", http_client=scripted(ANSWER, ManualClock()))
    return AsyncOpenAI(api_key="none", http_client=scripted_async(ANSWER, ManualClock()))


async def read(client: Any) -> None:
    async for _ in Answer(await settled(client.chat.completions.create(**ASK, stream=True))):
        pass


BY_PROCESS = ("completed", {"by": "process"})


@KINDS
def test_clients_made_before_and_after_are_monitored(kind: str) -> None:
    """Each leaves one record, and so do the clients derived from them."""
    ended: list[Any] = []
    before = a_client(kind)
    midstream.instrument(on_end=ended.append)
    after = a_client(kind)

    for client in (before, after, before.with_options(timeout=9), after.copy()):
        asyncio.run(read(client))
    PROCESS.flush()

    assert [str(record.outcome) for record in ended] == ["completed"] * 4


def test_module_level_client_is_monitored(records: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`openai.chat.completions.create()` goes through a client of the SDK's own."""
    monkeypatch.setattr(openai, "api_key", "none")
    monkeypatch.setattr(openai, "http_client", scripted(ANSWER, ManualClock()))

    list(openai.chat.completions.create(**ASK, stream=True))

    assert records() == [BY_PROCESS]


@KINDS
def test_clients_own_settings_win(kind: str, records: Any) -> None:
    """A client that was given to `monitor()` keeps its monitor, during `instrument()` and after it."""
    client = a_client(kind)
    own = collect(client, attributes={"by": "client"})

    asyncio.run(read(client))
    midstream.uninstrument()
    asyncio.run(read(client.with_options(timeout=3)))

    assert records() == []
    assert [record.attributes for record in own.records] == [{"by": "client"}] * 2


@KINDS
def test_functions_own_settings_win(kind: str, records: Any) -> None:
    """What streams in a monitored function goes to the function's monitor."""
    own = collect(clock=ManualClock(), attributes={"by": "function"})

    asyncio.run(own.monitor(read)(a_client(kind)))

    assert records() == []
    assert own.record.attributes == {"by": "function"}


@KINDS
def test_instrumented_twice_counts_once(kind: str, records: Any) -> None:
    """The second call replaces the settings of the first."""
    again: list[Any] = []
    midstream.instrument(on_end=again.append, attributes={"by": "second"})

    asyncio.run(read(a_client(kind)))

    assert records() == []
    assert [record.attributes for record in again] == [{"by": "second"}]


@KINDS
def test_uninstrumented_is_over(kind: str, records: Any) -> None:
    """Once or twice: no stream that opens afterwards is followed; and it can be taken up again."""
    client = a_client(kind)
    for _ in range(2):
        midstream.uninstrument()
        asyncio.run(read(client))
    assert records() == []

    again: list[Any] = []
    midstream.instrument(on_end=again.append)
    asyncio.run(read(client))
    PROCESS.flush()
    assert len(again) == 1


def test_uninstrument_without_instrument_does_nothing() -> None:
    """It may be called at any time."""
    midstream.uninstrument()


@KINDS
def test_open_streams_are_followed_to_their_end(kind: str, records: Any) -> None:
    """A stream that is open when the process is uninstrumented still leaves its record."""

    async def use() -> None:
        stream = Answer(await settled(a_client(kind).chat.completions.create(**ASK, stream=True)))
        await stream.__anext__()
        midstream.uninstrument()
        async for _ in stream:
            pass

    asyncio.run(use())
    assert records() == [BY_PROCESS]


@KINDS
def test_suppressed_calls_are_left_alone(kind: str, records: Any) -> None:
    """Whoever asks OpenTelemetry's instrumentations to look away means this one as well; `monitor()` is meant so."""
    explicit = a_client(kind)
    own = collect(explicit)
    token = context.attach(context.set_value("suppress_instrumentation", True))
    try:
        asyncio.run(read(a_client(kind)))
        asyncio.run(read(explicit))
    finally:
        context.detach(token)

    assert records() == []
    assert own.record.outcome == "completed"


@KINDS
def test_calls_below_another_instrumentation_of_the_sdk_are_recorded(kind: str, records: Any) -> None:
    """It opens a span of its own around the call, and asks for quiet so that nothing below makes another."""
    theirs = TracerProvider().get_tracer("logfire.openai").start_span("Chat Completion")
    quiet = context.set_value("suppress_instrumentation", True, trace.set_span_in_context(theirs))
    token = context.attach(quiet)
    try:
        asyncio.run(read(a_client(kind)))
    finally:
        context.detach(token)

    assert records() == [BY_PROCESS]


def test_bad_settings_are_refused() -> None:
    """In the words of `monitor()`."""
    with pytest.raises(ValueError, match=r"freeze_after_s must be a positive number of seconds, got 0"):
        midstream.instrument(freeze_after_s=0)


def test_disabled_instruments_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`MIDSTREAM_DISABLED=1` switches this door off too."""
    monkeypatch.setenv("MIDSTREAM_DISABLED", "1")
    ended: list[Any] = []
    midstream.instrument(on_end=ended.append)

    asyncio.run(read(a_client("sync")))

    PROCESS.flush()
    assert ended == []


@KINDS
def test_client_of_the_older_http_library(kind: str) -> None:
    """The newest SDK runs on another HTTP library and still takes a client of the older one."""
    httpx = pytest.importorskip("httpx")
    if http_library() is httpx:
        pytest.skip("this version of the SDK runs on it anyway")
    body = "".join(str(data) for _, data in ANSWER)
    answer = httpx.MockTransport(
        lambda _: httpx.Response(200, headers={"content-type": "text/event-stream"}, text=body)
    )
    if kind == "sync":
        client: Any = OpenAI(api_key="none", http_client=httpx.Client(transport=answer))
    else:
        client = AsyncOpenAI(api_key="none", http_client=httpx.AsyncClient(transport=answer))
    seen = collect(client)

    asyncio.run(read(client))

    assert (seen.record.outcome, seen.record.chunks, seen.record.server_address) == (
        "completed",
        3,
        "api.openai.com",
    )


class Stub:
    """What a user's test may put in the place of a method: something that can be called, and no function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs


def test_method_that_a_test_has_replaced_is_called_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the arguments that it would get without us, and no client that it did not ask for."""
    monkeypatch.setattr(OpenAI, "request", Stub(), raising=False)
    midstream.instrument()

    assert a_client("sync").request("anything", stream=False) == (("anything",), {"stream": False})


# What concerns the whole process

STATE = """
import openai, sys
from openai import OpenAI, AsyncOpenAI, Stream, AsyncStream
from openai._base_client import SyncAPIClient, AsyncAPIClient
def state():
    return [dict(vars(kind)) for kind in (OpenAI, AsyncOpenAI, SyncAPIClient, AsyncAPIClient, Stream, AsyncStream)]
def ask(**options):
    from midstream.testing import ManualClock, scripted, text, finish
    client = OpenAI(api_key="none", http_client=scripted([(0, text("a")), (0, finish())], ManualClock()))
    return list(client.chat.completions.create(model="m", messages=[], stream=True))
"""


def test_import_loads_no_http_library_and_no_sdk() -> None:
    """Neither the SDK nor what it runs on is loaded by us, so that any version of either will do."""
    assert run("import midstream; print({'openai', 'httpx', 'httpx2'} & sys.modules.keys())") == "set()\n"


def test_undone_means_that_nothing_of_ours_is_left() -> None:
    """The SDK's classes are what they were, attribute by attribute; so after a client was monitored and is gone."""
    assert run(
        STATE
        + """
import midstream
before = state()
for _ in range(2):
    midstream.instrument(); ask()
    changed = before != state()
    midstream.uninstrument()
    print(changed, before == state())
client = midstream.monitor(OpenAI(api_key="none"))
midstream.instrument(); midstream.uninstrument()
print(before == state())
del client
import gc; gc.collect()
midstream.uninstrument()
print([sorted(k for k in after.keys() | b.keys() if after.get(k) is not b.get(k)) for after, b in zip(state(), before)])
"""
    ) == ("True True\nTrue True\nFalse\n[[], [], [], [], [], []]\n")


def test_process_that_never_uses_the_sdk_does_not_load_it() -> None:
    """Instrumented first, the SDK is patched when the program imports it; uninstrumented in between, it is not."""
    assert run(
        """
import midstream
midstream.instrument(on_end=lambda record: print(record.outcome, flush=True))
print("openai" in sys.modules)
"""
        + STATE
        + """
ask()
from midstream.runtime.monitor import PROCESS
PROCESS.flush()
"""
    ) == ("False\ncompleted\n")
    assert run(
        "import midstream; midstream.instrument(); midstream.uninstrument()\n"
        + STATE
        + "print(SyncAPIClient.request.__module__, Stream.__init__.__module__)"
    ) == ("openai._base_client openai._streaming\n")


def test_patch_of_somebody_else_on_top_of_ours_stays() -> None:
    """Uninstrumented, ours is out of the way below it; instrumented again, each stream still counts once."""
    assert run(
        STATE
        + """
import midstream
from midstream.runtime.monitor import PROCESS
ended, seen = [], []
midstream.instrument(on_end=ended.append)
def patch(owner, name):
    inner = getattr(owner, name)
    def theirs(*args, **kwargs):
        seen.append(name)
        return inner(*args, **kwargs)
    setattr(owner, name, theirs)
    return theirs
theirs = [patch(SyncAPIClient, "request"), patch(Stream, "__init__"), patch(SyncAPIClient, "_process_response")]
def counts():
    PROCESS.flush()
    return len(ended), len(seen)
ask(); print(counts())
midstream.uninstrument()
ask(); print(counts())
midstream.instrument(on_end=ended.append)
ask(); print(counts())
midstream.uninstrument()
print(SyncAPIClient.request is theirs[0], Stream.__init__ is theirs[1])
"""
    ) == ("(1, 3)\n(1, 6)\n(2, 9)\nTrue True\n")


def test_patch_below_ours_that_is_taken_out_again() -> None:
    """Somebody puts back the method they found, and takes ours out: streams are still followed, from their response on.

    So does an instrumentation that was there first and leaves first. The time of the call is that of its HTTP request.
    """
    assert run(
        STATE
        + """
import midstream
from midstream.runtime.monitor import PROCESS
found = OpenAI.request
OpenAI.request = lambda self, *args, **kwargs: found(self, *args, **kwargs)
ended = []
midstream.instrument(on_end=ended.append)
ask()
OpenAI.request = found
ask()
PROCESS.flush()
print([(str(record.outcome), record.time_to_first_content_s is None) for record in ended])
"""
    ) == ("[('completed', False), ('completed', False)]\n")
