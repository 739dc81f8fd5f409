"""How numbers and times are written, everywhere: one format for each, and a dash for what is not known."""

from __future__ import annotations

from datetime import datetime, tzinfo

from midstream._support.statistics import Share

ABSENT = "-"
FEW = 30
"""Of fewer than this no percentage is given: it would claim more than they show."""


def percent(share: float | None) -> str:
    """Write a share with two digits, and whole percent from 10 % on: 0.12 %, 5 %, 5.2 %, 43 %, 99.8 %."""
    return ABSENT if share is None else f"{per_cent(share)} %"


def per_cent(share: float) -> str:
    """Write the number of `percent` without its sign, for a range such as 17 to 38 %."""
    value = 100 * share
    if 0 < abs(value) < 0.001:
        return "below 0.001" if value > 0 else "above -0.001"
    if 99 < abs(value) < 100:
        return f"{min(max(value, -99.9), 99.9):.1f}"
    return f"{value:.0f}" if value == 0 or abs(value) >= 9.95 else f"{value:.2g}"


def points(difference: float) -> str:
    """Write the difference of two shares: +5.2, -43."""
    written = per_cent(difference)
    return written if difference <= 0 else f"+{written}"


def seconds(value: float | None) -> str:
    """Write a duration: 0 s, 0.05 s, 12.3 s, 43 min, 2.2 h."""
    if value is None:
        return ABSENT
    if value < 10:
        return f"{value:.2f} s" if value else "0 s"
    if value < 600:
        return f"{value:.1f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"


def number(value: float | None, digits: int = 0) -> str:
    """Write a count or a rate with so many decimals: 12,345."""
    return ABSENT if value is None else f"{value:,.{digits}f}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Write a number of things: 1 stream, 1,200 streams."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def rounded_up(count: float) -> int:
    """Round an estimated number up to two digits: more would claim to be exact."""
    unit = 10 ** max(0, len(str(int(count))) - 2)
    return int(-(-count // unit) * unit)


def byte_size(amount: float) -> str:
    """Write an amount of memory: 12 GiB, 144 KiB, 15,360 bytes."""
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if amount >= 10 * size or (amount >= size and amount % size == 0):
            return f"{amount / size:,.4g} {unit}"
    return f"{amount:,.0f} bytes"


def counted(share: Share) -> str:
    """Write what was counted, and of how many: 3 of 20."""
    return f"{share.count:,} of {share.total:,}" if share.total else ABSENT


def interval(share: Share) -> str:
    """Write the interval of a share, after the share itself if there are enough to speak of one."""
    return bounds(share) if share.total < FEW else f"{percent(share.value)} ({bounds(share)})"


def bounds(share: Share) -> str:
    """Write the interval of a share alone: 17 to 38 %."""
    if share.low is None or share.high is None:
        return ABSENT
    return f"{per_cent(share.low)} to {percent(share.high)}"


def few_or_percent(share: Share) -> str:
    """Write a share: counted if of few, in percent if of many."""
    return counted(share) if share.total < FEW else percent(share.value)


def moment(at: float, zone: tzinfo | None = None) -> str:
    """Write a Unix time, to the second, in this time zone or the machine's."""
    return datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M:%S")


def zone_name(at: float, zone: tzinfo | None = None) -> str:
    """Name the zone of the times as an offset, such as UTC+01:00."""
    offset = datetime.fromtimestamp(at, zone).astimezone(zone).strftime("%z")
    return "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:5]}"
