"""Durations as Prometheus writes them: `90s`, `5m`, `1h30m`."""

from __future__ import annotations

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")
_PART = re.compile(r"(\d+)(ms|[smhdwy])")


def seconds(duration: str) -> float:
    """Return how long it is. Raises ValueError for what Prometheus would not accept."""
    if not _DURATION.fullmatch(duration):
        raise ValueError(f"{duration!r} is not a duration; write it as 90s, 5m or 1h30m")
    return sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(duration))
