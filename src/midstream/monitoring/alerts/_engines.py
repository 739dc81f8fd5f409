"""Rules about the engines behind the streams, and freezes whose cause is known."""

from __future__ import annotations

from midstream.monitoring.alerts._model import Alert
from midstream.monitoring.alerts._tuning import Tuning
from midstream.monitoring.alerts.engines import ENGINES, SGLANG, TRTLLM, VLLM, Engine
from midstream.monitoring.alerts.query import Query, quoted
from midstream.telemetry.instruments import FREEZES, MODEL

ENGINE = "midstream-engine"


def engines(q: Query, t: Tuning) -> tuple[Alert, ...]:
    """Rules that need the engine's own /metrics to be scraped; without it they are silent."""
    by = ", ".join(map(quoted, t.server_by))
    return (
        Alert(
            "VllmPreemptions",
            severity="warning",
            expr=f"{evictions(q, VLLM, by, t.window)} >= {t.evictions}",
            hold="0s",
            keep="10m",
            summary="vLLM preempts running requests",
            description=f"[value] preemptions in {t.window}. [who]. Each one freezes an answer while it is "
            f"computed again. "
            "Lower --max-num-active-seqs (--max-num-seqs before 0.31) until they are near zero.",
            dashboard=ENGINE,
            by=t.server_by,
            engine=VLLM.key,
        ),
        Alert(
            "SglangRetractions",
            severity="warning",
            expr=f"{evictions(q, SGLANG, by, t.window)} >= {t.evictions}",
            hold="0s",
            keep="10m",
            summary="SGLang retracts running requests",
            description=f"[value] retractions in {t.window}. [who]. Each one freezes an answer while it is computed "
            "again. Raise --schedule-conservativeness to about 1.3, or lower --max-running-requests.",
            dashboard=ENGINE,
            by=t.server_by,
            engine=SGLANG.key,
        ),
        Alert(
            "TrtllmPausedRequests",
            severity="warning",
            expr=f"{evictions(q, TRTLLM, by, t.window)} > 0",
            hold="0s",
            keep="10m",
            summary="TensorRT-LLM pauses running requests",
            description=f"Up to [value] requests were paused in {t.window}. [who]. Their answers stand still. Use "
            "capacity_scheduler_policy GUARANTEED_NO_EVICT, or lower max_batch_size.",
            dashboard=ENGINE,
            by=t.server_by,
            engine=TRTLLM.key,
        ),
        *(_cap_too_low(q, t, engine, by) for engine in ENGINES),
        *(_cause_known(q, t, engine) for engine in ENGINES),
    )


def evictions(q: Query, engine: Engine, by: str, window: str) -> str:
    """Write how many requests were thrown out in a window, or for a gauge how many were out at worst."""
    series = q.server(engine.evictions)
    if engine.kind == "gauge":
        return f"sum by ({by}) (max_over_time({series}[{window}]))"
    counted = f"increase({series}[{window}])"
    if engine.kind == "late counter":
        # It is absent until the first event. What is younger than the window counts in full.
        counted = f"({series} unless {series} offset {window}) or {counted}"
    return f"sum by ({by}) ({counted})"


def _cap_too_low(q: Query, t: Tuning, engine: Engine, by: str) -> Alert:
    waiting = f"avg_over_time({q.server(engine.waiting)}[{t.window}])"
    usual = f"avg_over_time({q.server(engine.waiting)}[{t.kv_window}])"
    usage = f"quantile_over_time(0.95, {q.server(engine.usage)}[{t.kv_window}])"
    return Alert(
        f"{engine.key.capitalize()}CapTooLow",
        severity="info",
        expr=f"max by ({by}) ({usage}) < {t.kv_low:g}\n"
        f"and sum by ({by}) ({waiting}) >= {t.kv_waiting:g}\n"
        f"and sum by ({by}) ({waiting}) > sum by ({by}) ({usual})",
        hold="15m",
        keep="15m",
        summary=f"{engine.title} lets requests wait although its KV cache is half empty",
        description=f"For 95 % of {t.kv_window} no more than [percent] of the KV cache was in use, and the "
        f"queue grows. "
        f"[who]. The cap is too low: raise {engine.cap} until evictions just reappear.",
        dashboard=ENGINE,
        by=t.server_by,
        engine=engine.key,
    )


def _cause_known(q: Query, t: Tuning, engine: Engine) -> Alert:
    if t.join_on_model and MODEL in t.by:
        model = q.naming.label(MODEL)
        out = evictions(q, engine, "model_name", t.window)
        beside = f'and on ({quoted(model)}) label_replace(\n  {out} > 0,\n  "{model}", "$1", "model_name", "(.+)"\n)'
    else:
        beside = f"and on () sum({evictions(q, engine, 'job', t.window)}) > 0"
    return Alert(
        "StreamFreezesFromEviction",
        severity="warning",
        expr=f"{q.count(FREEZES, t.window)} >= {t.freezes_with_evictions}\n{beside}",
        hold="0s",
        keep="10m",
        summary="Answers freeze while the engine evicts requests: the cause is known",
        description=f"[value] freezes in {t.window}, and {engine.title} evicted requests in the same time. [who]. It "
        f"admits more than its memory holds: lower {engine.cap}.",
        dashboard=ENGINE,
        labels={"engine": engine.key},
        engine=engine.key,
    )
