"""TGI (text-generation-inference): metric names, flags by version, reservation rule, log lines and dialect.

Read in its sources: 2.4 to 3.3.7. It is in maintenance mode since December 2025.
"""

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
    reserves_all,
    reserves_up_to,
    whole_number,
)
from midstream.engines.faults import ErrorBody, Fault, Faults
from midstream.engines.flags import Advice, Flag, Situation, Version
from midstream.engines.page import MetricReading, MetricsPage, not_exposed, not_in_this_engine, total
from midstream.engines.settings import at_least, flag

PASS_TOKENS = 1024
"""From 3.1.1 on, one pass reserves no more than this for an answer; a longer answer then queues again."""


@dataclass(frozen=True, slots=True)
class TgiSettings:
    """The flags of `text-generation-launcher` that bear on admission, by their names there."""

    max_batch_total_tokens: int = flag(30240, "tokens of KV cache")
    max_total_tokens: int | None = flag(None, "prompt and answer together; left out: what fits in the pool")
    max_input_tokens: int | None = flag(None, "prompt; left out: one less than max-total-tokens")
    max_batch_prefill_tokens: int = flag(4096, "tokens of prompts that one pass computes")
    max_batch_size: int | None = flag(None, "requests that run at once; only without chunking")
    max_concurrent_requests: int = flag(128, "requests inside, waiting ones included, before a 429")
    waiting_served_ratio: float = flag(
        0.3, "waiting to running requests that justify a prefill; only without chunking"
    )
    max_waiting_tokens: int = flag(20, "decode steps after which a prefill needs no justification")
    block_size: int = flag(1, "tokens in a block: 1 with flashinfer, 256 with flashdecoding, 16 with paged")
    prefill_chunking: bool = flag(True, "prefill and decode in one pass")

    def __post_init__(self) -> None:
        """Refuse what the launcher refuses."""
        at_least(
            1,
            max_total_tokens=self.max_total_tokens,
            max_input_tokens=self.max_input_tokens,
            max_batch_prefill_tokens=self.max_batch_prefill_tokens,
            max_batch_size=self.max_batch_size,
            max_concurrent_requests=self.max_concurrent_requests,
            block_size=self.block_size,
        )
        at_least(2 * self.block_size, max_batch_total_tokens=self.max_batch_total_tokens)
        at_least(
            0, waiting_served_ratio=self.waiting_served_ratio, max_waiting_tokens=self.max_waiting_tokens
        )
        total = self.max_total_tokens
        if total is not None and total > self.max_batch_total_tokens - self.block_size:
            raise ValueError(
                f"max-total-tokens must fit in max-batch-total-tokens less one block "
                f"({self.max_batch_total_tokens - self.block_size}), got {total}"
            )
        if total is not None and self.max_input_tokens is not None and self.max_input_tokens >= total:
            raise ValueError(
                f"max-input-tokens must be below max-total-tokens ({total}), got {self.max_input_tokens}"
            )


_LATE = "TGI makes this series when it first has a value: it has served nothing yet"


def _requeues(page: MetricsPage) -> MetricReading:
    """Passes less requests: every pass after an answer's first one went through the queue again."""
    passes = total("tgi_request_input_length_count", absent=_LATE)(page)
    requests = total("tgi_request_count", "tgi_request_count_total", absent=_LATE)(page)
    if passes.value is None or requests.value is None:
        return passes if passes.value is None else requests
    early = ("validation", "overloaded", "template")
    refused = sum(
        sample.value
        for sample in page.named("tgi_request_failure", "tgi_request_failure_total")
        if sample.labels.get("err") in early
    )
    return MetricReading(
        max(0.0, passes.value - requests.value + refused),
        "an estimate: passes less requests, TGI counts none",
    )


PAGE = PageReaders(
    running=total("tgi_batch_current_size", absent=_LATE),
    waiting=total("tgi_queue_size", absent=_LATE),
    kv_usage=not_exposed(
        "TGI exposes how much is reserved (tgi_batch_current_max_tokens), not of how much: --max-batch-total-tokens"
    ),
    preemptions=_requeues,
    preempted_now=not_in_this_engine(
        "TGI never preempts; from 3.1.1 on it sends an answer to the end of the queue every 1,024 tokens"
    ),
    generated=total("tgi_request_generated_tokens_sum", absent=_LATE),
    # tgi_batch_total_tokens is described, and in v3 never set.
    pool=total(
        "tgi_batch_total_tokens",
        absent="TGI does not expose it in its metrics; it is --max-batch-total-tokens",
    ),
    notes=("TGI adds an answer's tokens when it is over",),
)


def _advise(now: Situation, version: Version | None) -> Advice:
    flags = []
    if now.pool_tokens is not None:
        flags.append(
            Flag(
                "server",
                f"--max-batch-total-tokens {now.pool_tokens}",
                "the pool: the true budget of what runs at once",
            )
        )
    if now.limit is not None and now.longest_prompt is not None:
        flags.append(
            Flag(
                "server",
                f"--max-total-tokens {now.limit + now.longest_prompt}",
                "for one request, not for all: the longest prompt seen and the limit",
            )
        )
    if now.limit is not None:
        flags.append(Flag("request", f"max_tokens={now.limit}", _limit(version)))
    if now.cap is not None:
        flags.append(
            Flag("client", f"at most {now.cap} streams at once", "TGI has no flag that makes requests wait")
        )
    return flags, [
        "--max-concurrent-requests refuses with a 429 what comes above it, and counts those that wait",
        (
            "from 3.1.1 on an answer of more than 1,024 tokens goes through the queue again after each 1,024: "
            "that is a freeze which no metric shows"
        ),
    ]


def _limit(version: Version | None) -> str:
    if version is not None and version < (3,):
        return "all of it is set aside"
    if version is not None and version < (3, 1, 1):
        return "all of it is set aside; up to 1,024 tokens for a request that sends none"
    return "up to 1,024 of it are set aside (all of it up to 2.4)"


def _error_body(fault: Fault) -> ErrorBody:
    kinds = {429: "overloaded", 422: "validation", 400: "validation", 404: "validation"}
    return {"error": fault.message, "error_type": kinds.get(fault.status, "generation")}


def _error_event(fault: Fault) -> ErrorBody:
    # Whatever it was, overload included: the router knows one status for streams.
    return {"error": {"message": fault.message, "http_status_code": 422}}


FAULTS = Faults(
    body=_error_body,
    event=_error_event,
    prompt_too_long="Input validation error: `inputs` must have less than {context} tokens. Given: {prompt}",
    request_too_long="Input validation error: `inputs` tokens + `max_new_tokens` must be <= {context}. Given: "
    "{prompt} `inputs` tokens and {limit} `max_new_tokens`",
    busy="Model is overloaded",
    too_long_status=422,
)

DIALECT = Dialect(
    version="3.3.7",
    owner="tgi",
    faults=FAULTS,
    context=lambda settings: settings.max_total_tokens,
    headers={"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"},
    role="every",
    text_reasons={"stop": "eos_token"},
    no_reason="",
    text_usage="last chunk",
    chunk={"system_fingerprint": "3.3.7-native"},
    choice={"logprobs": None},
    text_choice={"logprobs": None},
    ids=False,
    tool_reason="stop",
    choices=False,
    streamed_refusals=frozenset({400, 422, 429}),
    keep_alive=b":\n\n",
    keep_alive_s=15.0,
    responses=False,
    unknown_path="empty",
)

FACTS = EngineFacts(
    key="tgi",
    title="TGI",
    prefixes=("tgi_",),
    words=PreemptionWords("re-queue", "re-queues", "queues again", "queued again"),
    page=PAGE,
    dialect=DIALECT,
    advise_flags=_advise,
    counting=PreemptionCounting(estimated=True),
    log_lines=(
        PoolLogLine(
            re.compile(r"Setting max batch total tokens to (\d{1,100})"),
            lambda matched: whole_number(matched[1]),
        ),
    ),
    variants=(
        EngineVariant(
            "tgi",
            TgiSettings,
            "reserves 1,024 tokens a pass, then queues again at the tail (3.1.1 on)",
            ReservationRule(
                "TGI 3.1.1 and later",
                reserves_up_to(PASS_TOKENS),
                f"sets aside up to {PASS_TOKENS:,} of it, and sends longer answers through the queue again after each "
                f"{PASS_TOKENS:,} tokens, which freezes them: at {PASS_TOKENS:,} or less nothing is sent back",
            ),
            EngineKnob(
                "max_batch_total_tokens", None, preempts=True, at_least={"max_concurrent_requests": 128}
            ),
            options={"pass_tokens": PASS_TOKENS},
        ),
        EngineVariant(
            "tgi-2.4",
            TgiSettings,
            "reserves all of max_tokens (up to 2.4)",
            ReservationRule(
                "TGI up to 2.4",
                reserves_all,
                "sets all of it aside: half the limit, nearly twice as many answers at once",
            ),
            EngineKnob(
                "max_batch_total_tokens", None, preempts=False, at_least={"max_concurrent_requests": 128}
            ),
            options={"pass_tokens": None},
            version=(2, 4),
        ),
    ),
)
