"""Gives each engine the meter that counts as that engine does."""

from __future__ import annotations

from typing import Any, cast

from midstream.lab.admission import AdmissionRule, Sglang
from midstream.lab.emulation.meter import Meter
from midstream.lab.emulation.meter_sglang import SglangMeter
from midstream.lab.emulation.meter_text import LlamaCppMeter, TgiMeter
from midstream.lab.emulation.meter_trtllm import TensorRtLlmMeter
from midstream.lab.emulation.meter_vllm import VllmMeter


def meter_of(name: str, model: str, flags: Any, engine: AdmissionRule) -> Meter:
    """Return the meter of the engine that goes by that name."""
    if name == "vllm":
        return VllmMeter(model, flags)
    if name == "sglang":
        return SglangMeter(model, flags, cast("Sglang", engine))
    if name == "tgi":
        return TgiMeter()
    if name == "tgi-2.4":
        return TgiMeter(pass_tokens=None)
    if name == "llamacpp":
        return LlamaCppMeter()
    return TensorRtLlmMeter(model, flags)
