"""Rules about answers that stop: while they do, and how often they did."""

from __future__ import annotations

from midstream.monitoring.alerts._duration import seconds
from midstream.monitoring.alerts._model import Alert
from midstream.monitoring.alerts._tuning import Tuning
from midstream.monitoring.alerts.query import Query, le
from midstream.telemetry.instruments import (
    ACTIVE,
    ENDED,
    FREEZES,
    FROZEN,
    HIDDEN_FREEZES,
    MAX_GAP,
    OPEN_GAP,
    STALL_TIMEOUTS,
)

STREAMS = "midstream-streams"


def freezes(q: Query, t: Tuning) -> tuple[Alert, ...]:
    """Rules about freezes. A gauge shows the present; a share judges the streams that ended."""
    le(MAX_GAP, t.gap_p99_s)  # a quantile at a bound is exact, and above the top bound it could never fire
    rising = f"sum by ({q.by}) (increase({q(FREEZES)}[{t.rising_window}]))"
    usual = f"sum by ({q.by}) (increase({q(FREEZES)}[{t.rising_window}] offset {t.baseline}))"
    since = round(seconds(t.baseline) + seconds(t.rising_window))
    known = f"count by ({q.by}) ({q(FREEZES)} offset {since}s)"
    frozen = f"sum by ({q.by}) ({q(FROZEN)})"
    return (
        Alert(
            "StreamFrozen",
            severity="warning",
            expr=f"{frozen} >= {t.frozen_streams}",
            for_="1m",
            keep_firing_for="2m",
            summary="An answer has stopped in the middle and has not gone on",
            description="Streams frozen now: [value]. [who]. Its reader sees half an answer. Check whether the "
            "server preempts requests or is stuck; lower its admission cap, or restart it if nothing moves.",
            dashboard=STREAMS,
        ),
        Alert(
            "StreamsMostlyFrozen",
            severity="critical",
            expr=f"{frozen} / (sum by ({q.by}) ({q(ACTIVE)}) > 0) >= {t.frozen_share:g}\n"
            f"and {frozen} >= {t.frozen_share_streams}",
            for_="1m",
            keep_firing_for="2m",
            summary="Most open answers are frozen at the same time",
            description="[percent] of the open streams are frozen. [who]. That is the server or the way to it, not one "
            "request. Check that it generates tokens at all; take it out of rotation if it does not.",
            dashboard=STREAMS,
        ),
        Alert(
            "StreamOpenGapLong",
            severity="warning",
            # A pause that its own phase's threshold allows is no freeze, however long it is.
            expr=f"max by ({q.by}) ({q(OPEN_GAP)}) >= {t.open_gap_s:g}\nand {frozen} > 0",
            for_="0s",
            keep_firing_for="2m",
            summary="One answer has had no output for very long",
            description="The longest gap in progress is [seconds]. [who]. It will end in a timeout, or in an answer "
            "that is no longer read. Find its trace, and set a read timeout that fits.",
            dashboard=STREAMS,
        ),
        Alert(
            "StreamMaxGapP99High",
            severity="warning",
            expr=q.with_traffic(
                f"{q.quantile(0.99, MAX_GAP, t.window, q.not_reasoning)} > {t.gap_p99_s:g}\n"
                f"and {q.count(MAX_GAP, t.window, q.not_reasoning)} >= {t.min_streams}",
                MAX_GAP,
                t.traffic_window,
            ),
            for_="5m",
            keep_firing_for="2m",
            summary="One in a hundred answers pauses for too long",
            description=f"The p99 of the longest gap is [seconds], more than {t.gap_p99_s:g} s. [who]. "
            f"Compare with the "
            "engine's preemptions: with them, lower the concurrency cap; without, look for long prefills.",
        ),
        Alert(
            "StreamFreezeShareHigh",
            severity="warning",
            expr=q.with_traffic(
                f"{q.over(MAX_GAP, t.freeze_s, t.window, q.not_reasoning)}\n> {t.freeze_share:g}\n"
                f"and {q.count(MAX_GAP, t.window, q.not_reasoning)} >= {t.min_streams}",
                MAX_GAP,
                t.traffic_window,
            ),
            for_="5m",
            keep_firing_for="2m",
            summary="Too many answers freeze",
            description=f"[percent] of the streams paused for more than {t.freeze_s:g} s. [who]. Lower the server's "
            "concurrency cap, or send it fewer requests; `midstream simulate` shows what a cap does.",
        ),
        Alert(
            "StreamFreezesRising",
            severity="warning",
            # Without series throughout yesterday's window there is no baseline: on the first day the rule is silent.
            expr=q.with_traffic(
                f"{rising} >= {t.freezes}\nand {known}\nunless {t.freezes_factor:g} * {usual} >= {rising}\n"
                f"unless {q.count(FREEZES, t.window)} == 0",
                ENDED,
                t.traffic_window,
                present=FREEZES,
            ),
            for_="5m",
            keep_firing_for="2m",
            summary="Freezes are far more frequent than usual",
            description=f"[value] freezes in {t.rising_window}, more than {t.freezes_factor:g} times as many as "
            f"{t.baseline} before. [who]. Ask what changed: load, model, limit, or the server's flags.",
        ),
        Alert(
            "StreamStallTimeouts",
            severity="warning",
            expr=q.with_traffic(
                f"{q.count(STALL_TIMEOUTS, t.window)} >= {t.stall_timeouts}",
                ENDED,
                t.traffic_window,
                present=STALL_TIMEOUTS,
            ),
            for_="0s",
            keep_firing_for="2m",
            summary="Answers are ended because their server has stopped sending",
            description=f"[value] answers were ended by their stall timeout in {t.window}. [who]. Their readers got an "
            "error or a second try. Look at the server, and ask `midstream advise timeout` whether the timeout is too "
            "short.",
            dashboard=STREAMS,
        ),
        Alert(
            "StreamHiddenFreezes",
            severity="info",
            expr=q.with_traffic(
                f"{q.count(HIDDEN_FREEZES, t.window)} >= {t.hidden_freezes}",
                ENDED,
                t.traffic_window,
                present=HIDDEN_FREEZES,
            ),
            for_="0s",
            keep_firing_for="2m",
            summary="The server stops sending while its clients are too busy to notice",
            description=f"[value] gaps in {t.window} were hidden behind busy callers. [who]. Users wait for the "
            "client here: move its work off the loop that reads the stream. Then look at the server.",
            dashboard=STREAMS,
        ),
    )
