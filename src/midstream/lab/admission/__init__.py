"""Each engine's admission rule: pure decisions, driven by one interface and without a clock.

`engine(name, **flags)` builds one by the name of a variant in `midstream.engines`. What drives it submits requests,
asks for a step, lets it take its time, and asks for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from midstream.engines import VARIANTS, canonical_name, facts_of
from midstream.engines import llamacpp as llamacpp_facts
from midstream.engines import sglang as sglang_facts
from midstream.engines import tensorrt_llm as tensorrt_llm_facts
from midstream.engines import tgi as tgi_facts
from midstream.engines import vllm as vllm_facts
from midstream.engines.llamacpp import LlamaCppSettings
from midstream.engines.sglang import SglangSettings
from midstream.engines.tensorrt_llm import TensorRtLlmSettings
from midstream.engines.tgi import TgiSettings
from midstream.engines.vllm import VllmSettings
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
from midstream.lab.admission.sglang import Sglang
from midstream.lab.admission.tensorrt_llm import TensorRtLlm
from midstream.lab.admission.tgi import Tgi
from midstream.lab.admission.vllm import Vllm

__all__ = [
    "ENGINES",
    "AdmissionRefusal",
    "AdmissionRule",
    "Ended",
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
    "build",
    "engine",
    "engine_name",
    "registered_rule",
]

BuildRule: TypeAlias = Callable[..., AdmissionRule]
"""From an engine's settings, and the options of its variant, to its rule."""

ENGINES = VARIANTS
"""Every engine under each of its rules, by the name that command lines use."""

_RULES: dict[str, BuildRule] = {
    module.FACTS.key: rule
    for module, rule in (
        (vllm_facts, Vllm),
        (sglang_facts, Sglang),
        (tgi_facts, Tgi),
        (tensorrt_llm_facts, TensorRtLlm),
        (llamacpp_facts, LlamaCpp),
    )
}
engine_name = canonical_name


def build(name: str, settings: Any) -> AdmissionRule:
    """Build the rule of an engine's variant. Raises ValueError for an unknown name."""
    name = canonical_name(name)
    return _RULES[facts_of(name).key](settings, **VARIANTS[name].options)


def engine(name: str, **flags: Any) -> AdmissionRule:
    """Build an engine from its name and its own flags; raises ValueError for what it does not take."""
    name = canonical_name(name)
    variant = VARIANTS[name]
    for given in flags:
        if given not in variant.flags:
            known = ", ".join(flag.replace("_", "-") for flag in variant.flags)
            raise ValueError(f"{name} has no {given.replace('_', '-')}; it has {known}")
    return build(name, variant.settings(**flags))


@contextmanager
def registered_rule(key: str, rule: BuildRule) -> Iterator[None]:
    """Give an engine of `midstream.engines.registered` its rule for as long as the block lasts, as tests do."""
    _RULES[key] = rule
    try:
        yield
    finally:
        del _RULES[key]
