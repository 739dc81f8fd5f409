"""What is known when flags are chosen, and what choosing them gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Version: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known when flags are chosen; None is unknown. `kv_usage` is 0 to 1; a limit and lengths are tokens."""

    cap: int | None = None
    limit: int | None = None
    longest_prompt: int | None = None
    pool_tokens: int | None = None
    kv_usage: float | None = None
    waiting: float | None = None
    preemptions_per_minute: float | None = None


@dataclass(frozen=True, slots=True)
class Flag:
    """One thing to set: where (the server's command line, its configuration, the client), what, and why."""

    where: Literal["server", "config", "client", "request"]
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class FlagAdvice:
    """What to set, and what to beware of."""

    engine: str
    flags: tuple[Flag, ...]
    traps: tuple[str, ...]


def version_of(text: str) -> Version:
    """Read a version such as 0.31.0 or v3.1.1rc2. ValueError if it does not begin with numbers and dots."""
    matched = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    if matched is None:
        raise ValueError(f"{text!r} is no version; write it as in 0.31.0")
    return tuple(int(part) for part in matched[1].split("."))


Advice: TypeAlias = "tuple[list[Flag], list[str]]"
"""Flags, and what to beware of."""
AdviseFlags: TypeAlias = Callable[[Situation, "Version | None"], Advice]
"""From what is known, and the version if that is known, to advice."""
