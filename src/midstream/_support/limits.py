"""Checks of arguments that several packages take."""

from __future__ import annotations

import math


def positive_or_none(name: str, value: object) -> float | None:
    """Check a limit. Raises TypeError or ValueError naming it, its value and the remedy."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number or None, got {value!r}")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, got {value!r}; use None for no limit")
    return float(value)
