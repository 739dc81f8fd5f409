"""Every engine, by its key and by the names of its variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from midstream.engines import llamacpp, sglang, tensorrt_llm, tgi, vllm
from midstream.engines.facts import EngineFacts, EngineVariant

_engines: dict[str, EngineFacts] = {
    module.FACTS.key: module.FACTS for module in (vllm, sglang, tgi, tensorrt_llm, llamacpp)
}
_variants: dict[str, EngineVariant] = {
    variant.name: variant for facts in _engines.values() for variant in facts.variants
}

ENGINES: Mapping[str, EngineFacts] = MappingProxyType(_engines)
"""Every engine, by its key."""
VARIANTS: Mapping[str, EngineVariant] = MappingProxyType(_variants)
"""Every engine under each of its rules, by the name that command lines use."""


def facts_of(name: str) -> EngineFacts:
    """Return the engine of a variant's name. Raises ValueError for an unknown name."""
    known = canonical_name(name)
    return next(facts for facts in _engines.values() if any(each.name == known for each in facts.variants))


def canonical_name(name: str) -> str:
    """Return the name that VARIANTS has for an engine, also for an alias. Raises ValueError if there is none."""
    for variant in _variants.values():
        if name == variant.name or name in variant.aliases:
            return variant.name
    raise ValueError(f"there is no engine {name}; choose from {', '.join(_variants)}")


def titles() -> str:
    """Return the engines' titles as a list in words, such as `vLLM, SGLang or TGI`."""
    *most, last = [facts.title for facts in _engines.values()]
    return f"{', '.join(most)} or {last}" if most else last


@contextmanager
def registered(facts: EngineFacts) -> Iterator[None]:
    """Add an engine for as long as the block lasts, as tests do."""
    _engines[facts.key] = facts
    _variants.update({variant.name: variant for variant in facts.variants})
    try:
        yield
    finally:
        del _engines[facts.key]
        for variant in facts.variants:
            del _variants[variant.name]
