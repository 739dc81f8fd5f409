"""A dead collector costs a stream nothing, the log one line, and the end of a process a bounded time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from support.paths import TESTS

SHUTDOWN_S = 1.0
SLACK_S = 4.0
"""For a busy machine. Without a bound of ours the same ends take from 13 to 20 s."""

PROGRAM = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import midstream
from midstream.telemetry.recorder import Recorder
from support.records import a_call, a_record

midstream.setup(export_interval_s=0.2, shutdown_timeout_s=float(sys.argv[2]))
recorder = Recorder(None, list)
labels = recorder.labels(a_call(), {})
recorder.opened(labels)
slowest, until = 0.0, time.monotonic() + 1.0  # time for several exports to begin
while time.monotonic() < until:
    began = time.monotonic()
    recorder.froze(labels, None)
    recorder.ended(labels, a_record(max_gap_s=1.0), None)
    slowest = max(slowest, time.monotonic() - began)
print(json.dumps({"slowest_s": slowest, "ends_at": time.monotonic()}))
"""


@dataclass(frozen=True)
class End:
    """How a process came to its end."""

    took_s: float
    slowest_s: float
    status: int
    log: list[str]
    target: str


@pytest.fixture(scope="module")
def ends() -> Iterator[dict[tuple[str, str], End]]:
    """Run a process against each kind of dead collector, all at once."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    tests = str(TESTS)
    with ExitStack() as cleanup:
        started = {}
        for death in ("refuses", "never answers"):
            collector = cleanup.enter_context(socket.socket())
            collector.bind(("127.0.0.1", 0))
            if death == "never answers":
                collector.listen()  # the kernel accepts, and nobody reads
            target = f"127.0.0.1:{collector.getsockname()[1]}"
            for protocol in ("grpc", "http/protobuf"):
                environ = {
                    **own,
                    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{target}",
                    "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                }
                process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, tests, str(SHUTDOWN_S)],
                    env=environ,
                    text=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                started[death, protocol] = cleanup.enter_context(process), target
        yield {which: end(*running) for which, running in started.items()}


def end(process: subprocess.Popen[str], target: str) -> End:
    """Time a process from its last statement to its last breath."""
    assert process.stdout is not None
    assert process.stderr is not None
    said = json.loads(process.stdout.readline())  # printed as the last statement, written at the very end
    log = process.stderr.read().splitlines()
    status = process.wait(60)
    return End(time.monotonic() - said["ends_at"], said["slowest_s"], status, log, target)


each = pytest.mark.parametrize(
    "which", [(death, how) for death in ("refuses", "never answers") for how in ("grpc", "http/protobuf")]
)


@each
def test_a_process_ends_in_time_and_well(ends: dict[tuple[str, str], End], which: tuple[str, str]) -> None:
    """The last sending is given up when its time is over, with nothing broken."""
    assert ends[which].status == 0
    assert ends[which].took_s < SHUTDOWN_S + SLACK_S


@each
def test_recording_does_not_wait_for_the_collector(
    ends: dict[tuple[str, str], End], which: tuple[str, str]
) -> None:
    """The slowest of thousands of streams, recorded while exports hang, is far from any timeout of theirs."""
    assert ends[which].slowest_s < 0.5


@each
def test_the_log_gets_one_line(ends: dict[tuple[str, str], End], which: tuple[str, str]) -> None:
    """It says where metrics do not arrive, and that nothing else is wrong."""
    (line,) = ends[which].log

    assert line.startswith(f"midstream: metrics do not reach {ends[which].target} (")
    assert line.endswith("); streams are unaffected, and this is not logged again until it works")
