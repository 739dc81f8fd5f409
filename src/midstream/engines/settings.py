"""How an engine's flags that bear on admission are declared, and checked.

The pools of all engines default to what they report for Qwen3-8B in BF16 on one NVIDIA L4.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any


def flag(default: Any, help: str) -> Any:  # noqa: A002 - it is what command lines call it
    """Declare a setting that goes by its name as a flag of the engine, with its explanation."""
    return field(default=default, metadata={"help": help})


def at_least(minimum: float, **settings: float | None) -> None:
    """Raise ValueError for the first setting below `minimum`; those left out pass."""
    for name, value in settings.items():
        if value is not None and value < minimum:
            raise ValueError(f"{name.replace('_', '-')} must be at least {minimum:g}, got {value:g}")
