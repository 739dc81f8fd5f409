"""Edges of the rules about engines, and about freezes whose cause is known."""

from __future__ import annotations

from midstream.monitoring.alerts import Tuning
from monitoring.alerts.cases_freezes import WHO, Case
from monitoring.alerts.promtool import Fired, ours

MODEL = "Qwen/Qwen3-8B"
VLLM = f'job="vllm",instance="gpu-1:8000",engine="0",model_name="{MODEL}"'
SGLANG = (
    f'job="sglang",instance="gpu-2:30000",engine_type="unified",tp_rank="0",pp_rank="0",model_name="{MODEL}"'
)
TRTLLM = f'job="trtllm",instance="gpu-3:8000",model_name="{MODEL}",engine_type="pytorch"'


def of_engine(job: str, instance: str) -> dict[str, str]:
    """The labels of an alert about an engine."""
    return {"job": job, "instance": instance, "model_name": MODEL}


def dashboard(job: str, instance: str) -> str:
    """The dashboard, opened on that engine."""
    return f"midstream-engine?var-job={job}&var-instance={instance}&var-model=Qwen%2FQwen3-8B"


ON_VLLM = of_engine("vllm", "gpu-1:8000"), dashboard("vllm", "gpu-1%3A8000")
ON_SGLANG = of_engine("sglang", "gpu-2:30000"), dashboard("sglang", "gpu-2%3A30000")
ON_TRTLLM = of_engine("trtllm", "gpu-3:8000"), dashboard("trtllm", "gpu-3%3A8000")
AFFECTED_VLLM = f"Affected: job vllm, instance gpu-1:8000, model_name {MODEL}."
AFFECTED_SGLANG = f"Affected: job sglang, instance gpu-2:30000, model_name {MODEL}."
AFFECTED_TRTLLM = f"Affected: job trtllm, instance gpu-3:8000, model_name {MODEL}."

PREEMPTIONS = Fired(
    "warning",
    "vLLM preempts running requests",
    f"10 preemptions in 10m. {AFFECTED_VLLM} Each one freezes an answer while it is computed again. Lower "
    "--max-num-active-seqs (--max-num-seqs before 0.31) until they are near zero.",
    ON_VLLM[1],
    ON_VLLM[0],
)
RETRACTIONS = Fired(
    "warning",
    "SGLang retracts running requests",
    f"5 retractions in 10m. {AFFECTED_SGLANG} Each one freezes an answer while it is computed again. Raise "
    "--schedule-conservativeness to about 1.3, or lower --max-running-requests.",
    ON_SGLANG[1],
    ON_SGLANG[0],
)
PAUSED = Fired(
    "warning",
    "TensorRT-LLM pauses running requests",
    f"Up to 2 requests were paused in 10m. {AFFECTED_TRTLLM} Their answers stand still. Use capacity_scheduler_policy "
    "GUARANTEED_NO_EVICT, or lower max_batch_size.",
    ON_TRTLLM[1],
    ON_TRTLLM[0],
)


def too_low(title: str, where: tuple[dict[str, str], str], affected: str, flag: str, word: str) -> Fired:
    """The three engines say the same, each with its flag."""
    return Fired(
        "info",
        f"{title} lets requests wait although its KV cache is half empty",
        f"For 95 % of 1h no more than 40% of the KV cache was in use, and the queue grows. {affected} The cap is too "
        f"low: raise {flag} until {word} just reappear.",
        where[1],
        where[0],
    )


def caused(engine: str, title: str, flag: str, verb: str, past: str) -> Fired:
    """So is a freeze beside preemptions."""
    return Fired(
        "warning",
        f"Answers freeze while the engine {verb} requests",
        f"10 freezes in 10m, and {title} {past} requests in the same time; most streams were not frozen together. "
        f"{WHO} That is a correlation in time, not a proof: `midstream watch` compares each freeze with the server's "
        f"counter. If they match, lower {flag}.",
        "midstream-engine?var-job=app&var-model=Qwen%2FQwen3-8B&var-server=gpu-1",
        more={"engine": engine},
    )


VLLM_FLAG = "--max-num-active-seqs (--max-num-seqs before 0.31)"
SGLANG_FLAG = "--max-running-requests, or --schedule-conservativeness"
PREEMPTED = f"vllm:num_preemptions_total{{{VLLM}}}"
RETRACTED = f"sglang:num_retracted_requests_total{{{SGLANG}}}"
PAUSED_NOW = f"trtllm_num_paused_requests{{{TRTLLM}}}"
FREEZES = ours("stream_freezes_total")
OTHER_MODEL = FREEZES.replace(MODEL, "gateway-model")


def load(usage: str, waiting: str, labels: str, used: str, queue: str) -> dict[str, str]:
    """How full an engine is, and how many wait for it."""
    return {f"{usage}{{{labels}}}": used, f"{waiting}{{{labels}}}": queue}


CLIMBING, STEADY, SHORT = "0x60 0+1x60", "5x120", "0x60 0+0.01x60"

# fmt: off
ENGINES = (
    Case("VllmPreemptions", "ten in ten minutes fire", {PREEMPTED: "0+1x30"}, "20m", PREEMPTIONS),
    Case(
        "VllmPreemptions",
        "under the names that Ray Serve gives them, ten fire as well",
        {f"ray_vllm_num_preemptions_total{{{VLLM},WorkerId=\"w\"}}": "0+1x30"},
        "20m",
        PREEMPTIONS,
    ),
    Case(
        "VllmPreemptions",
        "and with the colon of older versions",
        {f"ray_vllm:num_preemptions_total{{{VLLM},WorkerId=\"w\"}}": "0+1x30"},
        "20m",
        PREEMPTIONS,
    ),
    Case("VllmPreemptions", "four do not", {PREEMPTED: "0+0.4x30"}, "20m", None),
    Case("VllmPreemptions", "many, long ago, do not", {PREEMPTED: "900x30"}, "20m", None),
    Case("VllmPreemptions", "a restart is no preemption", {PREEMPTED: "900x15 0x15"}, "20m", None),
    Case(
        "VllmPreemptions", "preemptions after a restart are", {PREEMPTED: "900x10 0+1x20"}, "21m", PREEMPTIONS
    ),
    Case(
        "SglangRetractions",
        "a series that appears with five fires",
        {RETRACTED: "_x10 5x20"},
        "12m",
        RETRACTIONS,
    ),
    Case("SglangRetractions", "one that appears with four does not", {RETRACTED: "_x10 4x20"}, "12m", None),
    Case("SglangRetractions", "what appeared long ago does not", {RETRACTED: "_x10 5x60"}, "35m", None),
    Case("SglangRetractions", "five more later do", {RETRACTED: "90x30 90+0.5x30"}, "45m", RETRACTIONS),
    Case(
        "SglangRetractions",
        "on the first day in Prometheus the count of an old server is of any age",
        {RETRACTED: "_x10 500x20", f"sglang:num_running_reqs{{{SGLANG}}}": "_x10 3x20"},
        "12m",
        None,
    ),
    Case(
        "SglangRetractions",
        "where the server was known before, five at once are new",
        {RETRACTED: "_x10 5x20", f"sglang:num_running_reqs{{{SGLANG}}}": "3x31"},
        "12m",
        RETRACTIONS,
    ),
    Case("SglangRetractions", "before the first there is nothing to fire", {}, "20m", None),
    Case(
        "TrtllmPausedRequests",
        "two that were paused for one scrape fire",
        {PAUSED_NOW: "0x9 2 0x9"},
        "15m",
        PAUSED,
    ),
    Case("TrtllmPausedRequests", "ten minutes later they are over", {PAUSED_NOW: "0x9 2 0x30"}, "31m", None),
    Case("TrtllmPausedRequests", "none paused", {PAUSED_NOW: "0x30"}, "15m", None),
    Case(
        "VllmCapTooLow",
        "a queue grows before a cache at 40 %",
        load("vllm:kv_cache_usage_perc", "vllm:num_requests_waiting", VLLM, "0.4x120", CLIMBING),
        "100m",
        too_low("vLLM", ON_VLLM, AFFECTED_VLLM, VLLM_FLAG, "preemptions"),
    ),
    Case(
        "VllmCapTooLow",
        "a cache at 51 % is used",
        load("vllm:kv_cache_usage_perc", "vllm:num_requests_waiting", VLLM, "0.51x120", CLIMBING),
        "100m",
        None,
    ),
    Case(
        "VllmCapTooLow",
        "nobody waits",
        load("vllm:kv_cache_usage_perc", "vllm:num_requests_waiting", VLLM, "0.4x120", SHORT),
        "100m",
        None,
    ),
    Case(
        "VllmCapTooLow",
        "the queue does not grow",
        load("vllm:kv_cache_usage_perc", "vllm:num_requests_waiting", VLLM, "0.4x120", STEADY),
        "100m",
        None,
    ),
    Case(
        "SglangCapTooLow",
        "a queue grows before a cache at 40 %",
        load("sglang:token_usage", "sglang:num_queue_reqs", SGLANG, "0.4x120", CLIMBING),
        "100m",
        too_low("SGLang", ON_SGLANG, AFFECTED_SGLANG, SGLANG_FLAG, "retractions"),
    ),
    Case(
        "SglangCapTooLow",
        "a cache at 51 % is used",
        load("sglang:token_usage", "sglang:num_queue_reqs", SGLANG, "0.51x120", CLIMBING),
        "100m",
        None,
    ),
    Case(
        "TrtllmCapTooLow",
        "a queue grows before a cache at 40 %",
        load("trtllm_kv_cache_utilization", "trtllm_num_requests_waiting", TRTLLM, "0.4x120", CLIMBING),
        "100m",
        too_low("TensorRT-LLM", ON_TRTLLM, AFFECTED_TRTLLM, "max_batch_size", "pauses"),
    ),
    Case(
        "TrtllmCapTooLow",
        "a cache at 51 % is used",
        load("trtllm_kv_cache_utilization", "trtllm_num_requests_waiting", TRTLLM, "0.51x120", CLIMBING),
        "100m",
        None,
    ),
    Case(
        "StreamFreezesFromEviction",
        "freezes beside preemptions",
        {FREEZES: "0+1x30", PREEMPTED: "0+1x30"},
        "20m",
        caused("vllm", "vLLM", VLLM_FLAG, "preempts", "preempted"),
    ),
    Case(
        "StreamFreezesFromEviction",
        "freezes alone say nothing of a cause",
        {FREEZES: "0+1x30", PREEMPTED: "7x30"},
        "20m",
        None,
    ),
    Case(
        "StreamFreezesFromEviction",
        "preemptions alone froze nobody",
        {FREEZES: "3x30", PREEMPTED: "0+1x30"},
        "20m",
        None,
    ),
    Case(
        "StreamFreezesFromEviction",
        "freezes of another model have another cause",
        {OTHER_MODEL: "0+1x30", PREEMPTED: "0+1x30"},
        "20m",
        None,
    ),
    Case(
        "StreamFreezesFromEviction",
        "unless a gateway renames its models",
        {FREEZES: "0+1x30", PREEMPTED.replace(MODEL, "upstream"): "0+1x30"},
        "20m",
        caused("vllm", "vLLM", VLLM_FLAG, "preempts", "preempted"),
        Tuning(join_on_model=False),
    ),
    Case(
        "StreamFreezesFromEviction",
        "a server that was stopped for 100 s froze all six streams, beside two preemptions of another time",
        {
            FREEZES: "0x12 6x20",
            PREEMPTED: "0x10 2x20",
            ours("stream_frozen"): "0x11 6 6 0x20",
            ours("stream_active"): "6x40",
        },
        "16m",
        None,
    ),
    Case(
        "StreamFreezesFromEviction",
        "one scrape in the middle of the stop is enough to see it",
        {
            FREEZES: "0x12 6x20",
            PREEMPTED: "0x10 2x20",
            ours("stream_frozen"): "0x11 6 0x20",
            ours("stream_active"): "7x40",
        },
        "16m",
        None,
    ),
    Case(
        "StreamFreezesFromEviction",
        "three of six frozen at the same time are no shared freeze",
        {
            FREEZES: "0+1x30",
            PREEMPTED: "0+1x30",
            ours("stream_frozen"): "3x30",
            ours("stream_active"): "6x30",
        },
        "20m",
        caused("vllm", "vLLM", VLLM_FLAG, "preempts", "preempted"),
    ),
    Case(
        "StreamFreezesFromEviction",
        "a stream alone with its server cannot be told either way",
        {
            FREEZES: "0+1x30",
            PREEMPTED: "0+1x30",
            ours("stream_frozen"): "1x30",
            ours("stream_active"): "1x30",
        },
        "20m",
        caused("vllm", "vLLM", VLLM_FLAG, "preempts", "preempted"),
    ),
    Case(
        "StreamFreezesFromEviction",
        "the first retraction ever counts",
        {FREEZES: "0+1x30", RETRACTED: "_x18 1x9"},
        "20m",
        caused("sglang", "SGLang", SGLANG_FLAG, "retracts", "retracted"),
    ),
    Case(
        "StreamFreezesFromEviction",
        "paused requests are preemptions",
        {FREEZES: "0+1x30", PAUSED_NOW: "0x18 1x9"},
        "20m",
        caused("trtllm", "TensorRT-LLM", "max_batch_size", "pauses", "paused"),
    ),
)
