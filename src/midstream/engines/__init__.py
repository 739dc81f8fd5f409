"""What midstream takes for granted about inference engines: one module for each, and the only place that holds it.

A module such as `vllm` states the names of its metrics, its flags by version, what it reserves for a request, the
lines of its log, its settings and its dialect of OpenAI's protocol. Alerts, dashboards, sources, advice, the simulator
and the emulator read them from `ENGINES` and `VARIANTS`. Beside its module an engine has one admission rule, in
`midstream.lab.admission`. Others may use the names below, `midstream.engines.page` for pages of metrics,
`midstream.engines.flags` for advice on flags, and `dialect`, `faults` and `settings` for the lab.
"""

from midstream.engines.facts import EngineFacts, EngineReadings, EngineSeries, EngineVariant, ReservationRule
from midstream.engines.registry import ENGINES, VARIANTS, canonical_name, facts_of, registered, titles

__all__ = [
    "ENGINES",
    "VARIANTS",
    "EngineFacts",
    "EngineReadings",
    "EngineSeries",
    "EngineVariant",
    "ReservationRule",
    "canonical_name",
    "facts_of",
    "registered",
    "titles",
]
