"""For tests, yours and ours: a clock you move by hand, a server you script, and every record in a list.

    clock = ManualClock()
    script = [(0.2, text("Hel")), (9.2, text("lo")), (9.3, finish())]
    client = OpenAI(api_key="none", http_client=scripted(script, clock))
    seen = collect(client, clock=clock)
    for chunk in client.chat.completions.create(model="m", messages=[], stream=True):
        ...
    assert seen.records[0].max_gap_s == 9.0

No socket is opened and there is no sleeping: reading the scripted answer moves the clock. Importing this module makes
midstream's own failures raise instead of being logged.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from midstream._support import internal_errors
from midstream.integrations.attach import attach
from midstream.runtime.monitor import PROCESS, Monitor, Process
from midstream.runtime.settings import Settings
from midstream.stream.model import Freeze, OpenStream, StreamRecord

internal_errors.RAISE = True

CUT = "cut"
"""A frame that breaks the connection."""
SILENCE = "silence"
"""A frame at which the client's read timeout expires."""

Script: TypeAlias = Sequence["tuple[float, str | BaseException]"]
"""What a server sends: seconds after the request, and the bytes as text. CUT, SILENCE or an exception end the wait."""


class ManualClock:
    """A clock in seconds that moves only when told to. What is due meanwhile happens at its own moment."""

    def __init__(self, start: float = 0.0) -> None:
        self.now = start
        self._watchers: list[Callable[[float], float | None]] = []

    def __call__(self) -> float:
        """The time now, in seconds."""
        return self.now

    def watch(self, check: Callable[[float], float | None]) -> None:
        """Call `check(now)` whenever time passes; it says when it wants to be called again."""
        self._watchers.append(check)

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises ValueError for a negative number: time does not go back."""
        if seconds < 0:
            raise ValueError(f"time cannot go back, got {seconds}")
        self.advance_to(self.now + seconds)

    def advance_to(self, moment: float) -> None:
        """Let time pass until `moment`; nothing happens if that is over already."""
        while self.now < moment:
            due = [again for watcher in self._watchers if (again := watcher(self.now)) is not None]
            self.now = min([moment, *(again for again in due if again > self.now)])
        for watcher in self._watchers:
            watcher(self.now)


@dataclass
class Collected:
    """What happened to the streams of a client: records, freezes and thaws in order."""

    process: Process
    monitor: Callable[[Any], Any]
    """Monitors one more client, function or stream in the same way, and returns it as `midstream.monitor` does."""
    records: list[StreamRecord] = field(default_factory=list)
    freezes: list[Freeze] = field(default_factory=list)
    thaws: list[Freeze] = field(default_factory=list)

    @property
    def record(self) -> StreamRecord:
        """The only record. Raises AssertionError if there is none, or more than one."""
        self.process.flush()
        if len(self.records) != 1:
            still_open = self.streams()
            hint = f"; not ended yet, so without a record: {list(still_open)}" if still_open else ""
            raise AssertionError(f"expected one record, got {len(self.records)}: {self.records}{hint}")
        return self.records[0]

    def streams(self) -> tuple[OpenStream, ...]:
        """The streams that are open now."""
        return self.process.streams()

    def flush(self) -> None:
        """Bring streams that were dropped without being closed to their end."""
        self.process.flush()


class _InlineHooks:
    """Runs hooks at once, where a test can see them fail."""

    def call(self, hook: Callable[[Any], object] | None, value: Any, *, wait: bool) -> None:
        if hook is not None:
            hook(value)

    def start(self) -> None:
        pass

    def flush(self, timeout_s: float) -> bool:
        return True


_clocks: weakref.WeakKeyDictionary[Any, ManualClock] = weakref.WeakKeyDictionary()
"""The clocks of scripted HTTP clients."""


def _clock_of(client: Any) -> ManualClock | None:
    try:
        return _clocks.get(getattr(client, "_client", None))
    except TypeError:  # what is no scripted client may be none of a dictionary's keys either
        return None


def collect(
    client: Any = None, *, clock: ManualClock | None = None, meter_provider: Any = None, **settings: Any
) -> Collected:
    """Monitor a client and keep what its streams did. Takes the settings of `monitor()`, hooks included.

    Without a client, `seen.monitor(...)` says what to monitor: a client, a function or a stream.
    With a manual clock everything happens in the calling thread, at the very moment it is due. A scripted client brings
    its own; `clock` is needed only if the client comes later. Raises ValueError for a scripted client of another clock.
    """
    clock = _clock_of(client) if clock is None else clock
    if clock is None:
        process = PROCESS
    else:
        process = Process(clock, clock, threaded=False)
        clock.watch(process.roster.check)

    def monitored(obj: Any) -> Any:
        scripted_with = _clock_of(obj)
        if scripted_with is not None and scripted_with is not clock:
            raise ValueError(
                "the client is scripted with another clock than collect() goes by; give collect(clock=...) the clock "
                "that scripted() got, or no freeze is seen"
            )
        return attach(obj, monitor)

    seen = Collected(process, monitored)
    hooks: dict[str, Any] = {
        "on_freeze": _both(seen.freezes.append, settings.pop("on_freeze", None)),
        "on_thaw": _both(seen.thaws.append, settings.pop("on_thaw", None)),
        "on_end": _both(seen.records.append, settings.pop("on_end", None)),
    }
    monitor = Monitor(Settings(**settings, **hooks), process, meter_provider)
    if clock is not None:
        monitor.hooks = _InlineHooks()
    if client is not None:
        seen.monitor(client)
    return seen


def _both(keep: Callable[[Any], object], hook: Callable[[Any], object] | None) -> Callable[[Any], object]:
    def call(value: Any) -> None:
        keep(value)
        if hook is not None:
            hook(value)

    return call


# Wire: frames of a chat completion


def frame(body: Any) -> str:
    """One server-sent event with this JSON body."""
    return f"data: {json.dumps(body)}\n\n"


def chunk(delta: dict[str, Any] | None = None, finish_reason: str | None = None, **fields: Any) -> str:
    """A `chat.completion.chunk` with one choice; `fields` overwrite or add top-level fields."""
    choice = {"index": fields.pop("index", 0), "delta": delta or {}, "finish_reason": finish_reason}
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return frame({**body, **fields})


def role() -> str:
    """The chunk that only names the role."""
    return chunk({"role": "assistant", "content": ""})


def text(content: str, **fields: Any) -> str:
    """A chunk of text."""
    return chunk({"content": content}, **fields)


def finish(reason: str = "stop", **fields: Any) -> str:
    """A chunk that only carries a finish reason."""
    return chunk({}, reason, **fields)


def usage(prompt_tokens: int, completion_tokens: int, **fields: Any) -> str:
    """The chunk that only carries usage."""
    counts = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    return chunk(choices=[], usage={**counts, **fields})


DONE = "data: [DONE]\n\n"
PING = ": ping\n\n"


# The scripted server


def http_library() -> Any:
    """The HTTP library that the installed openai SDK runs on: httpx2 from 3.0 on, httpx before."""
    sdk = importlib.import_module("openai")
    (client,) = [kind for kind in sdk.DefaultHttpxClient.__mro__ if kind.__name__ == "Client"]
    return importlib.import_module(client.__module__.partition(".")[0])


def scripted(script: Script, clock: ManualClock, **response: Any) -> Any:
    """An `http_client` for `OpenAI` that answers every request with this script. `response`: status_code, headers."""
    http = http_library()
    player = _Player(script, clock, http, response)
    client = http.Client(transport=http.MockTransport(player.answer))
    _clocks[client] = clock
    return client


def scripted_async(script: Script, clock: ManualClock, **response: Any) -> Any:
    """The same for `AsyncOpenAI`."""
    http = http_library()
    player = _Player(script, clock, http, response)
    client = http.AsyncClient(transport=http.MockTransport(player.answer_async))
    _clocks[client] = clock
    return client


class _Player:
    def __init__(self, script: Script, clock: ManualClock, http: Any, response: dict[str, Any]) -> None:
        for (before_s, _), (at_s, _) in itertools.pairwise(script):
            if at_s < before_s:
                raise ValueError(
                    f"a script is in the order of its times (seconds after the request); {at_s} comes after {before_s}"
                )
        self._script = script
        self._clock = clock
        self._http = http
        self._response = {"status_code": 200, "headers": {"content-type": "text/event-stream"}, **response}

    def answer(self, request: Any) -> Any:
        play = self._play(self._clock(), request)

        class ScriptedBody(self._http.SyncByteStream):  # type: ignore[name-defined,misc]  # the library is known at run time
            def __iter__(self) -> Iterator[bytes]:
                yield from play

        return self._http.Response(stream=ScriptedBody(), **self._response)

    async def answer_async(self, request: Any) -> Any:
        play = self._play(self._clock(), request)

        class ScriptedAsyncBody(self._http.AsyncByteStream):  # type: ignore[name-defined,misc]
            async def __aiter__(self) -> AsyncIterator[bytes]:
                for data in play:
                    yield data

        return self._http.Response(stream=ScriptedAsyncBody(), **self._response)

    def _play(self, started: float, request: Any) -> Iterator[bytes]:
        for at_s, data in self._script:
            self._clock.advance_to(started + at_s)
            if data is CUT:
                raise self._http.ReadError("the connection broke", request=request)
            if data is SILENCE:
                raise self._http.ReadTimeout("nothing came", request=request)
            if isinstance(data, BaseException):
                raise data
            yield data.encode()


# For pytest


if "pytest" in sys.modules:
    import pytest

    @pytest.fixture
    def scripted_openai() -> Callable[..., tuple[Any, Collected]]:
        """A function that makes an `OpenAI` client from a script, and what its streams did: `(client, seen)`.

        Import it into a `conftest.py`. The keywords are those of `collect()`.
        """

        def make(script: Script, **settings: Any) -> tuple[Any, Collected]:
            sdk = importlib.import_module("openai")
            client = sdk.OpenAI(api_key="none", max_retries=0, http_client=scripted(script, ManualClock()))
            return client, collect(client, **settings)

        return make
