"""Edges of the rules about freezes."""

from __future__ import annotations

from typing import NamedTuple

from midstream.monitoring.alerts import Tuning
from monitoring.alerts.promtool import Fired, Series, histogram, ours

WHO = "Affected: job app, model Qwen/Qwen3-8B, server gpu-1, port 8000."
STREAMS = "midstream-streams?var-job=app&var-model=Qwen%2FQwen3-8B&var-server=gpu-1"
OVERVIEW = "midstream-overview?var-job=app&var-model=Qwen%2FQwen3-8B&var-server=gpu-1"


class Case(NamedTuple):
    """One side of one edge."""

    alert: str
    words: str
    series: Series
    at: str
    fired: Fired | tuple[Fired, ...] | None
    tuning: Tuning = Tuning()
    interval: str = "1m"


FROZEN = Fired(
    "warning",
    "An answer has stopped in the middle and has not gone on",
    f"Streams frozen now: 1. {WHO} Its reader sees half an answer. Check whether the server preempts requests or "
    "is stuck; lower its admission cap, or restart it if nothing moves.",
    STREAMS,
)
MOSTLY = Fired(
    "critical",
    "Most open answers are frozen at the same time",
    f"50% of the open streams are frozen. {WHO} That is the server or the way to it, not one request. Check that it "
    "generates tokens at all; take it out of rotation if it does not.",
    STREAMS,
)
LONG = Fired(
    "warning",
    "One answer has had no output for very long",
    f"The longest gap in progress is 1m 30s. {WHO} It will end in a timeout, or in an answer that is no longer "
    "read. Find its trace, and set a read timeout that fits.",
    STREAMS,
)
P99 = Fired(
    "warning",
    "One in a hundred answers pauses for too long",
    f"The p99 of the longest gap is 12.5s, more than 10 s. {WHO} Compare with the engine's preemptions: with them, "
    "lower the concurrency cap; without, look for long prefills.",
    OVERVIEW,
)
SHARE = Fired(
    "warning",
    "Too many answers freeze",
    f"5.1% of the streams paused for more than 5 s. {WHO} Lower the server's concurrency cap, or send it fewer "
    "requests; `midstream simulate` shows what a cap does.",
    OVERVIEW,
)
RISING = Fired(
    "warning",
    "Freezes are far more frequent than usual",
    f"30 freezes in 30m, more than 3 times as many as 1d before. {WHO} Ask what changed: load, model, limit, or the "
    "server's flags.",
    OVERVIEW,
)
HIDDEN = Fired(
    "info",
    "The server stops sending while its clients are too busy to notice",
    f"10 gaps in 10m were hidden behind busy callers. {WHO} Users wait for the client here: move its work off the "
    "loop that reads the stream. Then look at the server.",
    STREAMS,
)


STALLED = Fired(
    "warning",
    "Answers are ended because their server has stopped sending",
    f"10 answers were ended by their stall timeout in 10m. {WHO} Their readers got an error or a second try. Look at "
    "the server, and ask `midstream advise timeout` whether the timeout is too short.",
    STREAMS,
)


def in_phase(phase: str, series: dict[str, str]) -> dict[str, str]:
    """The same series, of one phase."""
    return {name.replace("{", f'{{stream_phase="{phase}", ', 1): values for name, values in series.items()}


def burning(severity: str, share: str, long: str, short: str, days: str) -> Fired:
    """The four paces say the same in their own numbers."""
    return Fired(
        severity,
        "The budget for frozen answers burns too fast",
        f"{share} of the streams of {long} froze; the objective of 99.5 % without a freeze allows 0.5 %. {WHO} At this "
        f"pace 30 days' budget lasts {days} days. Lower the concurrency cap, or move load away.",
        OVERVIEW,
        more={"long": long, "short": short},
    )


GAP = "stream_max_gap_seconds"


def gaps(per_minute: int, past_5: int, minutes: int = 30) -> dict[str, str]:
    """Streams that end in every minute, so many of them with a freeze."""
    return histogram(GAP, le_5_0=f"0+{per_minute - past_5}x{minutes}", inf=f"0+{per_minute}x{minutes}")


# fmt: off
FREEZES = (
    Case(
        "StreamFrozen", "one stream frozen for a minute fires", {ours("stream_frozen"): "0 1x5"}, "2m", FROZEN
    ),
    Case("StreamFrozen", "half a minute is not long enough", {ours("stream_frozen"): "0 1x5"}, "90s", None),
    Case(
        "StreamFrozen",
        "a stream that goes on resets the wait",
        {ours("stream_frozen"): "1 0 1 0 1"},
        "4m",
        None,
    ),
    Case(
        "StreamFrozen",
        "it resolves once keep_firing_for is over",
        {ours("stream_frozen"): "1x3 0x9"},
        "7m",
        None,
    ),
    Case(
        "StreamFrozen",
        "it is kept for two minutes after the thaw",
        {ours("stream_frozen"): "1x3 0x9"},
        "5m",
        Fired(FROZEN.severity, FROZEN.summary, FROZEN.description, STREAMS),
    ),
    Case(
        "StreamFrozen",
        "two processes are one server",
        {ours("stream_frozen"): "1x5", ours("stream_frozen").replace("10.0.0.1", "10.0.0.2"): "0x5"},
        "2m",
        FROZEN,
    ),
    Case(
        "StreamFrozen",
        "a higher threshold",
        {ours("stream_frozen"): "1x5"},
        "2m",
        None,
        Tuning(frozen_streams=2),
    ),
    Case(
        "StreamsMostlyFrozen",
        "half of six fires",
        {ours("stream_frozen"): "3x5", ours("stream_active"): "6x5"},
        "2m",
        MOSTLY,
    ),
    Case(
        "StreamsMostlyFrozen",
        "three of seven is less than half",
        {ours("stream_frozen"): "3x5", ours("stream_active"): "7x5"},
        "2m",
        None,
    ),
    Case(
        "StreamsMostlyFrozen",
        "two of two is too few to mean the server",
        {ours("stream_frozen"): "2x5", ours("stream_active"): "2x5"},
        "2m",
        None,
    ),
    Case(
        "StreamsMostlyFrozen",
        "nothing open is no division by zero",
        {ours("stream_frozen"): "0x5", ours("stream_active"): "0x5"},
        "2m",
        None,
    ),
    Case(
        "StreamOpenGapLong",
        "at 90 s it fires at once",
        {ours("stream_open_gap_seconds"): "0 90", ours("stream_frozen"): "0 1"},
        "1m",
        LONG,
    ),
    Case(
        "StreamOpenGapLong",
        "a pause that its phase's threshold allows is none",
        {ours("stream_open_gap_seconds"): "0 90", ours("stream_frozen"): "0 0"},
        "1m",
        None,
    ),
    Case(
        "StreamOpenGapLong",
        "59.9 s is not yet",
        {ours("stream_open_gap_seconds"): "59.9x5", ours("stream_frozen"): "1x5"},
        "3m",
        None,
    ),
    Case(
        "StreamMaxGapP99High",
        "989 of 1000 under 10 s fires",
        histogram(GAP, le_5_0="0+980x30", le_10_0="0+989x30", le_15_0="0+991x30", inf="0+1000x30"),
        "20m",
        P99,
    ),
    Case(
        "StreamMaxGapP99High",
        "991 of 1000 under 10 s does not",
        histogram(GAP, le_5_0="0+980x30", le_10_0="0+991x30", le_15_0="0+1000x30", inf="0+1000x30"),
        "20m",
        None,
    ),
    Case(
        "StreamMaxGapP99High",
        "a scrape by Prometheus 2 or OTLP says 10 and not 10.0",
        histogram(GAP, le_5="0+980x30", le_10="0+989x30", le_15="0+991x30", inf="0+1000x30"),
        "20m",
        P99,
    ),
    Case(
        "StreamMaxGapP99High",
        "19 streams in ten minutes are too few",
        histogram(GAP, le_10_0="0x30", le_15_0="0+1.9x30", inf="0+1.9x30"),
        "20m",
        None,
    ),
    Case(
        "StreamMaxGapP99High",
        "four minutes are not five",
        histogram(GAP, le_10_0="0x10 0x20", le_15_0="0x10 4+4x19", inf="0x10 4+4x19"),
        "17m",
        None,
    ),
    Case("StreamFreezeShareHigh", "51 of 1000 fires", gaps(1000, 51), "20m", SHARE),
    Case("StreamFreezeShareHigh", "49 of 1000 does not", gaps(1000, 49), "20m", None),
    Case(
        "StreamFreezeShareHigh",
        "one of three in ten minutes is no share",
        histogram(GAP, le_5_0="0+0.2x30", inf="0+0.3x30"),
        "20m",
        None,
    ),
    Case(
        "StreamFreezeShareHigh",
        "twenty in ten minutes are enough",
        histogram(GAP, le_5_0="0x30", inf="0+2x30"),
        "20m",
        Fired("warning", SHARE.summary, SHARE.description.replace("5.1%", "100%"), OVERVIEW),
    ),
    Case(
        "StreamFreezeShareHigh",
        "a restart is no freeze",
        histogram(GAP, le_5_0="0+1000x14 0+1000x15", inf="0+1000x14 0+1000x15"),
        "20m",
        None,
    ),
    Case(
        "StreamFreezeShareHigh",
        "nor does it hide one",
        histogram(GAP, le_5_0="0+949x14 0+949x15", inf="0+1000x14 0+1000x15"),
        "20m",
        SHARE,
    ),
    Case("StreamFreezeShareHigh", "the share of no streams is nothing, not NaN", gaps(0, 0), "20m", None),
    Case(
        "StreamFreezeShareHigh", "OTLP says 5", histogram(GAP, le_5="0+949x30", inf="0+1000x30"), "20m", SHARE
    ),
    Case(
        "StreamFreezesRising",
        "the first freezes after a day without any fire",
        {ours("stream_freezes_total"): "0x1500 1+1x60"},
        "1540m",
        RISING,
    ),
    Case(
        "StreamFreezesRising",
        "the first day has no yesterday to compare with",
        {ours("stream_freezes_total"): "0x30 1+1x60"},
        "70m",
        None,
    ),
    Case(
        "StreamFreezesRising",
        "nor has the day after, until yesterday's whole window was measured",
        {ours("stream_freezes_total"): "_x20 0x1420 1+1x60"},
        "1480m",
        None,
    ),
    Case(
        "StreamFreezesRising",
        "four in half an hour are single events",
        {ours("stream_freezes_total"): "0x1500 4x60"},
        "1520m",
        None,
    ),
    Case(
        "StreamFreezesRising",
        "half as many again as yesterday is not far more",
        {ours("stream_freezes_total"): "0x6 0+20x6 120x134 150+30x6"},
        "1540m",
        None,
        interval="10m",
    ),
    Case(
        "StreamFreezesRising",
        "five times as many as yesterday is",
        {ours("stream_freezes_total"): "0x6 0+2x6 12x134 22+10x6"},
        "1540m",
        RISING,
        interval="10m",
    ),
    Case(
        "StreamFreezesRising",
        "a counter that starts again at 0 has not risen",
        {ours("stream_freezes_total"): "500x1500 0x60"},
        "1520m",
        None,
    ),
    Case(
        "StreamMaxGapP99High",
        "a pause of a minute in reasoning is none",
        in_phase("reasoning", histogram(GAP, le_10_0="0+0x30", le_60_0="0+1000x30", inf="0+1000x30")),
        "20m",
        None,
    ),
    Case(
        "StreamMaxGapP99High",
        "in text it fires, whatever reasoning does",
        in_phase("text", histogram(GAP, le_5_0="0+980x30", le_10_0="0+989x30", le_15_0="0+991x30", inf="0+1000x30"))
        | in_phase("reasoning", histogram(GAP, le_10_0="0+9000x30", inf="0+9000x30")),
        "20m",
        P99,
    ),
    Case(
        "StreamFreezeShareHigh",
        "pauses of a minute in reasoning are none",
        in_phase("reasoning", histogram(GAP, le_5_0="0+0x30", inf="0+1000x30")),
        "20m",
        None,
    ),
    Case(
        "StreamStallTimeouts",
        "ten in ten minutes",
        {ours("stream_stall_timeouts_total"): "0+1x30"},
        "20m",
        STALLED,
    ),
    Case(
        "StreamStallTimeouts",
        "four in ten minutes",
        {ours("stream_stall_timeouts_total"): "0+0.4x30"},
        "20m",
        None,
    ),
    Case(
        "StreamHiddenFreezes",
        "ten in ten minutes",
        {ours("stream_hidden_freezes_total"): "0+1x30"},
        "20m",
        HIDDEN,
    ),
    Case(
        "StreamHiddenFreezes",
        "four in ten minutes",
        {ours("stream_hidden_freezes_total"): "0+0.4x30"},
        "20m",
        None,
    ),
    # A server that is new has only one history: over it, the slower paces burn as well.
    Case(
        "StreamFreezeBudgetBurn",
        "7.3 % for an hour wakes somebody",
        gaps(1000, 73, 90),
        "70m",
        (
            burning("critical", "7.3%", "1h", "5m", "2.08"),
            burning("critical", "7.3%", "6h", "30m", "5"),
            burning("warning", "7.3%", "1d", "2h", "10"),
        ),
    ),
    Case(
        "StreamFreezeBudgetBurn",
        "7.1 % is not the fastest pace",
        gaps(1000, 71, 90),
        "70m",
        (burning("critical", "7.1%", "6h", "30m", "5"), burning("warning", "7.1%", "1d", "2h", "10")),
    ),
    Case(
        "StreamFreezeBudgetBurn",
        "an hour that is over is left to the morning",
        histogram(GAP, le_5_0="0+900x60 55000+1000x39", inf="0+1000x100"),
        "100m",
        burning("warning", "6%", "1d", "2h", "10"),
    ),
    Case(
        "StreamFreezeBudgetBurn",
        "19 streams are too few",
        histogram(GAP, le_5_0="0x90", inf="0+0.2x90"),
        "90m",
        None,
    ),
    Case(
        "StreamFreezeBudgetBurn",
        "99 % is an objective with a larger budget",
        gaps(1000, 73, 90),
        "30m",
        Fired(
            "critical",
            "The budget for frozen answers burns too fast",
            f"7.3% of the streams of 6h froze; the objective of 99 % without a freeze allows 1 %. {WHO} At this pace "
            "30 days' budget lasts 5 days. Lower the concurrency cap, or move load away.",
            OVERVIEW,
            more={"long": "6h", "short": "30m"},
        ),
        Tuning(objective=99.0),
    ),
    # Every ten minutes, for the sake of time.
    Case(
        "StreamFreezeBudgetBurn",
        "3.1 % for six hours wakes somebody",
        gaps(1000, 31, 50),
        "8h",
        (
            burning("critical", "3.1%", "6h", "30m", "5"),
            burning("warning", "3.1%", "1d", "2h", "10"),
            burning("warning", "3.1%", "3d", "6h", "30"),
        ),
        interval="10m",
    ),
    Case(
        "StreamFreezeBudgetBurn",
        "1.6 % for a day is for working hours",
        gaps(1000, 16, 150),
        "25h",
        (burning("warning", "1.6%", "1d", "2h", "10"), burning("warning", "1.6%", "3d", "6h", "30")),
        interval="10m",
    ),
    Case(
        "StreamFreezeBudgetBurn",
        "0.6 % for three days is for working hours, too",
        gaps(1000, 6, 450),
        "74h",
        burning("warning", "0.6%", "3d", "6h", "30"),
        interval="10m",
    ),
    Case(
        "StreamFreezeBudgetBurn",
        "0.4 % is within the objective",
        gaps(1000, 4, 450),
        "74h",
        None,
        interval="10m",
    ),
)
