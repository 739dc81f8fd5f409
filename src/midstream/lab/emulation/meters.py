"""Gives each engine the meter that counts as that engine does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from midstream.engines import VARIANTS, facts_of, llamacpp, sglang, tensorrt_llm, tgi, vllm
from midstream.lab.admission import AdmissionRule, Sglang
from midstream.lab.emulation.meter import Meter
from midstream.lab.emulation.meter_sglang import SglangMeter
from midstream.lab.emulation.meter_text import LlamaCppMeter, TgiMeter
from midstream.lab.emulation.meter_trtllm import TensorRtLlmMeter
from midstream.lab.emulation.meter_vllm import VllmMeter

BuildMeter: TypeAlias = Callable[[str, Any, AdmissionRule, Mapping[str, Any]], Meter]
"""From a model's name, the engine's settings, its rule, and the options of its variant."""

_METERS: Mapping[str, BuildMeter] = {
    vllm.FACTS.key: lambda model, flags, _rule, _options: VllmMeter(model, flags),
    sglang.FACTS.key: lambda model, flags, rule, _options: SglangMeter(model, flags, cast("Sglang", rule)),
    tgi.FACTS.key: lambda _model, _flags, _rule, options: TgiMeter(**options),
    tensorrt_llm.FACTS.key: lambda model, flags, _rule, _options: TensorRtLlmMeter(model, flags),
    llamacpp.FACTS.key: lambda _model, _flags, _rule, _options: LlamaCppMeter(),
}


def meter_of(name: str, model: str, flags: Any, rule: AdmissionRule) -> Meter:
    """Return the meter of an engine's variant; an engine that has none here has no page of metrics."""
    build = _METERS.get(facts_of(name).key)
    return Meter() if build is None else build(model, flags, rule, VARIANTS[name].options)
