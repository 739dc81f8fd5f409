"""llama.cpp's server: metric names, flags, reservation rule, log lines and dialect."""

from __future__ import annotations

import re
from dataclasses import dataclass

from midstream.engines.dialect import Dialect
from midstream.engines.facts import (
    EngineFacts,
    EngineKnob,
    EngineVariant,
    PageReaders,
    PoolLogLine,
    PreemptionCounting,
    PreemptionWords,
    ReservationRule,
    reserves_nothing,
    whole_number,
)
from midstream.engines.faults import ErrorBody, Fault, Faults
from midstream.engines.flags import Advice, Flag, Situation, Version
from midstream.engines.page import highest, not_exposed, not_in_this_engine, total
from midstream.engines.settings import at_least, flag


@dataclass(frozen=True, slots=True)
class LlamaCppSettings:
    """The flags of `llama-server` that bear on admission, by their names there."""

    ctx_size: int = flag(8192, "tokens of KV cache, shared by all slots")
    parallel: int = flag(4, "slots: requests that run at once")
    batch_size: int = flag(2048, "tokens that one step computes")
    kv_unified: bool = flag(True, "one cache for all slots; without, each slot has its equal part")

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(1, parallel=self.parallel, batch_size=self.batch_size)
        at_least(2 * self.parallel, ctx_size=self.ctx_size)


_OLD = "this llama.cpp does not expose it"

PAGE = PageReaders(
    running=total("llamacpp:requests_processing", absent=_OLD),
    waiting=total("llamacpp:requests_deferred", absent=_OLD),
    kv_usage=highest("llamacpp:kv_cache_usage_ratio", absent="newer versions of llama.cpp do not expose it"),
    preemptions=not_in_this_engine(
        "llama.cpp never preempts: when its memory is full, the answers fail with an error"
    ),
    preempted_now=not_in_this_engine("llama.cpp never preempts"),
    generated=total("llamacpp:tokens_predicted_total", absent=_OLD),
    pool=not_exposed("llama.cpp does not expose it in its metrics; it is -c, the context size"),
)


def _advise(now: Situation, _version: Version | None) -> Advice:
    flags = []
    if now.cap is not None:
        flags.append(Flag("server", f"--parallel {now.cap}", "slots: what runs at once"))
    if now.cap is not None and now.limit is not None and now.longest_prompt is not None:
        need = now.cap * (now.limit + now.longest_prompt)
        flags.append(
            Flag("server", f"--ctx-size {need}", "every slot can then hold the longest prompt and the limit")
        )
    if now.limit is not None:
        flags.append(
            Flag("server", f"--predict {now.limit}", "for requests that send no limit: theirs is infinite")
        )
    return flags, [
        "when the cache of all slots is full, llama.cpp freezes no stream: every answer fails with an error",
    ]


def _error_body(fault: Fault) -> ErrorBody:
    kinds = {400: "invalid_request_error", 404: "not_found_error", 503: "unavailable_error"}
    error: ErrorBody = {
        "code": fault.status,
        "message": fault.message,
        "type": kinds.get(fault.status, "server_error"),
    }
    if fault.context is not None:
        error |= {
            "type": "exceed_context_size_error",
            "n_prompt_tokens": fault.prompt_tokens,
            "n_ctx": fault.context,
        }
    return {"error": error}


FAULTS = Faults(
    body=_error_body,
    event=_error_body,
    prompt_too_long="request ({prompt} tokens) exceeds the available context size ({context} tokens), try "
    "increasing it",
    request_too_long=None,
    busy="The server is busy.",
)

DIALECT = Dialect(
    version="b0-unknown",
    owner="llamacpp",
    faults=FAULTS,
    context=lambda _settings: None,
    headers_at="started",
    headers={"server": "llama.cpp", "content-type": "text/event-stream", "x-accel-buffering": "no"},
    role_content=None,
    finish_alone=True,
    text_usage="last chunk if asked",
    usage={"prompt_tokens_details": {"cached_tokens": 0}},
    chunk={"system_fingerprint": "b0-unknown"},
    text_choice={"logprobs": None},
    text_id="chatcmpl-",
    on_failure="event",
    failure="Context size has been exceeded.",  # what ends its answers in the middle is its memory
    model_card=lambda _model, context: {"meta": {"n_ctx_train": context}},
    unknown_path="error",
    keep_alive=b":\n\n",
    keep_alive_s=30.0,
)

FACTS = EngineFacts(
    key="llamacpp",
    title="llama.cpp",
    prefixes=("llamacpp:",),
    words=PreemptionWords("preemption", "preemptions", "preempts", "preempted"),
    page=PAGE,
    dialect=DIALECT,
    advise_flags=_advise,
    counting=PreemptionCounting(never=True),
    log_lines=(
        # Cells of each stream, and slots / streams: with one cache for all slots there is one stream.
        PoolLogLine(
            re.compile(
                r"llama_kv_cache\w{0,40}: size = {1,40}[\d.]{1,40} MiB \( {0,40}(\d{1,100}) cells, {1,40}\d{1,40}"
                r" layers, {1,40}(?:\d{1,40}/ {0,40})?(\d{1,40}) seqs\)"
            ),
            lambda matched: whole_number(matched[1]) * (whole_number(matched[2]) if "/" in matched[0] else 1),
        ),
    ),
    metrics_missing={501: "this llama.cpp was started without --metrics; start it with it"},
    variants=(
        EngineVariant(
            "llamacpp",
            LlamaCppSettings,
            "reserves nothing; all fail when memory runs out",
            ReservationRule(
                "llama.cpp",
                reserves_nothing,
                "nothing is set aside for a limit, but without one an answer goes on until the context is full",
            ),
            EngineKnob("ctx_size", "parallel", preempts=True),
            aliases=("llama.cpp",),
        ),
    ),
)
