"""TensorRT-LLM's `/metrics` in JSON: a list of iterations, which whoever reads it takes away from all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from midstream._support.foreign import ForeignError, json_of, number
from midstream.sources._engines import TRTLLM
from midstream.sources._server_view import ServerView
from midstream.sources.page import Page, Reading

Iteration: TypeAlias = Mapping[str, Any]

CONSUMED = (
    "reading TensorRT-LLM's /metrics takes what was read away from every other reader; "
    "its /prometheus/metrics does not, if return_perf_metrics is set"
)
IDLE = "no iteration since the last reading: the server is idle, or another reader took them"


def iterations_of(text: str) -> Sequence[Iteration] | None:
    """Return the iterations, oldest first; None if this is something else."""
    try:
        found = json_of(text)
    except ForeignError:
        return None
    if not isinstance(found, list) or not all(isinstance(each, dict) and "iter" in each for each in found):
        return None
    return found


def view_of_iterations(iterations: Sequence[Iteration]) -> ServerView:
    """Return what the newest iteration says, and the most requests that were paused in any of them."""
    last = iterations[-1] if iterations else None
    paused = [_read(each, "inflightBatchingStats", "numPausedRequests") for each in iterations]
    return ServerView(
        engine=TRTLLM.key,
        title=TRTLLM.title,
        models=(),
        running=_read(last, "numActiveRequests"),
        waiting=_read(last, "numQueuedRequests"),
        kv_usage=_ratio(_read(last, *_CACHE, "usedNumBlocks"), _read(last, *_CACHE, "maxNumBlocks")),
        evictions=TRTLLM.evictions(Page()),
        evicted_now=max(paused, key=lambda reading: -1 if reading.value is None else reading.value)
        if paused
        else Reading(None, IDLE),
        generated=TRTLLM.generated(Page()),
        pool_tokens=_product(_read(last, *_CACHE, "maxNumBlocks"), _read(last, *_CACHE, "tokensPerBlock")),
        started_at=None,
        notes=(CONSUMED,),
    )


_CACHE = ("kvCacheStats",)


def _read(iteration: Iteration | None, *path: str) -> Reading:
    if iteration is None:
        return Reading(None, IDLE)
    found: Any = iteration
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    value = None if isinstance(found, str) else number(found, least=0.0)
    return Reading(None, f"its iterations hold no {'.'.join(path)}") if value is None else Reading(value)


def _ratio(part: Reading, whole: Reading) -> Reading:
    if part.value is None or whole.value is None:
        return part if part.value is None else whole
    return Reading(part.value / whole.value) if whole.value else Reading(None, "its KV cache has no blocks")


def _product(one: Reading, other: Reading) -> Reading:
    if one.value is None or other.value is None:
        return one if one.value is None else other
    return Reading(one.value * other.value)
