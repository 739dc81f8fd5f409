"""Recording rules, named `level:metric:operation`: what long ranges and other people's rules read."""

from __future__ import annotations

from midstream.monitoring.alerts._model import Record
from midstream.monitoring.alerts.query import Query
from midstream.stream.model import Outcome
from midstream.telemetry.instruments import (
    ENDED,
    FINISH_REASON,
    FIRST_CONTENT,
    FREEZES,
    MAX_GAP,
    OUTCOME,
    TOKEN_TYPE,
    TOKEN_USAGE,
)

RATE = "5m"
"""The usual window of recorded rates: several scrapes at any usual interval."""


def recorded(q: Query) -> tuple[Record, ...]:
    """What the overview shows, for every job, model and server."""
    completed = q(ENDED, q.match(OUTCOME, Outcome.COMPLETED.value))
    cut = q(ENDED, f"{q.match(OUTCOME, Outcome.COMPLETED.value)}, {q.match(FINISH_REASON, 'length')}")
    output = q(TOKEN_USAGE, q.match(TOKEN_TYPE, "output"), part="_sum")
    return (
        Record(f"{q.level}:stream_ended:rate{RATE}", f"sum by ({q.by}) (rate({q(ENDED)}[{RATE}]))"),
        Record(f"{q.level}:stream_freezes:rate{RATE}", f"sum by ({q.by}) (rate({q(FREEZES)}[{RATE}]))"),
        *(
            Record(
                f"{q.level}:stream_max_gap_seconds:p{percent}_rate{RATE}",
                q.quantile(percent / 100, MAX_GAP, RATE),
            )
            for percent in (50, 95, 99)
        ),
        Record(
            f"{q.level}:stream_time_to_first_content_seconds:p95_rate{RATE}",
            q.quantile(0.95, FIRST_CONTENT, RATE),
        ),
        Record(f"{q.level}:stream_ended_length:ratio_rate{RATE}", q.share(cut, completed, RATE)),
        Record(
            f"{q.level}:gen_ai_client_token_usage_output:rate{RATE}",
            f"sum by ({q.by}) (rate({output}[{RATE}]))",
        ),
    )
