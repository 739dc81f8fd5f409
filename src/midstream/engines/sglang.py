"""SGLang: metric names, flags, reservation rule, log lines and dialect.

Read in its sources: 0.4.6 to 0.5.23.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from midstream._support.foreign import count
from midstream.engines.dialect import UVICORN_HEADERS, Dialect
from midstream.engines.facts import (
    EngineFacts,
    EngineKnob,
    EngineSeries,
    EngineVariant,
    PageReaders,
    PoolLogLine,
    PreemptionWords,
    ReservationRule,
    reserves_up_to,
    whole_number,
)
from midstream.engines.faults import Faults, flat_body
from midstream.engines.flags import Advice, Flag, Situation, Version
from midstream.engines.page import (
    MetricReading,
    MetricsPage,
    PageSample,
    highest,
    not_in_this_engine,
    total,
)
from midstream.engines.settings import at_least, flag

CLIP_MAX_NEW_TOKENS = 4096
"""`SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION`: the most of a limit that counts when a request is admitted."""
USUAL_RETRACTIONS_PER_MINUTE = 1.0
"""SGLang's own guide: about one retraction a minute is all right, more is not."""
USUAL_KV_USAGE = 0.9
"""SGLang's own guide: usage below this with a queue means that it holds back too much."""


@dataclass(frozen=True, slots=True)
class SglangSettings:
    """The flags of `sglang.launch_server` that bear on admission, by their names there."""

    max_total_tokens: int = flag(25224, "tokens of KV cache")
    max_running_requests: int = flag(2048, "requests that run at once")
    schedule_conservativeness: float = flag(1.0, "scales the share of each answer that is reserved")
    chunked_prefill_size: int = flag(2048, "tokens of prompts that one prefill step computes")
    max_prefill_tokens: int = flag(16384, "tokens of prompts that one prefill step starts")
    page_size: int = flag(1, "tokens in a page")
    context_length: int | None = flag(None, "prompt and answer together; left out: what fits in the pool")
    max_queued_requests: int | None = flag(None, "waiting requests before new and retracted ones get a 503")

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(
            1,
            max_total_tokens=self.max_total_tokens,
            max_running_requests=self.max_running_requests,
            chunked_prefill_size=self.chunked_prefill_size,
            max_prefill_tokens=self.max_prefill_tokens,
            page_size=self.page_size,
            context_length=self.context_length,
        )
        at_least(0, max_queued_requests=self.max_queued_requests)
        if not self.schedule_conservativeness > 0:
            raise ValueError(
                f"schedule-conservativeness must be above 0, got {self.schedule_conservativeness:g}"
            )
        if self.chunked_prefill_size < self.page_size:
            raise ValueError(
                f"chunked-prefill-size must be at least a page ({self.page_size}), "
                f"got {self.chunked_prefill_size}"
            )


_LATE = "SGLang makes this series with its first report: it has served nothing yet"


def first_ranks(samples: Iterable[PageSample]) -> list[PageSample]:
    """Keep one sample of each data-parallel rank: the other ranks of SGLang repeat the numbers of the first one."""
    kept: dict[tuple[str, ...], tuple[tuple[int, ...], PageSample]] = {}
    for sample in samples:
        replica = tuple(sample.labels.get(name, "") for name in ("model_name", "engine_type", "dp_rank"))
        rank = tuple(_rank(sample.labels.get(name, "")) for name in ("tp_rank", "pp_rank", "moe_ep_rank"))
        if replica not in kept or rank < kept[replica][0]:
            kept[replica] = (rank, sample)
    return [sample for _, sample in kept.values()]


def _rank(text: str) -> int:
    return count(text) or 0


def _retractions(page: MetricsPage) -> MetricReading:
    name = "sglang:num_retracted_requests_total"
    found = total(name, absent="", among=first_ranks)(page)
    if found.value is not None or found.why:
        return found
    # The series appears with the first retraction. Another series of 0.5.9 shows that this version has it.
    if name in page.declared or page.named("sglang:new_token_ratio"):
        return MetricReading(0.0, "none yet: SGLang makes this series with the first one")
    if page.named("sglang:num_running_reqs", "sglang:token_usage"):
        return MetricReading(
            None, "SGLang counts retractions from 0.5.9 on; look for `KV cache pool is full` in its log"
        )
    return MetricReading(None, _LATE)


PAGE = PageReaders(
    running=total("sglang:num_running_reqs", absent=_LATE, among=first_ranks),
    waiting=total("sglang:num_queue_reqs", absent=_LATE, among=first_ranks),
    kv_usage=highest("sglang:token_usage", absent=_LATE, among=first_ranks),
    preemptions=_retractions,
    preempted_now=not_in_this_engine(
        "its gauge of retractions shows the last batch of them only, and often not even that"
    ),
    generated=total("sglang:generation_tokens_total", absent=_LATE),
    pool=total(
        "sglang:max_total_num_tokens",
        absent="this SGLang does not expose it; see its log for `max_total_num_tokens`",
        among=first_ranks,
    ),
    notes=("SGLang renews running, waiting and KV use with each of its reports: up to 40 steps late",),
)


def _advise(now: Situation, _version: Version | None) -> Advice:
    flags = []
    if now.cap is not None:
        flags.append(Flag("server", f"--max-running-requests {now.cap}", "caps what runs"))
    conservativeness = _conservativeness(now)
    if conservativeness is not None:
        flags.append(conservativeness)
    if now.limit is not None:
        flags.append(
            Flag("request", f"max_tokens={now.limit}", "up to 4,096 of it count when a request is admitted")
        )
    return flags, [
        "with --max-queued-requests a retracted answer can be refused with a 503 in its middle, as it queues again",
        "under data-parallel attention SGLang multiplies --schedule-conservativeness by 0.3 by itself",
        "a max_tokens far above real answers makes SGLang too hopeful after a retraction, and so causes the next",
    ]


def _conservativeness(now: Situation) -> Flag | None:
    name = "--schedule-conservativeness"
    often = now.preemptions_per_minute
    if often is not None and often > USUAL_RETRACTIONS_PER_MINUTE:
        return Flag("server", f"{name} 1.3", f"{often:.1f} retractions a minute; about 1 is all right")
    if (
        now.kv_usage is not None
        and now.waiting is not None
        and now.kv_usage < USUAL_KV_USAGE
        and now.waiting > 0
    ):
        return Flag(
            "server",
            f"{name} 0.3",
            f"requests wait ({now.waiting:.0f}) while {now.kv_usage:.0%} of the KV cache is used",
        )
    if often is not None and now.kv_usage is not None:
        return Flag(
            "server", f"{name} 1.0", "the default: the metrics show neither retractions nor idle memory"
        )
    return None


FAULTS = Faults(
    body=flat_body,
    event=lambda fault: {"error": flat_body(fault)},
    prompt_too_long="The input ({prompt} tokens) is longer than the model's context length ({context} tokens).",
    request_too_long="Requested token count exceeds the model's maximum context length of {context} tokens. You "
    "requested a total of {total} tokens: {prompt} tokens from the input messages and {limit} tokens for the "
    "completion. Please reduce the number of tokens in the input messages or the completion to fit within the "
    "limit.",
    busy="The request queue is full.",
)

DIALECT = Dialect(
    version="0.5.23",
    owner="sglang",
    faults=FAULTS,
    context=lambda settings: settings.context_length,
    headers_at="first token",
    headers=UVICORN_HEADERS,
    model_card=lambda model, context: {"root": model, "parent": None, "max_model_len": context},
    model="echoed",
    finish_alone=True,
    finish_last=True,
    continuous="alone",
    usage={"prompt_tokens_details": None, "reasoning_tokens": 0},
    choice={"logprobs": None, "matched_stop": None},
    text_choice={"logprobs": None, "matched_stop": None},
    chat_id="",
    text_id="",
    delta={"reasoning_content": None, "tool_calls": None},
    merges=True,
    text_limit=16,
    streamed_refusals=frozenset({503}),
)

FACTS = EngineFacts(
    key="sglang",
    title="SGLang",
    prefixes=("sglang:",),
    words=PreemptionWords("retraction", "retractions", "retracts", "retracted"),
    page=PAGE,
    dialect=DIALECT,
    advise_flags=_advise,
    series=EngineSeries(
        # 0.5.9 and later, with --enable-metrics.
        preemptions="sglang:num_retracted_requests_total",
        kind="late counter",
        usage="sglang:token_usage",
        waiting="sglang:num_queue_reqs",
        running="sglang:num_running_reqs",
        alert="SglangRetractions",
        found="[value] retractions in [window].",
        remedy="Each one freezes an answer while it is computed again. "
        "Raise --schedule-conservativeness to about 1.3, or lower --max-running-requests.",
        panel="SGLang retractions (absent until the first)",
        cap="--max-running-requests, or --schedule-conservativeness",
    ),
    log_lines=(
        PoolLogLine(
            re.compile(r"\bmax_total_num_tokens=(\d{1,100})"), lambda matched: whole_number(matched[1])
        ),
        PoolLogLine(
            re.compile(r"KV Cache is allocated\. #tokens: (\d{1,100})"),
            lambda matched: whole_number(matched[1]),
        ),
    ),
    metrics_missing={404: "SGLang shows them with --enable-metrics"},
    variants=(
        EngineVariant(
            "sglang",
            SglangSettings,
            "reserves a share; retracts the shortest answer, to the tail",
            ReservationRule(
                "SGLang",
                reserves_up_to(CLIP_MAX_NEW_TOKENS),
                f"counts up to {CLIP_MAX_NEW_TOKENS:,} of it when it admits a request: below that, a lower limit lets "
                "more run at once",
            ),
            EngineKnob("max_total_tokens", "max_running_requests", preempts=True),
        ),
    ),
)
