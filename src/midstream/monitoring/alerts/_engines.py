"""Rules about the engines behind the streams, and about freezes that coincide with preemptions."""

from __future__ import annotations

from midstream.engines import ENGINES, EngineFacts
from midstream.monitoring.alerts._model import Alert
from midstream.monitoring.alerts._tuning import Tuning
from midstream.monitoring.alerts.query import Query, quoted
from midstream.telemetry.instruments import ACTIVE, ENDED, FREEZES, FROZEN, MODEL

ENGINE = "midstream-engine"


def engines(q: Query, t: Tuning) -> tuple[Alert, ...]:
    """Rules that need the engine's own /metrics to be scraped; without it they are silent."""
    by = ", ".join(map(quoted, t.server_by))
    observed = engines_with_series()
    return (
        *(_preemptions_found(q, t, facts, by) for facts in observed),
        *(_cap_too_low(q, t, facts, by) for facts in observed),
        *(_freezes_beside_preemptions(q, t, facts) for facts in observed),
    )


def engines_with_series() -> list[EngineFacts]:
    """Return the engines that have series in Prometheus which explain a freeze."""
    return [facts for facts in ENGINES.values() if facts.series is not None]


def _preemptions_found(q: Query, t: Tuning, facts: EngineFacts, by: str) -> Alert:
    series, words = facts.required_series, facts.words
    least = "> 0" if series.kind == "gauge" else f">= {t.preemptions}"
    return Alert(
        series.alert,
        severity="warning",
        expr=f"{preemptions(q, facts, by, t.window)} {least}" + _while_busy(q, t, facts, by),
        for_="0s",
        keep_firing_for="2m",
        summary=f"{facts.title} {words.verb} running requests",
        description=f"{series.found.replace('[window]', t.window)} [who]. {series.remedy}",
        dashboard=ENGINE,
        by=t.server_by,
        engine=facts.key,
    )


def preemptions(q: Query, facts: EngineFacts, by: str, window: str) -> str:
    """Write how many requests were preempted in a window, or for a gauge how many were out at the worst moment."""
    series = q.engine(facts, facts.required_series.preemptions)
    if facts.required_series.kind == "gauge":
        return f"sum by ({by}) (max_over_time({series}[{window}]))"
    counted = f"increase({series}[{window}])"
    if facts.required_series.kind == "late counter":
        # The series is absent until the first event, so what is younger than the window counts in full; unless the
        # whole server is new to Prometheus: then its count may be of any age.
        running = q.engine(facts, facts.required_series.running)
        new = f"on (job, instance) ({running} unless {running} offset {window})"
        counted = f"(({series} unless {series} offset {window}) {q.guard(f'unless {new}')}) or {counted}"
    return f"sum by ({by}) ({counted})"


def _while_busy(q: Query, t: Tuning, facts: EngineFacts, by: str, present: str = "") -> str:
    """Write what silences a rule about servers that had no request, running or waiting, in the traffic window.

    A rule ends with the series named by `present` (by default the preemptions) as well: when the target stops.
    """
    busy = [
        f"sum by ({by}) (max_over_time({q.engine(facts, name)}[{t.traffic_window}]))"
        for name in (facts.required_series.running, facts.required_series.waiting)
    ]
    there = q.engine(facts, present or facts.required_series.preemptions)
    return "\n" + q.guard(f"and count by ({by}) ({there})\nunless ({busy[0]} + {busy[1]} == 0)")


def _cap_too_low(q: Query, t: Tuning, facts: EngineFacts, by: str) -> Alert:
    series = q.engine(facts, facts.required_series.waiting)
    waiting = f"avg_over_time({series}[{t.window}])"
    usual = f"avg_over_time({series}[{t.kv_window}])"
    usage = f"quantile_over_time(0.95, {q.engine(facts, facts.required_series.usage)}[{t.kv_window}])"
    return Alert(
        f"{facts.key.capitalize()}CapTooLow",
        severity="info",
        expr=f"max by ({by}) ({usage}) < {t.kv_low:g}\n"
        f"and sum by ({by}) ({waiting}) >= {t.kv_waiting:g}\n"
        f"and sum by ({by}) ({waiting}) > sum by ({by}) ({usual})\n"
        # A server that is younger than the window has no usual queue.
        + q.guard(f"and count by ({by}) ({series} offset {t.kv_window})")
        + _while_busy(q, t, facts, by, facts.required_series.waiting),
        for_="15m",
        keep_firing_for="2m",
        summary=f"{facts.title} lets requests wait although its KV cache is half empty",
        description=f"For 95 % of {t.kv_window} no more than [percent] of the KV cache was in use, and the "
        f"queue grows. [who]. The cap is too low: raise {facts.required_series.cap} until {facts.words.plural} just "
        "reappear.",
        dashboard=ENGINE,
        by=t.server_by,
        engine=facts.key,
    )


SHARED = 0.8
"""The share of the open streams that are frozen at the same time, from which on a freeze is the whole server's."""


def _frozen_together(q: Query, t: Tuning) -> str:
    """Write where, at some moment of the window, most open streams were frozen at the same time: a shared freeze."""
    frozen, active = f"sum by ({q.by}) ({q(FROZEN)})", f"sum by ({q.by}) ({q(ACTIVE)})"
    at_once = f"({frozen} >= 2) / ({active} > 0)"
    return f"max_over_time(({at_once})[{t.window}:{SUBQUERY_STEP}]) >= {SHARED:g}"


SUBQUERY_STEP = "15s"
"""How often the window is looked at for a shared freeze: a usual scrape interval."""


def _freezes_beside_preemptions(q: Query, t: Tuning, facts: EngineFacts) -> Alert:
    if t.join_on_model and MODEL in t.by:
        model = q.naming.label(MODEL)
        out = preemptions(q, facts, "model_name", t.window)
        beside = f'and on ({quoted(model)}) label_replace(\n  {out} > 0,\n  "{model}", "$1", "model_name", "(.+)"\n)'
    else:
        beside = f"and on () sum({preemptions(q, facts, 'job', t.window)}) > 0"
    return Alert(
        "StreamFreezesFromEviction",
        severity="warning",
        expr=q.with_traffic(
            f"{q.count(FREEZES, t.window)} >= {t.freezes_with_preemptions}\n{beside}\n"
            + q.guard(f"unless {_frozen_together(q, t)}"),
            ENDED,
            t.traffic_window,
            present=FREEZES,
        ),
        for_="0s",
        keep_firing_for="2m",
        summary=f"Answers freeze while the engine {facts.words.verb} requests",
        description=f"[value] freezes in {t.window}, and {facts.title} {facts.words.past} requests in the same time; "
        "most streams were not frozen together. [who]. That is a correlation in time, not a proof: `midstream watch` "
        f"compares each freeze with the server's counter. If they match, lower {facts.required_series.cap}.",
        dashboard=ENGINE,
        labels={"engine": facts.key},
        engine=facts.key,
    )
