"""The flag, the value and the version of each engine: how a cap or a limit is said to it, and what to beware of.

The flags are those of the engines' own sources: vLLM 0.11 to 0.33, SGLang 0.4.6 to 0.5.23, TGI 2.4 to 3.3.7,
TensorRT-LLM 1.x, llama.cpp's server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from midstream.advice.situation import Flag, FlagAdvice, Situation, Version

OFTEN = 1.0
"""SGLang's own guide: about one retraction a minute is all right, more is not."""
_HALF_EMPTY = 0.9
"""SGLang's own guide: usage below this with a queue means that it holds back too much."""


def flags_for(engine: str, situation: Situation, version: Version | None = None) -> FlagAdvice:
    """Return what to set on an engine of FLAGS. Raises ValueError for another one."""
    advise = FLAGS.get(engine)
    if advise is None:
        raise ValueError(f"there is no engine {engine}; choose from {', '.join(FLAGS)}")
    flags, traps = advise(situation, version)
    return FlagAdvice(engine, tuple(flags), tuple(traps))


_Advised: TypeAlias = tuple[list[Flag], list[str]]


def _vllm(now: Situation, version: Version | None) -> _Advised:
    flags = []
    if now.cap is not None:
        if version is None or version >= (0, 31):
            flags.append(
                Flag(
                    "server",
                    f"--max-num-active-seqs {now.cap}",
                    "vLLM 0.31 and later: caps what runs, and nothing else",
                )
            )
        if version is None or version < (0, 31):
            flags.append(
                Flag(
                    "server",
                    f"--max-num-seqs {now.cap}",
                    "before 0.31: also sizes its buffers and CUDA graphs",
                )
            )
    traps = []
    if version is None or version >= (0, 31):
        traps.append(
            "--max-num-active-seqs must not exceed --max-num-seqs, and does not preempt what runs already"
        )
    if version is None or version >= (0, 24):
        traps.append(
            "do not use --watermark for this (0.24 and later): what was preempted must clear it, too, to come back; "
            "in a published simulation 0.2 took the median freeze from 58 s to 247 s"
        )
    if version is not None and version < (0, 23):
        traps.append(
            "before 0.23 only the first chunk of a prompt must fit to be admitted, so that long prompts come and go"
        )
    traps.append("a lower max_tokens changes nothing here but where answers are cut")
    return flags, traps


def _sglang(now: Situation, _version: Version | None) -> _Advised:
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
    often = now.evictions_per_minute
    if often is not None and often > OFTEN:
        return Flag("server", f"{name} 1.3", f"{often:.1f} retractions a minute; about 1 is all right")
    if (
        now.kv_usage is not None
        and now.waiting is not None
        and now.kv_usage < _HALF_EMPTY
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


def _tgi(now: Situation, version: Version | None) -> _Advised:
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
        flags.append(Flag("request", f"max_tokens={now.limit}", _tgi_limit(version)))
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


def _tgi_limit(version: Version | None) -> str:
    if version is not None and version < (3,):
        return "all of it is set aside"
    if version is not None and version < (3, 1, 1):
        return "all of it is set aside; up to 1,024 tokens for a request that sends none"
    return "up to 1,024 of it are set aside (all of it up to 2.4)"


def _trtllm(now: Situation, _version: Version | None) -> _Advised:
    flags = [
        Flag(
            "config",
            "scheduler_config.capacity_scheduler_policy: GUARANTEED_NO_EVICT",
            "nothing that runs is paused",
        ),
        Flag(
            "config",
            "kv_cache_config.use_kv_cache_manager_v2: false",
            "the V2 manager, automatic for Llama, GPT-OSS, Gemma 3 and 4 and others, makes it MAX_UTILIZATION again",
        ),
    ]
    if now.limit is not None:
        flags.append(
            Flag(
                "request",
                f"max_tokens={now.limit}",
                "all of it is set aside, and without it all of max_seq_len",
            )
        )
    if now.cap is not None:
        flags.append(
            Flag("config", f"max_batch_size: {now.cap}", "where MAX_UTILIZATION must stay: caps what runs")
        )
    return flags, [
        "the V2 manager overrides GUARANTEED_NO_EVICT with one line in the log: look for MAX_UTILIZATION there",
        "with GUARANTEED_NO_EVICT requests wait for their first token instead, and no metric counts them",
    ]


def _llamacpp(now: Situation, _version: Version | None) -> _Advised:
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
        "when the cache of all slots is full, llama.cpp freezes nobody: every answer fails with an error",
    ]


def _hosted(now: Situation, _version: Version | None) -> _Advised:
    flags = []
    if now.cap is not None:
        flags.append(
            Flag(
                "client",
                f"at most {now.cap} streams at once",
                "of all your processes together: divide it among them",
            )
        )
    if now.limit is not None:
        flags.append(Flag("request", f"max_tokens={now.limit}", "ends answers that would never end"))
    return flags, ["retries of your client count as well: the OpenAI client makes two by itself"]


FLAGS: Mapping[str, Callable[[Situation, Version | None], _Advised]] = MappingProxyType(
    {
        "vllm": _vllm,
        "sglang": _sglang,
        "tgi": _tgi,
        "tgi-2.4": lambda now, version: _tgi(now, version or (2, 4)),
        "trtllm": _trtllm,
        "trtllm-max-utilization": _trtllm,
        "llamacpp": _llamacpp,
        "hosted": _hosted,
    }
)
"""By the names of the lab's engines, and `hosted`."""
