"""How numbers are written in a report: what does not exist is a dash, and few are counted, not turned into percent."""

from __future__ import annotations

from midstream.advice.statistics import Share

ABSENT = "-"
FEW = 30
"""Below so many, a percentage would claim more than they can tell."""


def seconds(value: float | None) -> str:
    """Write a duration with as many digits as it deserves."""
    if value is None:
        return ABSENT
    if value < 10:
        return f"{value:.2f} s" if value else "0 s"
    if value < 600:
        return f"{value:.1f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"


def percent(value: float | None) -> str:
    """Write a share that is known."""
    if value is None:
        return ABSENT
    if 0 < value < 0.001:
        return "below 0.1 %"
    return f"{100 * value:.1f} %" if value < 0.1 else f"{100 * value:.0f} %"


def counted(share: Share) -> str:
    """Write what was counted, and of how many."""
    return f"{share.count:,} of {share.total:,}" if share.total else ABSENT


def interval(share: Share) -> str:
    """Write the interval of a share, after the share itself if there are enough to speak of one."""
    return bounds(share) if share.total < FEW else f"{percent(share.value)} ({bounds(share)})"


def bounds(share: Share) -> str:
    """Write the interval of a share alone."""
    if share.low is None or share.high is None:
        return ABSENT
    return f"{_bound(share.low)} to {_bound(share.high)} %"


def few_or_percent(share: Share) -> str:
    """Write a share: counted if of few, in percent if of many."""
    return counted(share) if share.total < FEW else percent(share.value)


def plural(count: int, one: str, many: str | None = None) -> str:
    """Write a number of things."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _bound(value: float) -> str:
    return f"{100 * value:.1f}" if 0 < value < 0.1 else f"{100 * value:.0f}"
