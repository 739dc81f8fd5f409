"""The objective, and how fast its budget burns: a long and a short window must agree."""

from __future__ import annotations

from typing import NamedTuple

from midstream.monitoring.alerts._model import Alert, Record
from midstream.monitoring.alerts._tuning import Tuning
from midstream.monitoring.alerts.query import Query
from midstream.telemetry.instruments import MAX_GAP


class Pace(NamedTuple):
    """Burning so many times as fast as the budget of 30 days allows, over both windows."""

    severity: str
    long: str
    short: str
    factor: float
    for_: str
    traffic: str
    """Silent when no stream ended for this long and none is open: nothing burns then."""


PACES = (
    # The Google SRE workbook's table, as kubernetes-mixin and Sloth ship it: 2 %, 5 %, 10 % and 10 % of a
    # month's budget are gone when they fire.
    Pace("critical", "1h", "5m", 14.4, "2m", "5m"),
    Pace("critical", "6h", "30m", 6.0, "15m", "5m"),
    Pace("warning", "1d", "2h", 3.0, "1h", "15m"),
    Pace("warning", "3d", "6h", 1.0, "3h", "15m"),
)

WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")


def _ratio(q: Query, t: Tuning, window: str) -> str:
    return f"{q.level}:stream_max_gap_seconds_over_{t.freeze_s:g}s:ratio_rate{window}".replace(".", "_")


def _total(q: Query, window: str) -> str:
    return f"{q.level}:stream_max_gap_seconds_count:increase{window}"


def burn_records(q: Query, t: Tuning) -> tuple[Record, ...]:
    """The share of streams past the objective's gap, over every window that a rule needs."""
    return (
        *(
            Record(_ratio(q, t, window), q.over(MAX_GAP, t.freeze_s, window, q.not_reasoning))
            for window in WINDOWS
        ),
        *(Record(_total(q, pace.long), q.count(MAX_GAP, pace.long, q.not_reasoning)) for pace in PACES),
    )


def burn_alerts(q: Query, t: Tuning) -> tuple[Alert, ...]:
    """One alert for each pace: the fast ones page, the slow ones can wait."""
    # Rounded, as 1 - 99.5 / 100 is a hair more than 0.005.
    budget = round(1 - t.objective / 100, 10)
    return tuple(
        Alert(
            "StreamFreezeBudgetBurn",
            severity=pace.severity,
            expr=q.with_traffic(
                f"{_ratio(q, t, pace.long)} > {round(pace.factor * budget, 10):g}\n"
                f"and {_ratio(q, t, pace.short)} > {round(pace.factor * budget, 10):g}\n"
                f"and {_total(q, pace.long)} >= {t.min_streams}",
                MAX_GAP,
                pace.traffic,
            ),
            for_=pace.for_,
            summary="The budget for frozen answers burns too fast",
            description=f"[percent] of the streams of {pace.long} froze; the objective of {t.objective:g} % without a "
            f"freeze allows {budget * 100:g} %. [who]. At this pace 30 days' budget lasts "
            f"{30 / pace.factor:.3g} days. Lower the concurrency cap, or move load away.",
            labels={"long": pace.long, "short": pace.short},
        )
        for pace in PACES
    )
