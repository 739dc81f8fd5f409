"""The first dashboard to open, and the one with a line for each model and server."""
# ruff: noqa: E501 - tables of panels

from __future__ import annotations

from midstream.monitoring.alerts import Naming
from midstream.monitoring.alerts.query import quoted
from midstream.monitoring.dashboards._model import Dashboard, Panel, Row, Target
from midstream.monitoring.dashboards._queries import Panels
from midstream.telemetry.instruments import (
    ACTIVE,
    ENDED,
    FINISH_REASON,
    FIRST_CONTENT,
    FREEZES,
    FROZEN,
    FROZEN_TIME,
    HIDDEN_FREEZES,
    LIMIT_HITS,
    MAX_GAP,
    MAX_HOLD,
    OPEN_GAP,
    OPERATION_DURATION,
    OUTCOME,
    PHASE,
    STALL_TIMEOUTS,
    TAIL,
    TOKEN_TYPE,
    TOKEN_USAGE,
)

FREEZE_S = 5.0
"""midstream's own threshold, and the objective's."""
WORRYING = ((0.01, "yellow"), (0.05, "red"))
"""A share of streams: the objective's order of magnitude, and that of the alerts."""


def overview(naming: Naming) -> Dashboard:
    """Is anything frozen now, how often does it happen, and how do answers end: the first dashboard."""
    p = Panels(naming)
    q = p.q
    completed = q.match(OUTCOME, "completed")
    length = f"{completed}, {q.match(FINISH_REASON, 'length')}"
    phase = quoted(naming.label(PHASE))
    return Dashboard(
        "midstream-overview",
        "midstream: overview",
        "Streams of LLM answers as their clients see them: frozen now, gaps, first content, limits and outcomes.",
        p.variables(),
        (
            Row("Now", (
                Panel("Frozen now", "stream_frozen: answers that have stopped in the middle at this moment.", "none",
                      (Target(f"sum({q(FROZEN)})", "frozen"),), "stat", 4, 4, ((1, "red"),)),
                Panel("Open streams", "stream_active: answers that are being read now.", "none",
                      (Target(f"sum({q(ACTIVE)})", "open"),), "stat", 4, 4),
                Panel("Longest gap now", "stream_open_gap_seconds: the longest gap that is open now.",
                      "s", (Target(f"max({q(OPEN_GAP)})", "silent"),), "stat", 4, 4, ((5, "yellow"), (60, "red"))),
                Panel(f"Gap past {FREEZE_S:g} s", f"Share of streams with a gap past {FREEZE_S:g} s, of "
                      "stream_max_gap_seconds, but for pauses in reasoning. Another freeze_after_s changes Freezes and Frozen now, and "
                      "not this.",
                      "percentunit", (Target(p.over(MAX_GAP, FREEZE_S, matchers=q.not_reasoning), "frozen"),), "stat", 4, 4, WORRYING),
                Panel("Cut off by their limit", "Share of finished answers with finish_reason length.", "percentunit",
                      (Target(p.ratio(p.rate(ENDED, length), p.rate(ENDED, completed)), "length"),), "stat", 4, 4,
                      WORRYING),
                Panel("Streams per second", "stream_ended_total: answers that ended.", "reqps",
                      (Target(p.rate(ENDED), "streams"),), "stat", 4, 4),
            )),
            Row("Freezes", (
                Panel("Longest gap of a stream", "Each stream's longest gap, by bucket. Two bands mean "
                      "preemptions, a smear means a slow server.", "s",
                      (Target(p.rate(MAX_GAP, part="_bucket", by="le"), "{{le}}", exemplars=True),), "heatmap", 12),
                Panel("Gap: p50, p95, p99", "Quantiles of stream_max_gap_seconds. The p99 alerts past 10 s.", "s",
                      tuple(Target(p.quantile(share, MAX_GAP), f"p{share * 100:g}", exemplars=share == 0.99)
                            for share in (0.5, 0.95, 0.99)), width=12),
                Panel("Streams open and frozen", "stream_active and stream_frozen over time.", "none",
                      (Target(f"sum({q(ACTIVE)})", "open"), Target(f"sum({q(FROZEN)})", "frozen"))),
                Panel("Freezes per minute", "stream_freezes_total, by phase, counted when the threshold is crossed; those "
                      "that busy callers did not notice; and streams that a stall timeout ended.", "none",
                      (Target(f"60 * {p.rate(FREEZES, by=phase)}", f"{{{{{naming.label(PHASE)}}}}}"),
                       Target(f"60 * {p.rate(HIDDEN_FREEZES)}", "hidden"),
                       Target(f"60 * {p.rate(STALL_TIMEOUTS)}", "stall timeouts"))),
                Panel(f"Streams with a gap past {FREEZE_S:g} s", "What the objective counts, of stream_max_gap_seconds: pauses in reasoning are left out. "
                      "Another freeze_after_s changes Freezes per minute, and not this.", "percentunit", (Target(p.over(MAX_GAP, FREEZE_S, matchers=q.not_reasoning), "frozen"),), steps=WORRYING),
            )),
            Row("Answers", (
                Panel("Time to first content", "Queue, memory and prefill: engines that reserve memory make requests wait "
                      "here.", "s", tuple(Target(p.quantile(share, FIRST_CONTENT), f"p{share * 100:g}")
                                          for share in (0.5, 0.95, 0.99))),
                Panel("Output tokens per second", "What all streams together received, as reported at their end.", "none",
                      (Target(p.rate(TOKEN_USAGE, q.match(TOKEN_TYPE, "output"), part="_sum"), "tokens/s"),)),
                Panel("Outcomes", "How streams end. no_finish is a clean end without a finish reason.", "reqps",
                      (Target(p.rate(ENDED, by="outcome"), "{{outcome}}"),), stacked=True),
                Panel("Length and limit hits", "Share of finished answers that the limit cut off: by finish reason, and by "
                      "token counts.", "percentunit",
                      (Target(p.ratio(p.rate(ENDED, length), p.rate(ENDED, completed)), "length"),
                       Target(p.ratio(p.rate(LIMIT_HITS), p.rate(ENDED, completed)), "limit reached"))),
                Panel("Waiting after the finish reason", "p95 of stream_tail_seconds: [DONE] or a lingering connection.",
                      "s", (Target(p.quantile(0.95, TAIL), "p95"),)),
                Panel("Callers' own pauses", "p95 of stream_max_hold_seconds: how long callers keep a chunk.", "s",
                      (Target(p.quantile(0.95, MAX_HOLD), "p95"),)),
            )),
        ),
    )  # fmt: skip


def streams(naming: Naming) -> Dashboard:
    """Which model and which server it is."""
    p = Panels(naming)
    q = p.q
    by = f"{p.model}, {p.server}"
    who = f"{{{{{naming.label('gen_ai.request.model')}}}}} at {{{{{naming.label('server.address')}}}}}"
    return Dashboard(
        "midstream-streams",
        "midstream: models and servers",
        "The same figures, one line for each model and server.",
        p.variables(),
        (
            Row("Freezes", (
                Panel("Frozen now", "stream_frozen by model and server.", "none",
                      (Target(f"sum by ({by}) ({q(FROZEN)})", who),)),
                Panel("Open streams", "stream_active by model and server.", "none",
                      (Target(f"sum by ({by}) ({q(ACTIVE)})", who),)),
                Panel("Longest gap now", "stream_open_gap_seconds: the longest by model and server.", "s",
                      (Target(f"max by ({by}) ({q(OPEN_GAP)})", who),)),
                Panel("p99 of the longest gap", "stream_max_gap_seconds by model and server.", "s",
                      (Target(p.quantile(0.99, MAX_GAP, by), who, exemplars=True),)),
                Panel(f"Streams with a gap past {FREEZE_S:g} s", "Share of streams, of stream_max_gap_seconds: the "
                      "objective's threshold, whatever freeze_after_s is.", "percentunit",
                      (Target(p.over(MAX_GAP, FREEZE_S, by, q.not_reasoning), who),)),
                Panel("Seconds frozen per second", "stream_frozen_time_seconds_total: 1 is one stream frozen all the time.",
                      "none", (Target(p.rate(FROZEN_TIME, by=by), who),)),
            )),
            Row("Answers", (
                Panel("Time to first content, p95", "stream_time_to_first_content_seconds.", "s",
                      (Target(p.quantile(0.95, FIRST_CONTENT, by), who),)),
                Panel("Streams per second", "stream_ended_total.", "reqps", (Target(p.rate(ENDED, by=by), who),)),
                Panel("Duration, p95", "gen_ai_client_operation_duration_seconds, as other instrumentations report it.",
                      "s", (Target(p.quantile(0.95, OPERATION_DURATION, by), who),)),
            )),
        ),
    )  # fmt: skip
