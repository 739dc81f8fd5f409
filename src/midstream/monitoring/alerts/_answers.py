"""Rules about how answers end: too short, too late, not at all, or unseen."""

from __future__ import annotations

from midstream.monitoring.alerts._model import Alert
from midstream.monitoring.alerts._tuning import Tuning
from midstream.monitoring.alerts.query import OVERFLOW, Query, le
from midstream.stream.model import Outcome
from midstream.telemetry.instruments import (
    ACTIVE,
    BUFFERED,
    ENDED,
    FINISH_REASON,
    FIRST_CONTENT,
    LIMIT_HITS,
    LIMIT_USED,
    OUTCOME,
    TAIL,
    USAGE_MISSING,
)

CAPACITY = "midstream-capacity"


def limits(q: Query, t: Tuning) -> tuple[Alert, ...]:
    """Rules about `max_tokens`: it cuts answers off, or reserves memory that no answer uses."""

    def traffic(expr: str) -> str:
        return q.with_traffic(expr, ENDED, t.traffic_window)

    completed = q(ENDED, q.match(OUTCOME, Outcome.COMPLETED.value))
    cut = q(ENDED, f"{q.match(OUTCOME, Outcome.COMPLETED.value)}, {q.match(FINISH_REASON, 'length')}")
    enough = f"and sum by ({q.by}) (increase({completed}[{t.window}])) >= {t.min_streams}"
    le(LIMIT_USED, t.limit_used_p99)
    le(FIRST_CONTENT, t.first_content_p95_s)
    return (
        Alert(
            "StreamLengthShareHigh",
            severity="warning",
            expr=traffic(f"{q.share(cut, completed, t.window)}\n> {t.length_share:g}\n{enough}"),
            for_="5m",
            keep_firing_for="2m",
            summary="Too many answers are cut off by their token limit",
            description="[percent] of the finished answers ended with finish_reason length. [who]. Users read half a "
            "sentence. Raise max_tokens to the p99.9 of real lengths.",
            dashboard=CAPACITY,
        ),
        Alert(
            "StreamLimitHitShareHigh",
            severity="warning",
            expr=traffic(f"{q.share(q(LIMIT_HITS), completed, t.window)}\n> {t.limit_hit_share:g}\n{enough}"),
            for_="5m",
            keep_firing_for="2m",
            summary="Too many answers reach their token limit, whatever they report",
            description="[percent] of the finished answers used every token they were allowed. [who]. Truncated tool "
            "calls hide behind finish_reason tool_calls: check that their JSON parses, and raise max_tokens.",
            dashboard=CAPACITY,
        ),
        Alert(
            "StreamLimitOversized",
            severity="info",
            expr=q.with_traffic(
                f"{q.quantile(0.99, LIMIT_USED, t.limit_window)} < {t.limit_used_p99:g}\n"
                f"and {q.count(LIMIT_USED, t.limit_window)} >= {t.limit_min_streams}",
                LIMIT_USED,
                t.window,
            ),
            for_="1h",
            keep_firing_for="2m",
            summary="max_tokens is far larger than what answers use",
            description="99 % of the answers use less than [percent] of max_tokens. [who]. An engine that reserves "
            "memory makes all requests wait for it. Lower max_tokens to the p99.9 of real lengths.",
            dashboard=CAPACITY,
        ),
        Alert(
            "StreamFirstContentSlow",
            severity="warning",
            expr=q.with_traffic(
                f"{q.quantile(0.95, FIRST_CONTENT, t.window)} > {t.first_content_p95_s:g}\n"
                f"and {q.count(FIRST_CONTENT, t.window)} >= {t.min_streams}",
                FIRST_CONTENT,
                t.traffic_window,
            ),
            for_="5m",
            keep_firing_for="2m",
            summary="Answers take too long to begin",
            description="The p95 of the time to the first content is [seconds]. [who]. Requests queue or wait for "
            "memory. Compare with the engine's queue: lower max_tokens where it reserves, add capacity where not.",
        ),
    )


def ends(q: Query, t: Tuning) -> tuple[Alert, ...]:
    """Rules about streams that do not end well."""

    def traffic(expr: str) -> str:
        return q.with_traffic(expr, ENDED, t.traffic_window)

    def share(outcome: Outcome, window: str) -> str:
        return q.share(q(ENDED, q.match(OUTCOME, outcome.value)), q(ENDED), window)

    enough = f"and {q.count(ENDED, t.window)} >= {t.min_streams}"
    never = share(Outcome.NO_FINISH, t.baseline)
    return (
        Alert(
            "StreamNoFinishShareHigh",
            severity="warning",
            expr=traffic(
                f"{share(Outcome.NO_FINISH, t.window)}\n> {t.no_finish_share:g}\n{enough}\n"
                f"unless {never}\n>= {t.never_finishes_share:g}"
            ),
            for_="5m",
            keep_firing_for="2m",
            summary="Answers end without a finish reason",
            description="[percent] of the streams ended cleanly but without a finish reason. [who]. They were probably "
            "cut: treat them as failed, and look for restarts and proxies with a time limit.",
        ),
        Alert(
            "StreamErrorShareHigh",
            severity="critical",
            expr=traffic(f"{share(Outcome.ERROR, t.window)}\n> {t.error_share:g}\n{enough}"),
            for_="5m",
            keep_firing_for="2m",
            summary="Too many streams fail",
            description="[percent] of the streams ended in an error. [who]. The answer so far was shown, then broke. "
            "Read error_type on the duration metric, then the server's log.",
        ),
        Alert(
            "StreamTimeoutShareHigh",
            severity="critical",
            expr=traffic(f"{share(Outcome.TIMEOUT, t.window)}\n> {t.timeout_share:g}\n{enough}"),
            for_="5m",
            keep_firing_for="2m",
            summary="Too many streams time out",
            description="[percent] of the streams waited until their timeout. [who]. Each one is a freeze that never "
            "ended. Check that the server generates tokens; retries now would add to its load.",
        ),
        Alert(
            "StreamEmptyShareHigh",
            severity="warning",
            expr=traffic(f"{share(Outcome.EMPTY, t.window)}\n> {t.empty_share:g}\n{enough}"),
            for_="5m",
            keep_firing_for="2m",
            summary="Streams come back without a single chunk",
            description="[percent] of the streams were empty. [who]. Something answers 200 with HTML or plain JSON: "
            "check the URL, and whether a proxy drops stream: true.",
        ),
        Alert(
            "StreamTailLong",
            severity="info",
            expr=q.with_traffic(
                f"{q.over(TAIL, t.tail_s, t.window)}\n> {t.tail_share:g}\n"
                f"and {q.count(TAIL, t.window)} >= {t.min_streams}",
                TAIL,
                t.traffic_window,
            ),
            for_="5m",
            keep_firing_for="2m",
            summary="Streams stay open long after their answer is complete",
            description=f"[percent] of the streams lingered for more than {t.tail_s:g} s after the finish "
            f"reason. [who]. "
            "They hold connections and spinners: stop reading at the finish reason, or fix the missing [DONE].",
        ),
    )


def blindness(q: Query, t: Tuning) -> tuple[Alert, ...]:
    """Rules about what midstream itself cannot see."""

    def traffic(expr: str) -> str:
        return q.with_traffic(expr, ENDED, t.traffic_window)

    completed = q(ENDED, q.match(OUTCOME, Outcome.COMPLETED.value))
    return (
        Alert(
            "StreamUsageMissing",
            severity="info",
            expr=traffic(
                f"{q.share(q(USAGE_MISSING), completed, t.window)}\n> {t.usage_missing_share:g}\n"
                f"and sum by ({q.by}) (increase({completed}[{t.window}])) >= {t.min_streams}"
            ),
            for_="10m",
            keep_firing_for="2m",
            summary="Answers come without token counts",
            description="[percent] of the finished answers had no usage. [who]. Limits cannot be derived "
            "from them: send "
            'stream_options={"include_usage": true}, or monitor with include_usage=True.',
            dashboard=CAPACITY,
        ),
        Alert(
            "StreamAnswersBuffered",
            severity="warning",
            expr=traffic(
                f"{q.share(q(BUFFERED), q(ENDED), t.window)}\n> {t.buffered_share:g}\n"
                f"and {q.count(ENDED, t.window)} >= {t.min_streams}"
            ),
            for_="10m",
            keep_firing_for="2m",
            summary="Something on the way buffers answers",
            description="[percent] of the answers arrived in one burst. [who]. Users wait for the whole answer, and "
            "freezes cannot be seen. Turn off buffering in the proxy (nginx: proxy_buffering off).",
        ),
        Alert(
            "StreamLabelsOverflow",
            severity="info",
            expr=f"sum by (job) ({q(ENDED, q.match(OVERFLOW, 'true'))}) > 0\n"
            + q.guard(
                f"unless (sum by (job) (increase({q(ENDED)}[{t.traffic_window}])) == 0 "
                f"unless sum by (job) ({q(ACTIVE)}) > 0)"
            ),
            for_="0s",
            keep_firing_for="2m",
            by=("job",),
            summary="There are more label sets than OpenTelemetry keeps apart",
            description="[value] streams are counted under otel_metric_overflow. [who]. Their model and server are "
            "lost: name fewer attributes, or raise the SDK's cardinality limit.",
        ),
    )
