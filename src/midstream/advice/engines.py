"""Which flag of an engine holds a cap or a limit, and what to beware of: by the names of the engines' variants."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from midstream.engines import VARIANTS, EngineVariant, facts_of
from midstream.engines.flags import Advice, AdviseFlags, Flag, FlagAdvice, Situation, Version


def flags_for(engine: str, situation: Situation, version: Version | None = None) -> FlagAdvice:
    """Return what to set on an engine of FLAGS. Raises ValueError for another one."""
    advise = FLAGS.get(engine)
    if advise is None:
        raise ValueError(f"there is no engine {engine}; choose from {', '.join(FLAGS)}")
    flags, traps = advise(situation, version)
    return FlagAdvice(engine, tuple(flags), tuple(traps))


def _hosted(now: Situation, _version: Version | None) -> Advice:
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


def _of_variant(variant: EngineVariant) -> AdviseFlags:
    advise = facts_of(variant.name).advise_flags
    return lambda situation, version: advise(situation, version or variant.version)


FLAGS: Mapping[str, AdviseFlags] = MappingProxyType(
    {**{name: _of_variant(variant) for name, variant in VARIANTS.items()}, "hosted": _hosted}
)
"""By the names of the engines' variants, and `hosted`."""
