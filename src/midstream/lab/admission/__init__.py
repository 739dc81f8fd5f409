"""Each engine's admission rule: pure decisions, driven by one interface and without a clock.

`ENGINES` names them all; `engine(name, **flags)` builds one. What drives an engine submits requests, asks for
a step, lets it take its time, and asks for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from midstream.lab.admission._types import (
    AdmissionRefusal,
    AdmissionRule,
    Ended,
    EngineLoad,
    PrefillChunk,
    Reason,
    Request,
    Step,
)
from midstream.lab.admission.llamacpp import LlamaCpp
from midstream.lab.admission.settings import (
    LlamaCppSettings,
    SglangSettings,
    TensorRtLlmSettings,
    TgiSettings,
    VllmSettings,
)
from midstream.lab.admission.sglang import Sglang
from midstream.lab.admission.tensorrt_llm import TensorRtLlm
from midstream.lab.admission.tgi import Tgi
from midstream.lab.admission.vllm import Vllm

__all__ = [
    "ALIASES",
    "ENGINES",
    "AdmissionRefusal",
    "AdmissionRule",
    "Ended",
    "EngineKind",
    "EngineLoad",
    "LlamaCpp",
    "LlamaCppSettings",
    "PrefillChunk",
    "Reason",
    "Request",
    "Sglang",
    "SglangSettings",
    "Step",
    "TensorRtLlm",
    "TensorRtLlmSettings",
    "Tgi",
    "TgiSettings",
    "Vllm",
    "VllmSettings",
    "engine",
    "engine_name",
]


@dataclass(frozen=True, slots=True)
class EngineKind:
    """An engine by name: what it can be told, how it is built, and its rule in a line."""

    settings: type[Any]
    build: Callable[[Any], AdmissionRule]
    rule: str

    @property
    def flags(self) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(setting.name for setting in fields(self.settings))


ENGINES: Mapping[str, EngineKind] = MappingProxyType(
    {
        "vllm": EngineKind(
            VllmSettings, Vllm, "reserves nothing; evicts the last one admitted, to the front"
        ),
        "sglang": EngineKind(
            SglangSettings, Sglang, "reserves a share; evicts the shortest answer, to the tail"
        ),
        "tgi": EngineKind(
            TgiSettings, Tgi, "reserves 1,024 tokens a pass, then queues again at the tail (3.1.1 on)"
        ),
        "tgi-2.4": EngineKind(
            TgiSettings,
            lambda settings: Tgi(settings, pass_tokens=None),
            "reserves all of max_tokens (up to 2.4)",
        ),
        "trtllm": EngineKind(
            TensorRtLlmSettings, TensorRtLlm, "reserves all of max_tokens (GUARANTEED_NO_EVICT)"
        ),
        "trtllm-max-utilization": EngineKind(
            TensorRtLlmSettings,
            lambda settings: TensorRtLlm(settings, max_utilization=True),
            "reserves nothing; pauses the last one started, which keeps its place (MAX_UTILIZATION)",
        ),
        "llamacpp": EngineKind(LlamaCppSettings, LlamaCpp, "reserves nothing; all fail when memory runs out"),
    }
)
"""Every engine, by the name that command lines use."""


ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "tensorrt-llm": "trtllm",
        "tensorrt-llm-max-utilization": "trtllm-max-utilization",
        "llama.cpp": "llamacpp",
    }
)
"""Other names that people have for them."""


def engine_name(name: str) -> str:
    """Return the name that `ENGINES` has for an engine; raises ValueError if there is none."""
    known = ALIASES.get(name, name)
    if known not in ENGINES:
        raise ValueError(f"there is no engine {name}; choose from {', '.join(ENGINES)}")
    return known


def engine(name: str, **flags: Any) -> AdmissionRule:
    """Build an engine from its name and its own flags; raises ValueError for what it does not take."""
    name = engine_name(name)
    kind = ENGINES[name]
    for given in flags:
        if given not in kind.flags:
            known = ", ".join(flag.replace("_", "-") for flag in kind.flags)
            raise ValueError(f"{name} has no {given.replace('_', '-')}; it has {known}")
    return kind.build(kind.settings(**flags))
