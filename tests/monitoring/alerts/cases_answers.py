"""Edges of the rules about how answers end, and about what cannot be seen."""

from __future__ import annotations

from midstream.monitoring.alerts import Tuning
from monitoring.alerts.cases_freezes import OVERVIEW, WHO, Case
from monitoring.alerts.promtool import Fired, ended, histogram, ours

CAPACITY = "midstream-capacity?var-job=app&var-model=Qwen%2FQwen3-8B&var-server=gpu-1"
JOB = {"job": "app"}
OF_THE_JOB = "midstream-overview?var-job=app"

LENGTH = Fired(
    "warning",
    "Too many answers are cut off by their token limit",
    f"5.1% of the finished answers ended with finish_reason length. {WHO} Users read half a sentence. Raise max_tokens "
    "to the p99.9 of real lengths.",
    CAPACITY,
)
HITS = Fired(
    "warning",
    "Too many answers reach their token limit, whatever they report",
    f"5.1% of the finished answers used every token they were allowed. {WHO} Truncated tool calls hide behind "
    "finish_reason tool_calls: check that their JSON parses, and raise max_tokens.",
    CAPACITY,
)
OVERSIZED = Fired(
    "info",
    "max_tokens is far larger than what answers use",
    f"99 % of the answers use less than 4.97% of max_tokens. {WHO} An engine that reserves memory makes "
    f"all requests wait for "
    "it. Lower max_tokens to the p99.9 of real lengths.",
    CAPACITY,
)
SLOW = Fired(
    "warning",
    "Answers take too long to begin",
    f"The p95 of the time to the first content is 12.5s. {WHO} Requests queue or wait for memory. Compare with the "
    "engine's queue: lower max_tokens where it reserves, add capacity where not.",
    OVERVIEW,
)
NO_FINISH = Fired(
    "warning",
    "Answers end without a finish reason",
    f"5.1% of the streams ended cleanly but without a finish reason. {WHO} They were probably cut: treat them as "
    "failed, and look for restarts and proxies with a time limit.",
    OVERVIEW,
)
ERRORS = Fired(
    "critical",
    "Too many streams fail",
    f"5.1% of the streams ended in an error. {WHO} The answer so far was shown, then broke. Read error_type on the "
    "duration metric, then the server's log.",
    OVERVIEW,
)
TIMEOUTS = Fired(
    "critical",
    "Too many streams time out",
    f"2.1% of the streams waited until their timeout. {WHO} Each one is a freeze that never ended. Check that the "
    "server generates tokens; retries now would add to its load.",
    OVERVIEW,
)
EMPTY = Fired(
    "warning",
    "Streams come back without a single chunk",
    f"2.1% of the streams were empty. {WHO} Something answers 200 with HTML or plain JSON: check the URL, and "
    f"whether a "
    "proxy drops stream: true.",
    OVERVIEW,
)
TAIL = Fired(
    "info",
    "Streams stay open long after their answer is complete",
    f"5.1% of the streams lingered for more than 10 s after the finish reason. {WHO} They hold connections and "
    "spinners: stop reading at the finish reason, or fix the missing [DONE].",
    OVERVIEW,
)
USAGE = Fired(
    "info",
    "Answers come without token counts",
    f"21% of the finished answers had no usage. {WHO} Limits cannot be derived from them: send "
    'stream_options={"include_usage": true}, or monitor with include_usage=True.',
    CAPACITY,
)
BUFFERED = Fired(
    "warning",
    "Something on the way buffers answers",
    f"21% of the answers arrived in one burst. {WHO} Users wait for the whole answer, and freezes cannot be seen. Turn "
    "off buffering in the proxy (nginx: proxy_buffering off).",
    OVERVIEW,
)
OVERFLOW = Fired(
    "info",
    "There are more label sets than OpenTelemetry keeps apart",
    "3 streams are counted under otel_metric_overflow. Affected: job app. Their model and server are lost: name fewer "
    "attributes, or raise the SDK's cardinality limit.",
    OF_THE_JOB,
    JOB,
)
STOPPED = Fired(
    "warning",
    "There are no streams where there always were some",
    "No stream in 30m, and 30 in the same time 1d ago. Affected: job app. Either no request comes, or nothing is "
    "measured: check the target in Prometheus, then the client.",
    OF_THE_JOB,
    JOB,
)
SILENT = Fired(
    "critical",
    "No metrics of streams although there should be traffic",
    "Neither an open nor an ended stream in 15m. Affected: job app. Freezes would go unseen. Check the target in "
    "Prometheus, then whether the application still calls midstream.setup() and monitor().",
    OF_THE_JOB,
    JOB,
)
EXPECTED = Tuning(expect_jobs=("app",))
STOP, LENGTH_END, TOOLS = (
    ended("completed", "stop"),
    ended("completed", "length"),
    ended("completed", "tool_calls"),
)
HITS_TOTAL, USED = ours("stream_limit_hits_total"), "stream_limit_used_ratio"
FIRST = "stream_time_to_first_content_seconds"
MISSING, BURSTS = ours("stream_usage_missing_total"), ours("stream_buffered_total")
ACTIVE = ours("stream_active")


def beside(outcome: str, per_minute: int, minutes: int = 30) -> dict[str, str]:
    """A thousand streams a minute, so many of them with this outcome."""
    return {STOP: f"0+{1000 - per_minute}x{minutes}", ended(outcome): f"0+{per_minute}x{minutes}"}


# fmt: off
ANSWERS = (
    Case(
        "StreamLengthShareHigh", "51 of 1000 fires", {STOP: "0+949x30", LENGTH_END: "0+51x30"}, "20m", LENGTH
    ),
    Case(
        "StreamLengthShareHigh", "49 of 1000 does not", {STOP: "0+951x30", LENGTH_END: "0+49x30"}, "20m", None
    ),
    Case(
        "StreamLengthShareHigh",
        "streams that were not finished are not in the share",
        {STOP: "0+949x30", LENGTH_END: "0+51x30", ended("no_finish"): "0+500x30", ended("error"): "0+500x30"},
        "20m",
        LENGTH,
    ),
    Case(
        "StreamLengthShareHigh",
        "tool calls are finished answers",
        {STOP: "0+900x30", TOOLS: "0+51x30", LENGTH_END: "0+49x30"},
        "20m",
        None,
    ),
    Case(
        "StreamLengthShareHigh",
        "one of two in ten minutes is no share",
        {STOP: "0+0.1x30", LENGTH_END: "0+0.1x30"},
        "20m",
        None,
    ),
    Case(
        "StreamLengthShareHigh",
        "the first answers of a restarted process count",
        {STOP: "0+949x14 0+949x15", LENGTH_END: "0+51x14 0+51x15"},
        "20m",
        LENGTH,
    ),
    Case(
        "StreamLengthShareHigh",
        "a new label set is there from its first stream",
        {STOP: "_x10 0+949x30", LENGTH_END: "_x10 0+51x30"},
        "20m",
        LENGTH,
    ),
    Case(
        "StreamLimitHitShareHigh", "51 of 1000 fires", {STOP: "0+1000x30", HITS_TOTAL: "0+51x30"}, "20m", HITS
    ),
    Case(
        "StreamLimitHitShareHigh",
        "49 of 1000 does not",
        {STOP: "0+1000x30", HITS_TOTAL: "0+49x30"},
        "20m",
        None,
    ),
    Case(
        "StreamLimitHitShareHigh",
        "19 answers are too few",
        {STOP: "0+1.9x30", HITS_TOTAL: "0+1x30"},
        "20m",
        None,
    ),
    Case(
        "StreamLimitOversized",
        "all between a fiftieth and a twentieth",
        histogram(USED, le_0_02="0x100", le_0_05="0+100x100", le_0_1="0+100x100", inf="0+100x100"),
        "80m",
        OVERSIZED,
    ),
    Case(
        "StreamLimitOversized",
        "two in a hundred use more",
        histogram(USED, le_0_05="0+90x100", le_0_1="0+98x100", le_0_2="0+100x100", inf="0+100x100"),
        "80m",
        None,
    ),
    Case(
        "StreamLimitOversized",
        "an hour has not passed",
        histogram(USED, le_0_02="0x100", le_0_05="0+99x100", le_0_1="0+99x100", inf="0+100x100"),
        "50m",
        None,
    ),
    Case(
        "StreamLimitOversized",
        "190 answers have no p99",
        histogram(USED, le_0_05="0+1.9x100", le_0_1="0+1.9x100", inf="0+1.9x100"),
        "99m",
        None,
    ),
    Case(
        "StreamFirstContentSlow",
        "six of a hundred wait longer than 10 s",
        histogram(FIRST, le_10_0="0+94x30", le_15_0="0+96x30", inf="0+100x30"),
        "20m",
        SLOW,
    ),
    Case(
        "StreamFirstContentSlow",
        "four of a hundred do",
        histogram(FIRST, le_10_0="0+96x30", le_15_0="0+100x30", inf="0+100x30"),
        "20m",
        None,
    ),
    Case(
        "StreamFirstContentSlow",
        "19 streams are too few",
        histogram(FIRST, le_10_0="0x30", le_15_0="0+1.9x30", inf="0+1.9x30"),
        "20m",
        None,
    ),
    Case("StreamNoFinishShareHigh", "51 of 1000 fires", beside("no_finish", 51), "20m", NO_FINISH),
    Case("StreamNoFinishShareHigh", "49 of 1000 does not", beside("no_finish", 49), "20m", None),
    Case(
        "StreamNoFinishShareHigh",
        "a server that never sends a reason has none to miss",
        beside("no_finish", 990),
        "20m",
        None,
    ),
    Case("StreamErrorShareHigh", "51 of 1000 fires", beside("error", 51), "20m", ERRORS),
    Case("StreamErrorShareHigh", "49 of 1000 does not", beside("error", 49), "20m", None),
    Case(
        "StreamErrorShareHigh",
        "a restart is no error",
        {STOP: "0+1000x14 0+1000x15", ended("error"): "50x14 0x15"},
        "20m",
        None,
    ),
    Case(
        "StreamErrorShareHigh",
        "19 streams are too few",
        {STOP: "0+0.9x30", ended("error"): "0+1x30"},
        "20m",
        None,
    ),
    Case("StreamTimeoutShareHigh", "21 of 1000 fires", beside("timeout", 21), "20m", TIMEOUTS),
    Case("StreamTimeoutShareHigh", "19 of 1000 does not", beside("timeout", 19), "20m", None),
    Case("StreamTimeoutShareHigh", "19 streams are too few", {ended("timeout"): "0+1.9x30"}, "20m", None),
    Case("StreamEmptyShareHigh", "21 of 1000 fires", beside("empty", 21), "20m", EMPTY),
    Case("StreamEmptyShareHigh", "19 of 1000 does not", beside("empty", 19), "20m", None),
    Case("StreamEmptyShareHigh", "19 streams are too few", {ended("empty"): "0+1.9x30"}, "20m", None),
    Case(
        "StreamTailLong",
        "51 of 1000 fires",
        histogram("stream_tail_seconds", le_10_0="0+949x30", inf="0+1000x30"),
        "20m",
        TAIL,
    ),
    Case(
        "StreamTailLong",
        "49 of 1000 does not",
        histogram("stream_tail_seconds", le_10_0="0+951x30", inf="0+1000x30"),
        "20m",
        None,
    ),
    Case(
        "StreamTailLong",
        "19 streams are too few",
        histogram("stream_tail_seconds", le_10_0="0x30", inf="0+1.9x30"),
        "20m",
        None,
    ),
    Case("StreamUsageMissing", "21 % fires", {STOP: "0+1000x30", MISSING: "0+210x30"}, "25m", USAGE),
    Case("StreamUsageMissing", "19 % does not", {STOP: "0+1000x30", MISSING: "0+190x30"}, "25m", None),
    Case(
        "StreamUsageMissing", "19 answers are too few", {STOP: "0+1.9x30", MISSING: "0+1.9x30"}, "25m", None
    ),
    Case("StreamAnswersBuffered", "21 % fires", {STOP: "0+1000x30", BURSTS: "0+210x30"}, "25m", BUFFERED),
    Case("StreamAnswersBuffered", "19 % does not", {STOP: "0+1000x30", BURSTS: "0+190x30"}, "25m", None),
    Case(
        "StreamAnswersBuffered", "19 streams are too few", {STOP: "0+1.9x30", BURSTS: "0+1.9x30"}, "25m", None
    ),
    Case(
        "StreamLabelsOverflow",
        "one set too many fires at once",
        {STOP: "0+1x9", 'stream_ended_total{job="app",instance="i",otel_metric_overflow="true"}': "_ 3x5"},
        "2m",
        OVERFLOW,
    ),
    Case("StreamLabelsOverflow", "without one it does not", {STOP: "0+1x9"}, "5m", None),
    # Every ten minutes, for the sake of time. Traffic yesterday and a week ago makes traffic expected now.
    Case(
        "StreamTrafficStopped",
        "streams stopped an hour ago",
        {STOP: "0+10x1008 10080x20", ACTIVE: "0x1030"},
        "10170m",
        STOPPED,
        interval="10m",
    ),
    Case(
        "StreamTrafficStopped",
        "the metrics vanished altogether",
        {STOP: "0+10x1008", ACTIVE: "0x1008"},
        "10170m",
        STOPPED,
        interval="10m",
    ),
    Case(
        "StreamTrafficStopped",
        "one long stream is open",
        {STOP: "0+10x1008 10080x20", ACTIVE: "1x1030"},
        "10170m",
        None,
        interval="10m",
    ),
    Case(
        "StreamTrafficStopped",
        "there is some traffic",
        {STOP: "0+10x1030", ACTIVE: "0x1030"},
        "10170m",
        None,
        interval="10m",
    ),
    Case(
        "StreamTrafficStopped",
        "a first week has no last one",
        {STOP: "0+10x300 3000x20", ACTIVE: "0x320"},
        "3100m",
        None,
        interval="10m",
    ),
    Case(
        "StreamTrafficStopped",
        "19 streams in half an hour make no habit",
        {STOP: "0+6x1008 6048x20", ACTIVE: "0x1030"},
        "10170m",
        None,
        interval="10m",
    ),
    Case("StreamMonitorSilent", "no series at all", {'up{job="other"}': "1x30"}, "6m", SILENT, EXPECTED),
    Case(
        "StreamMonitorSilent",
        "series, but no stream for a quarter of an hour",
        {STOP: "9x40", ACTIVE: "0x40"},
        "30m",
        SILENT,
        EXPECTED,
    ),
    Case(
        "StreamMonitorSilent",
        "a stream that is open is not silence",
        {STOP: "9x40", ACTIVE: "1x40"},
        "30m",
        None,
        EXPECTED,
    ),
    Case(
        "StreamMonitorSilent",
        "streams that ended are not",
        {STOP: "0+1x40", ACTIVE: "0x40"},
        "30m",
        None,
        EXPECTED,
    ),
    Case(
        "StreamMonitorSilent",
        "a missed scrape or two are not",
        {STOP: "9x9 _x3 10x30", ACTIVE: "1x9 _x3 1x30"},
        "13m",
        None,
        EXPECTED,
    ),
    Case("StreamMonitorSilent", "nobody is expected by default", {'up{job="other"}': "1x30"}, "20m", None),
)
