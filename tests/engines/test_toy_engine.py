"""Adding an engine takes one module of facts and one admission rule: shown with an engine that does not exist."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from midstream.advice.matching import match, sentence
from midstream.engines import ENGINES, EngineFacts, EngineSeries, EngineVariant, ReservationRule, registered
from midstream.engines.dialect import Dialect
from midstream.engines.facts import (
    EngineKnob,
    PageReaders,
    PreemptionWords,
    reserves_nothing,
)
from midstream.engines.faults import Faults, flat_body
from midstream.engines.flags import Advice, Flag, Situation, Version
from midstream.engines.page import not_exposed, not_in_this_engine, total
from midstream.engines.settings import flag
from midstream.lab.admission import (
    AdmissionRefusal,
    Ended,
    EngineLoad,
    PrefillChunk,
    Request,
    Step,
    engine,
    registered_rule,
)
from midstream.lab.emulation import Emulated
from midstream.lab.hardware import PROFILES
from midstream.lab.simulator import simulate
from midstream.lab.workload import fixed, open_loop, pairs
from midstream.monitoring.alerts import Alert, Tuning, build
from midstream.monitoring.alerts.check import check
from midstream.monitoring.dashboards import DASHBOARDS
from midstream.monitoring.dashboards.render import as_json
from midstream.sources.server import view_of
from midstream.telemetry.naming import Naming


# The module of facts.
@dataclass(frozen=True, slots=True)
class ToySettings:
    """The flags of `toy serve`."""

    toy_slots: int = flag(2, "requests that run at once")
    toy_tokens: int = flag(1000, "tokens of KV cache")


def _advise(now: Situation, _version: Version | None) -> Advice:
    return [Flag("server", f"--toy-slots {now.cap}", "caps what runs")], ["it is a toy"]


TOY = EngineFacts(
    key="toy",
    title="Toy",
    prefixes=("toy_",),
    words=PreemptionWords("drop", "drops", "drops", "dropped"),
    page=PageReaders(
        running=total("toy_running", absent="no"),
        waiting=total("toy_waiting", absent="no"),
        kv_usage=total("toy_usage", absent="no"),
        preemptions=total("toy_drops_total", absent="no"),
        preempted_now=not_in_this_engine("it counts drops"),
        generated=not_exposed("it does not say"),
        pool=total("toy_tokens", absent="no"),
    ),
    dialect=Dialect(
        version="1",
        owner="toy",
        faults=Faults(flat_body, flat_body, "too long: {prompt}", None, "busy"),
        context=lambda settings: settings.toy_tokens,
    ),
    advise_flags=_advise,
    series=EngineSeries(
        preemptions="toy_drops_total",
        kind="counter",
        usage="toy_usage",
        waiting="toy_waiting",
        running="toy_running",
        alert="ToyDrops",
        found="[value] drops in [window].",
        remedy="Lower --toy-slots.",
        panel="Toy drops",
        cap="--toy-slots",
    ),
    variants=(
        EngineVariant(
            "toy",
            ToySettings,
            "serves one after the other",
            ReservationRule("Toy", reserves_nothing, "nothing is set aside"),
            EngineKnob("toy_tokens", "toy_slots", preempts=False),
            aliases=("toy-engine",),
        ),
    ),
)


# The admission rule.
class ToyRule:
    """First come, first served, one at a time."""

    def __init__(self, settings: ToySettings) -> None:
        self._capacity = settings.toy_tokens
        self._queue: deque[Request] = deque()
        self._output = 0

    def submit(self, request: Request) -> AdmissionRefusal | None:
        self._queue.append(request)
        return None

    def abort(self, request_id: int) -> bool:
        before = len(self._queue)
        self._queue = deque(request for request in self._queue if request.id != request_id)
        return len(self._queue) < before

    def step(self) -> Step | None:
        if not self._queue:
            return None
        request = self._queue[0]
        self._output += 1
        prefill = (PrefillChunk(request.id, 0, request.prompt_tokens, 0),) if self._output == 1 else ()
        ended = self._output == request.answer_tokens
        step = Step(
            prefill=prefill,
            decode=() if prefill else (request.id,),
            decode_context=0 if prefill else request.prompt_tokens + self._output,
            emitted=(request.id,),
            ended=(Ended(request.id, "stop"),) if ended else (),
            admitted=(request.id,) if prefill else (),
        )
        if ended:
            self._queue.popleft()
            self._output = 0
        return step

    def quiet_steps(self) -> int:
        return 0

    def repeat(self, steps: int) -> None:
        raise AssertionError(f"not allowed to repeat {steps} steps")

    @property
    def load(self) -> EngineLoad:
        running = min(1, len(self._queue))
        return EngineLoad(running, len(self._queue) - running, 0, 0, self._capacity)


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    """The engine is there for one test."""
    with registered(TOY), registered_rule("toy", ToyRule):
        yield


def test_its_page_is_read() -> None:
    """By its prefix, each number by its own reader."""
    view = view_of("toy_running 2\ntoy_waiting 5\ntoy_usage 0.5\ntoy_drops_total 3\ntoy_tokens 1000\n")

    assert (view.engine, view.title, view.running.value, view.waiting.value) == ("toy", "Toy", 2, 5)
    assert (view.preemptions.value, view.pool_tokens.value, view.preemptions_word) == (3, 1000, "drops")


def test_a_freeze_is_described_in_its_words() -> None:
    """Without any branch on its name."""
    assert sentence(match(10.0, 20.0, (), "toy"), 10.0, "toy") == (
        "a freeze of 10.0 s; the server's page was not read in its time, so whether there was a drop is not known"
    )


def test_it_has_alerts_and_panels() -> None:
    """About its preemptions, its cap, and freezes beside its preemptions."""
    alerts = [rule for group in build(Tuning()) for rule in group.rules if isinstance(rule, Alert)]
    own = {alert.name: alert for alert in alerts if alert.engine == "toy"}

    assert sorted(own) == ["StreamFreezesFromEviction", "ToyCapTooLow", "ToyDrops"]
    assert own["ToyDrops"].description == "[value] drops in 10m. [who]. Lower --toy-slots."
    panels = as_json(DASHBOARDS["engine"](Naming.PROMETHEUS))
    assert "toy_drops_total" in panels
    assert "Toy drops" in panels
    assert "ToyDrops" in [finding.alert for finding in check(Tuning(), lambda _: 1)]


def test_it_is_simulated_by_its_rule() -> None:
    """Two requests, one after the other."""
    workload = open_loop([0.0, 0.0], pairs(0, 2, fixed(10), fixed(5)))

    run = simulate(engine("toy-engine", toy_slots=1), workload, PROFILES["l4"])

    assert [(request.answer_tokens, request.ending) for request in run.requests] == [(5, "stop")] * 2


def test_it_is_emulated_in_its_dialect() -> None:
    """What it has no flag for is refused by the flags that it has."""
    assert Emulated(engine="toy").engine == "toy"
    with pytest.raises(ValueError, match="toy has no block-size; it has toy-slots, toy-tokens"):
        Emulated(engine="toy", flags={"block_size": 1})


def test_its_flags_are_advised() -> None:
    """From its module's own function."""
    flags, traps = ENGINES["toy"].advise_flags(Situation(cap=3), None)

    assert (flags[0].text, traps) == ("--toy-slots 3", ["it is a toy"])
