"""Hostile streams: whatever a server sends and whatever callers do, they see what they would see without us.

Two worlds are driven in step, one bare and one monitored, each with the real SDK, HTTP client, connection pool and
parser over a network that plays the script. After every step both must have answered the same and be in the same state.

    HOSTILE_EXAMPLES=20000 python -m pytest tests/whole/test_hostile.py -s     # a long run, from another seed each time
"""

from __future__ import annotations

import gc
import os
import sys
from asyncio import CancelledError
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from midstream import StreamRecord
from midstream.testing import usage
from support.hostile_answers import answers
from support.hostile_wire import Answer
from support.hostile_world import Handle, Lived, World

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "60"))
APIS = ["chat", "chat", "completions", *(["responses"] if find_spec("openai.resources.responses") else [])]
HELPERS = {"chat", *(["responses"] if find_spec("openai.lib.streaming.responses") else [])}
SLOTS = 3

# The SDK's helpers dump chunks that do not fit their own types, with and without us.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

done: Counter[str] = Counter()
picks = st.integers(0, SLOTS - 1)
apis = st.sampled_from(APIS).flatmap(lambda api: st.tuples(st.just(api), answers(api)))


class Stop(Exception):
    """The caller's own exception."""


class Worlds(RuleBasedStateMachine):
    """A bare world and a monitored one, told the same."""

    kind = "sync"
    include_usage = False

    @initialize(
        socket=st.sampled_from(["none", "knows", "knows", "lies", "short", "fails"]),
        freeze_after_s=st.sampled_from([None, 0.2, 5.0]),
    )
    def begin(self, socket: str, freeze_after_s: float | None) -> None:
        gc.disable()
        gc.collect()
        gc.freeze()  # or each collection would go through all that the tests before have left
        self.reader = InMemoryMetricReader()
        provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.provider = provider
        self.bare = World(self.kind, monitored=False, socket=socket, asks_for_usage=self.include_usage)
        self.ours = World(
            self.kind,
            monitored=True,
            socket=socket,
            provider=provider,
            freeze_after_s=freeze_after_s,
            include_usage=self.include_usage,
        )
        self.open: dict[int, str] = {}

    def both(self, act: Callable[[World], Awaitable[Any]]) -> Any:
        done["transitions"] += 1
        expected = self.bare.do(act)
        found = self.ours.do(act)
        note(f"-> {expected}")
        assert found == expected
        if (
            self.bare.network.collected
        ):  # in mid-read, when each world still held some of what it has let go of since
            self.bare.network.collected = False
            self.settle()
        self.same()
        return found

    def settle(self) -> None:
        for world in (self.bare, self.ours):
            world.settle()

    def same(self) -> None:
        assert self.state(self.ours) == self.state(self.bare)
        assert self.ours.noise == self.bare.noise

    def state(self, world: World) -> Any:
        pool, requests, lines, now = world.network.state()
        if self.include_usage:  # the same fields, in an order of our own
            lines = [(sorted(sent), *rest) for sent, *rest in lines]
        return pool, requests, lines, now

    # What callers do

    @precondition(lambda self: len(self.open) < SLOTS)
    @rule(
        how=st.sampled_from(["create", "create", "create", "raw", "streaming", "helper"]),
        asked=apis,
        usage_at=st.lists(st.integers(0, 9), min_size=1, max_size=2),
    )
    def ask(self, how: str, asked: Any, usage_at: list[int]) -> None:
        api, script = asked
        if self.include_usage and api != "responses":
            script = (*script[:-1], with_usage_at(script[-1], usage_at))
        if how == "helper" and (
            api not in HELPERS or self.include_usage
        ):  # a helper reads the extra chunk, too
            how = "create"
        done["scripts"] += 1
        slot = min({*range(SLOTS)} - self.open.keys())
        for world in (self.bare, self.ours):
            world.disturb(slot)
        came = self.both(lambda world: world.open(slot, how, api, script))
        if came[0] != "raised":
            self.open[slot] = how

    @rule(seconds=st.sampled_from([0.001, 0.5, 3.0, 30.0]))
    def hold(self, seconds: float) -> None:
        for world in (self.bare, self.ours):
            world.clock.advance(seconds)
        done["transitions"] += 1

    @precondition(lambda self: self.which("raw", "streaming"))
    @rule(pick=picks)
    def parse(self, pick: int) -> None:
        slot = nth(pick, self.which("raw", "streaming"))
        self.both(lambda world: world.parse(slot))

    @precondition(lambda self: self.which("streaming"))
    @rule(pick=picks)
    def line(self, pick: int) -> None:
        slot = nth(pick, self.which("streaming"))
        self.both(lambda world: world.line(slot))

    @precondition(lambda self: self.streams())
    @rule(pick=picks)
    def step(self, pick: int) -> None:
        slot = nth(pick, self.streams())
        self.both(lambda world: world.step(slot))

    @precondition(lambda self: self.streams())
    @rule(pick=picks, count=st.sampled_from([0, 1, 2, 5]))
    def through(self, pick: int, count: int) -> None:
        slot = nth(pick, self.streams())
        self.both(lambda world: world.through(slot, count))

    @precondition(lambda self: self.streams())
    @rule(pick=picks, turns=st.integers(0, 4))
    def lose_patience(self, pick: int, turns: int) -> None:
        slot = nth(pick, self.streams())
        self.both(lambda world: world.step_for(slot, turns))

    @precondition(lambda self: self.streams())
    @rule(pick=picks, count=st.sampled_from([0, 1, 2]))
    def loop(self, pick: int, count: int) -> None:
        slot = nth(pick, self.streams())
        self.both(lambda world: world.loop_closed(slot, count))

    @precondition(lambda self: self.streams())
    @rule(pick=picks, how=st.sampled_from(["close", "throw", "interrupt"]))
    def reach_inside(self, pick: int, how: str) -> None:
        slot = nth(pick, self.streams())
        self.both(lambda world: world.reach_inside(slot, how))

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def look(self, pick: int) -> None:
        slot = nth(pick, self.open)
        self.both(lambda world: world.look(slot))

    @rule(newest_first=st.booleans())
    def end_generators(self, newest_first: bool) -> None:
        self.both(lambda world: world.end_generators(newest_first=newest_first))

    @precondition(lambda self: self.streams())
    @rule(pick=picks, name=st.sampled_from(["close", "close", "aclose"]))
    def close(self, pick: int, name: str) -> None:
        slot = nth(pick, self.streams())
        self.both(lambda world: world.close_stream(slot, name))

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def close_response(self, pick: int) -> None:
        slot = nth(pick, self.open)
        self.both(lambda world: world.close_response(slot))

    @precondition(lambda self: self.which("create", "streaming", "helper"))
    @rule(
        pick=picks,
        exc=st.sampled_from([None, None, Stop("s"), KeyboardInterrupt(), GeneratorExit(), CancelledError()]),
    )
    def leave(self, pick: int, exc: BaseException | None) -> None:
        slot = nth(pick, self.which("create", "streaming", "helper"))
        self.both(lambda world: world.leave(slot, exc))

    @precondition(lambda self: self.open)
    @rule(pick=picks, collect=st.booleans())
    def drop(self, pick: int, collect: bool) -> None:
        self.let_go(nth(pick, self.open))
        if collect:
            self.garbage()

    def let_go(self, slot: int) -> None:
        del self.open[slot]
        self.both(lambda world: world.drop(slot))

    @rule()
    def garbage(self) -> None:
        self.settle()
        self.same()

    def which(self, *ways: str) -> list[int]:
        return [slot for slot, how in self.open.items() if how in ways]

    def streams(self) -> list[int]:
        return [slot for slot in self.open if self.bare.held[slot].stream is not None]

    # What must hold at the end

    def teardown(self) -> None:
        if not hasattr(self, "open"):
            return
        try:
            for slot in list(self.open):
                self.let_go(slot)
            self.garbage()
            self._records()
        finally:
            for world in (self.bare, self.ours):
                world.close()
            self.provider.shutdown()
        self.same()

    def _records(self) -> None:
        seen = self.ours.seen
        assert seen is not None
        seen.flush()
        assert seen.streams() == ()
        assert len(seen.process.roster) == 0
        records = {record.request_model: record for record in seen.records}
        followed = [handle for handle in self.ours.past if handle.made]
        assert sorted(record.request_model for record in seen.records) == sorted(
            handle.model for handle in followed
        )
        assert len(seen.records) == self.ours.streams == self.bare.streams
        for handle in followed:
            holds(records[handle.model])
            if not self.include_usage:  # a record counts the chunks that its caller does not see
                lived(records[handle.model], handle.lived, handle)
        assert len(seen.freezes) == sum(record.freezes + record.hidden for record in seen.records)
        assert metric(self.reader, "stream.ended") == len(seen.records)
        assert metric(self.reader, "stream.active") == 0
        done["records"] += len(seen.records)


def with_usage_at(answer: Answer, places: list[int]) -> Answer:
    """The same answer with chunks between its pieces that have usage and nothing else."""
    pieces = list(answer.pieces)
    for place in places:
        pieces.insert(place, (0.1, usage(3, place).encode()))
    return replace(answer, pieces=tuple(pieces))


def nth(pick: int, slots: Collection[int]) -> int:
    return sorted(slots)[pick % len(slots)]


def holds(record: StreamRecord) -> None:
    """What must hold of any record."""
    times = [getattr(record, name) for name in StreamRecord.__dataclass_fields__ if name.endswith("_s")]
    assert all(time is None or time >= 0 for time in times if time is not None), record
    assert record.waited_s + record.held_s == pytest.approx(record.duration_s)
    assert (record.max_gap_s or 0) <= record.duration_s + 1e-6
    assert record.frozen_s <= record.duration_s + 1e-6
    assert record.content_chunks <= record.chunks
    assert (record.time_to_first_chunk_s is None) == (record.chunks == 0)
    assert (record.time_to_first_content_s is None) == (record.content_chunks == 0)
    assert record.wire_gap_s is None or record.wire_gap_s >= (record.max_gap_s or 0)


def lived(record: StreamRecord, lived: Lived, handle: Handle) -> None:
    """What must hold of the record of a stream, given what its caller lived through."""
    if lived.disturbed or handle.how == "helper":
        return
    note(f"{record}\n{lived}")
    assert record.chunks == lived.chunks
    assert record.duration_s == pytest.approx(lived.last_event - lived.started)
    assert record.waited_s == pytest.approx(lived.waited)
    if lived.first_chunk is not None:
        assert record.time_to_first_chunk_s == pytest.approx(lived.first_chunk - lived.started)
    assert record.outcome in outcomes(lived), record


def outcomes(lived: Lived) -> set[str]:
    """How a stream may have ended, by the way in which its caller saw it end."""
    ended = lived.ended_by
    if ended in {"left", "cancelled", None}:
        if not lived.asked:
            return {"unread"}
        return {"completed", "error", "cancelled" if ended == "cancelled" else "left_early"}
    assert isinstance(ended, type)
    if ended is StopAsyncIteration:
        return {"empty"} if lived.chunks == 0 else {"completed", "no_finish", "error"}
    if not issubclass(ended, Exception):
        return {"cancelled", "completed", "error"}  # the last if the server had said that it failed
    return {"timeout"} if "Timeout" in ended.__name__ else {"error"}


def metric(reader: InMemoryMetricReader, name: str) -> float:
    """The sum of a metric over all its attributes."""
    data = reader.get_metrics_data()
    points = [
        point
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for found in scope.metrics
        if found.name == name
        for point in found.data.data_points
    ]
    return sum(getattr(point, "value", 0) for point in points)


class AsyncWorlds(Worlds):
    """The same for the async client."""

    kind = "async"


class UsageWorlds(Worlds):
    """`include_usage` on one side; on the other callers who ask for usage, and pass over what brings it alone."""

    include_usage = True


class AsyncUsageWorlds(UsageWorlds):
    """The same for the async client."""

    kind = "async"


@pytest.fixture(autouse=True)
def _calm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The SDK drains an answer for a tenth of a real second at most, which two worlds would use up differently."""
    if find_spec("openai._streaming_cleanup") is not None:
        monkeypatch.setattr("openai._streaming_cleanup._DRAIN_TIMEOUT", 60.0)
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.parametrize(
    "worlds",
    [Worlds, AsyncWorlds, UsageWorlds, AsyncUsageWorlds],
    ids=["sync", "async", "sync include_usage", "async include_usage"],
)
def test_nobody_can_tell_a_monitored_stream_from_a_bare_one(worlds: Any) -> None:
    """Same chunks, exceptions, request bytes, sockets and pool; one record each, whose times add up; nothing left."""
    done.clear()
    run_state_machine_as_test(
        worlds,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=25,
            deadline=None,
            derandomize="HOSTILE_EXAMPLES" not in os.environ,
            database=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )
    sys.stdout.write(f"{worlds.kind}: {dict(done)} without a difference\n")
    # Of some seeds Hypothesis makes few servers and much of each.
    assert done["transitions"] >= 5 * EXAMPLES
