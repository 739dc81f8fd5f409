"""SciPy, imported where it is needed and only then: the rest of `midstream.advice` works without it."""

from __future__ import annotations

from typing import Any


def scipy_stats() -> Any:
    """Return `scipy.stats`. Raises ModuleNotFoundError with the extra that brings it."""
    try:
        from scipy import stats  # noqa: PLC0415 - a part of an extra, and heavy
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "limits from measurements need SciPy: pip install 'midstream[lab]'", name=missing.name
        ) from None
    return stats
