"""Rules about nothing at all: no metrics, or no streams, where there should be some."""

from __future__ import annotations

from midstream.monitoring.alerts._model import Alert
from midstream.monitoring.alerts._tuning import Tuning
from midstream.monitoring.alerts.query import Query
from midstream.telemetry.instruments import ACTIVE, ENDED


def silence(q: Query, t: Tuning) -> tuple[Alert, ...]:
    """Rules about missing traffic: by habit for everybody, without condition for the jobs that are named."""
    return (_stopped(q, t), *(_silent(q, t, job) for job in t.expect_jobs))


def _stopped(q: Query, t: Tuning) -> Alert:
    def streams(offset: str = "") -> str:
        return f"sum by (job) (increase({q(ENDED)}[{t.rising_window}]{offset}))"

    # Yesterday and a week ago: neither a weekend nor a first day alerts. No series is no traffic, too.
    return Alert(
        "StreamTrafficStopped",
        severity="warning",
        expr=f"{streams(f' offset {t.baseline}')} >= {t.traffic_streams}\n"
        f"and {streams(' offset 1w')} >= {t.traffic_streams}\n"
        f"unless {streams()} > 0\n"
        f"unless sum by (job) ({q(ACTIVE)}) > 0",
        for_="10m",
        keep_firing_for="0s",
        by=("job",),
        summary="There are no streams where there always were some",
        description=f"No stream in {t.rising_window}, and [value] in the same time {t.baseline} ago. [who]. "
        f"Either no request "
        "comes, or nothing is measured: check the target in Prometheus, then the client.",
    )


def _silent(q: Query, t: Tuning, job: str) -> Alert:
    here = f'job="{job}"'
    return Alert(
        "StreamMonitorSilent",
        severity="critical",
        expr=f"absent({q(ACTIVE, here)})\n"
        f"or sum by (job) (increase({q(ENDED, here)}[{t.silence}])) == 0 and sum by (job) ({q(ACTIVE, here)}) == 0",
        for_="5m",
        by=("job",),
        summary="No metrics of streams although there should be traffic",
        description=f"Neither an open nor an ended stream in {t.silence}. [who]. Freezes would go unseen. Check the "
        "target in Prometheus, then whether the application still calls midstream.setup() and monitor().",
        labels={"job": job},
    )
