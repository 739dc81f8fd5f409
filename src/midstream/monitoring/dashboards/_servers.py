"""Our gaps over the engine's own figures, and what answers make of their limits."""
# ruff: noqa: E501 - tables of panels

from __future__ import annotations

from midstream.engines import ENGINES, EngineFacts, EngineSeries
from midstream.monitoring.alerts import Naming
from midstream.monitoring.dashboards._model import Dashboard, Panel, Row, Target
from midstream.monitoring.dashboards._queries import INTERVAL, Panels
from midstream.telemetry.instruments import (
    BUFFERED,
    ENDED,
    FINISH_REASON,
    FIRST_CHUNK,
    FREEZES,
    LIMIT_HITS,
    LIMIT_USED,
    MAX_GAP,
    OUTCOME,
    TOKEN_TYPE,
    TOKEN_USAGE,
    USAGE_MISSING,
)


def engine(naming: Naming) -> Dashboard:
    """Whether the engine preempted requests when answers froze."""
    p = Panels(naming)
    observed = [(facts, facts.series) for facts in ENGINES.values() if facts.series is not None]

    def every(what: str) -> tuple[Target, ...]:
        return tuple(
            Target(
                f"sum by (job) ({p.engine.engine(facts, getattr(series, what))})",
                f"{facts.title} {{{{job}}}}",
            )
            for facts, series in observed
        )

    return Dashboard(
        "midstream-engine",
        "midstream: client against server",
        "What clients saw, over the engine's own metrics. Needs the engine's /metrics to be scraped.",
        p.variables(engine=True),
        (
            Row("Cause", (
                Panel("Gap of our streams, p99", "stream_max_gap_seconds. Compare its peaks with the panel below.", "s",
                      (Target(p.quantile(0.99, MAX_GAP), "p99"),), width=12),
                Panel("Freezes of our streams per minute", "stream_freezes_total.", "none",
                      (Target(f"60 * {p.rate(FREEZES)}", "freezes"),), width=12),
                Panel("Preemptions by the engine per minute", f"{', '.join(series.panel for _, series in observed)}.", "none",
                      tuple(_preemptions(p, facts, series) for facts, series in observed), width=12),
                Panel("KV cache in use", "At the top: preemptions are near. Low while requests wait: the cap is too low.",
                      "percentunit",
                      tuple(Target(f"max by (job) ({p.engine.engine(facts, series.usage)})", f"{facts.title} {{{{job}}}}")
                            for facts, series in observed), width=12, maximum=1.0),
            )),
            Row("Load", (
                Panel("Requests waiting", "The engine's queue: this is time to first content.", "none", every("waiting"),
                      width=12),
                Panel("Requests running", "Admitted by the engine, preempted ones not.", "none", every("running"), width=12),
                Panel("First chunk, p95", "gen_ai_client_operation_time_to_first_chunk_seconds: headers and role, before "
                      "any content.", "s", (Target(p.quantile(0.95, FIRST_CHUNK), "p95"),), width=12),
                Panel("Output tokens per second", "They must hold when a lower cap takes freezes away.", "none",
                      (Target(p.rate(TOKEN_USAGE, p.q.match(TOKEN_TYPE, "output"), part="_sum"), "tokens/s"),), width=12),
            )),
        ),
    )  # fmt: skip


def _preemptions(p: Panels, facts: EngineFacts, names: EngineSeries) -> Target:
    series = p.engine.engine(facts, names.preemptions)
    expr = (
        f"sum by (job) ({series})"
        if names.kind == "gauge"
        else f"60 * sum by (job) (rate({series}[{INTERVAL}]))"
    )
    return Target(expr, f"{facts.title} {{{{job}}}}")


def capacity(naming: Naming) -> Dashboard:
    """How long answers are, and what they use of their limit."""
    p = Panels(naming)
    q = p.q
    completed = q.match(OUTCOME, "completed")
    shares = (0.5, 0.95, 0.99)

    def tokens(kind: str, part: str, by: str = "") -> str:
        return p.rate(TOKEN_USAGE, q.match(TOKEN_TYPE, kind), part=part, by=by)

    return Dashboard(
        "midstream-capacity",
        "midstream: limits and lengths",
        "What to set max_tokens to, and what the engine has to hold.",
        p.variables(),
        (
            Row("Limits", (
                Panel("Use of the limit", "Output tokens divided by the limit asked for, by bucket.", "percentunit",
                      (Target(p.rate(LIMIT_USED, part="_bucket", by="le"), "{{le}}"),), "heatmap", 12),
                Panel("Use of the limit: p50, p95, p99", "A p99 far below 100 %: the limit is too large.", "percentunit",
                      tuple(Target(p.quantile(share, LIMIT_USED), f"p{share * 100:g}") for share in shares), width=12),
                Panel("Finish reasons", "Of finished answers.", "reqps",
                      (Target(p.rate(ENDED, completed, by=FINISH_REASON), "{{finish_reason}}"),), stacked=True),
                Panel("Limit reached", "Share of finished answers that used all their tokens.", "percentunit",
                      (Target(p.ratio(p.rate(LIMIT_HITS), p.rate(ENDED, completed)), "limit reached"),)),
                Panel("Unknown lengths", "Finished answers without usage, and answers that arrived in one burst.",
                      "percentunit",
                      (Target(p.ratio(p.rate(USAGE_MISSING), p.rate(ENDED, completed)), "no usage"),
                       Target(p.ratio(p.rate(BUFFERED), p.rate(ENDED)), "buffered"))),
            )),
            Row("Lengths", (
                Panel("Output tokens of an answer", "Quantiles; the buckets are the conventions', a factor of 4 apart.",
                      "none", tuple(Target(f"histogram_quantile({share:g}, {tokens('output', '_bucket', 'le')})",
                                           f"p{share * 100:g}") for share in shares)),
                Panel("Mean tokens of a request", "Prompt and answer: their sum is what the KV cache holds for it.", "none",
                      tuple(Target(p.ratio(tokens(kind, "_sum"), tokens(kind, "_count")), kind)
                            for kind in ("input", "output")), stacked=True),
                Panel("Tokens per second", "Prompt and answer tokens of all streams.", "none",
                      tuple(Target(tokens(kind, "_sum"), kind) for kind in ("input", "output"))),
            )),
        ),
    )  # fmt: skip
