"""Predicts what clients would have seen of a recorded load, had the server been told something else."""

from __future__ import annotations

from typing import Any

from midstream.lab.admission import Request, engine
from midstream.lab.hardware import HardwareProfile
from midstream.lab.observed import ObservedLoad
from midstream.lab.results import RunResult
from midstream.lab.simulator import simulate
from midstream.lab.workload import Workload, WorkloadCall


def workload_of(load: ObservedLoad) -> Workload:
    """Return the calls of a recorded load: when they were made, and how long prompts and answers were.

    An answer that ended at its limit is taken to have none of its own end, as with `ignore_eos`.
    """
    calls = []
    for stream in load.streams:
        endless = stream.finish == "length"
        request = Request(
            id=stream.id,
            prompt_tokens=stream.prompt_tokens,
            answer_tokens=None if endless else stream.answer_tokens,
            max_tokens=stream.answer_tokens if endless else None,
        )
        calls.append(WorkloadCall(request, stream.start_s))
    return Workload(tuple(calls))


def predict(
    load: ObservedLoad,
    hardware: HardwareProfile,
    *,
    engine_name: str = "vllm",
    freeze_after_s: float = 2.0,
    **flags: Any,
) -> RunResult:
    """Play the calls of a recorded load against an engine with these flags, and keep every token's time.

    Of the recording only the calls are used, never when something arrived. Raises ValueError for flags that
    the engine does not take.
    """
    return simulate(
        engine(engine_name, **flags),
        workload_of(load),
        hardware,
        freeze_after_s=freeze_after_s,
        keep_times=True,
    )
