"""`midstream demo` as a newcomer runs it, only faster: in a process of its own, over real sockets."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rich.console import Console

from midstream.cli import main
from midstream.cli._demo_live import Timeline
from midstream.cli._demo_load import scrape
from waiting import until

# A shell that starts a job in the background makes it ignore Ctrl-C; this program never does.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from midstream.cli import main
sys.exit(main(["demo", *sys.argv[1:]]))
"""

# What a machine may have set, and what must make no difference.
HOSTILE = {
    "MIDSTREAM_DISABLED": "1",
    "MIDSTREAM_ATTRIBUTES": "nonsense",
    "OTEL_SDK_DISABLED": "true",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "ALL_PROXY": "http://127.0.0.1:9",
    "OPENAI_BASE_URL": "http://127.0.0.1:9",
}

GAPS_S = (0.126, 0.747, 0.749, 0.746, 2.564, 4.940, 7.644, 8.114)
"""The longest gap of each stream, as it was recorded."""


@contextmanager
def running(*arguments: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """Run the demo in a process of its own, which is gone when the block ends."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], text=True, **streams) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Return the match in the first line on standard error that has one."""
    assert process.stderr is not None
    for line in process.stderr:
        match = re.search(pattern, line)
        if match is not None:
            return match
    raise AssertionError(f"{pattern!r} was never said")


def value_of(metric: str, page: str) -> float:
    """Return the sum of a metric's samples on a page for Prometheus."""
    return sum(float(value) for value in re.findall(rf"^{metric}\{{.*\}} (\S+)$", page, re.MULTILINE))


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [line.split() for line in listed.stdout.splitlines()]
    return [int(child) for child, parent in pairs if int(parent) == pid]


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that only nobody has asked for its status does not."""
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip() != "" and not listed.stdout.startswith("Z")


@pytest.fixture(scope="module")
def done() -> subprocess.CompletedProcess[str]:
    """Run the whole demo once, fast, yet so that a busy machine does not add freezes of its own."""
    with running("--speed", "4", env={**os.environ, **HOSTILE}) as process:
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_it_ends_well_whatever_the_machine_has_set(done: subprocess.CompletedProcess[str]) -> None:
    """No key, no proxy and no setting of the machine has a part in it; into a pipe goes plain text only."""
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_it_says_at_once_what_is_replayed_and_where_the_metrics_are(
    done: subprocess.CompletedProcess[str],
) -> None:
    """Figures are those of the recording, and what is not real is named."""
    introduction = re.sub(r"127\.0\.0\.1:\d+", "HOST", done.stderr.partition("\n\n")[0])
    assert introduction == (
        "A real server's overload, recorded from vLLM 0.32, replayed 4 times as fast: 6 s\n"
        "8 users at once need 5,992 tokens of KV cache, and the server has 3,584.\n"
        "Arrival times are real, the words are placeholders. Each user is an AsyncOpenAI\n"
        "client in monitor(); a silence of 0.5 s is a freeze (5 s, if nothing is said).\n"
        "The metrics, meanwhile: curl http://HOST/metrics"
    )


@pytest.mark.parametrize("stream", [5, 6, 7, 8])
def test_a_freeze_is_told_when_it_begins_and_when_it_ends(
    stream: int, done: subprocess.CompletedProcess[str]
) -> None:
    """Without a terminal there is a line for each event, in their order."""
    events = [line.split("  ")[-1] for line in done.stderr.splitlines() if f"stream {stream} " in line]
    froze = next(number for number, event in enumerate(events) if " froze: silent for 0." in event)
    assert any(" goes on after " in event for event in events[froze + 1 :])
    assert f"stream {stream} ended: completed after " in events[-1]


@pytest.mark.parametrize(("stream", "recorded_s"), list(enumerate(GAPS_S, start=1)))
def test_every_stream_has_its_record(
    stream: int, recorded_s: float, done: subprocess.CompletedProcess[str]
) -> None:
    """The longest gap is the recorded one, and where that is long the stream froze."""
    row = re.search(
        rf"^ +{stream} +(\d\.\d\d) s +(\d\.\d\d) s at \d\.\d s +(\d+) +completed +length +700/700  .*■",
        done.stdout,
        re.MULTILINE,
    )
    assert row is not None
    first_content_s, gap_s, freezes = float(row[1]), float(row[2]), int(row[3])
    assert first_content_s < 2
    assert recorded_s / 4 - 0.1 < gap_s < recorded_s / 4 + 1
    assert freezes >= (stream >= 5)


def test_the_metrics_are_shown_as_prometheus_gets_them(done: subprocess.CompletedProcess[str]) -> None:
    """Gauges while streams were frozen, then what the run has moved, every line less the common labels."""
    _, _, metrics = done.stdout.partition("The metrics")
    assert re.search(r'# every line also has .*gen_ai_request_model="over8", server_address="127', metrics)
    meanwhile, _, end = metrics.partition("# at the end, what has moved")
    assert re.search(r"^# at \d\.\d s, when the last freeze began$", meanwhile, re.MULTILINE)
    for name in ("stream_active", "stream_frozen", "stream_open_gap_seconds"):
        assert re.search(rf"^{name} \d+\.\d+$", meanwhile, re.MULTILINE)
    buckets = re.findall(r'^stream_max_gap_seconds_bucket\{le="[\d.]+"\} ([\d.]+)$', end, re.MULTILINE)
    assert buckets[-1] == "8.0"
    assert buckets == sorted(set(buckets))
    freezes = re.search(r"^stream_freezes_total ([\d.]+)$", end, re.MULTILINE)
    assert freezes is not None
    assert float(freezes[1]) >= 4
    assert re.search(r"^stream_frozen_time_seconds_total \d+\.\d+$", end, re.MULTILINE)
    assert 'stream_ended_total{outcome="completed",finish_reason="length"} 8.0\n' in end
    assert "stream_limit_hits_total 8.0\n" in end


def test_it_closes_with_what_happened_and_what_to_do(done: subprocess.CompletedProcess[str]) -> None:
    """Two sentences, whole on their lines, from what was seen."""
    happened, next_ = done.stdout.splitlines()[-2:]
    assert re.match(
        r"What happened: \d of 8 answers stopped in mid-sentence, for \d\.\d\d to \d\.\d\d s: the server had "
        r"admitted more than its KV cache holds, and evicted some to finish others; ",
        happened,
    )
    assert next_ == (
        "What to do next: see whether your own server does this with midstream probe URL, "
        "and keep watching from your own code with client = monitor(OpenAI())."
    )


def test_a_threshold_that_nothing_reaches_is_no_freeze() -> None:
    """The closing words go by the records, not by what was expected."""
    with running("--speed", "20", "--freeze-after", "30") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "froze" not in err
    assert "stream_freezes_total" not in out
    assert "What happened: No answer was silent for 30 s, the longest for " in out


def test_the_metrics_are_served_while_it_runs_and_kept_on_request() -> None:
    """A second terminal can watch the run, and look at the result until Ctrl-C; the port is free afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running("--speed", "4", "--port", str(port), "--keep", stdout=subprocess.DEVNULL) as process:
        url = told(process, r"curl (http://\S+)")[1]
        assert url == f"http://127.0.0.1:{port}/metrics"
        until(lambda: value_of("stream_frozen", scrape(url)) >= 2, timeout_s=30)
        told(process, rf"^Ctrl-C ends it; until then: curl {url}$")
        page = scrape(url)
        assert value_of("stream_ended_total", page) == 8
        assert value_of("stream_active", page) == 0
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    assert (process.returncode, said) == (130, "")
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize(("end", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_nothing_outlives_it(end: signal.Signals, status: int) -> None:
    """Ctrl-C in the middle ends it with 130 and no word; even if it is killed, the server's process goes."""
    with running() as process:
        url = told(process, r"curl (http://\S+)")[1]
        until(lambda: value_of("stream_active", scrape(url)) == 8, timeout_s=30)
        started = children(process.pid)
        assert len(started) == 1
        process.send_signal(end)
        out, said = process.communicate(timeout=10)
    assert (process.returncode, out, said.strip()) == (status, "", "")
    until(lambda: not any(alive(pid) for pid in started))


def test_a_terminal_shows_every_stream_live_and_is_given_back() -> None:
    """Frozen streams are marked with a word; after Ctrl-C the cursor is back and the table gone."""
    terminal, side = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40", "NO_COLOR": "1"}
    with running("--speed", "4", stdout=side, stderr=side, env=env) as process:
        os.close(side)
        shown = b""
        while not (frozen := [frame for frame in frames(shown) if re.search(r"\d  FROZEN ", frame)]):
            shown += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        shown += read_all(terminal)
        assert process.wait(timeout=10) == 130
    os.close(terminal)
    for stream in range(1, 9):
        state = r"(FROZEN|silent|streaming|ended) +\d+ +(\d\.\d s ago)? +\d\.\d\d s +\d+ "
        assert re.search(rf"^ +{stream}  {state}", frozen[0], re.MULTILINE)
    assert re.search(r"  FROZEN +\d+ +\d\.\d s ago +\d\.\d\d s +[1-9] .*■·", frozen[0])
    assert re.findall(rb"\x1b\[\?25[hl]", shown) == [b"\x1b[?25l", b"\x1b[?25h"]


def frames(shown: bytes) -> list[str]:
    """Return the tables that a terminal has shown from the heading on, the one in progress left out."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode(errors="replace"))
    return plain.split("last content")[1:-1]


def read_all(terminal: int) -> bytes:
    """Return what was written to a terminal until nobody has it open any more."""
    said = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:
            return said
        if not part:
            return said
        said += part


def test_a_port_in_use_is_one_sentence() -> None:
    """It says which port, and how to get another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running("--port", str(port)) as process:
            out, said = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert said == (
        f"midstream: /metrics cannot be served on port {port}: Address already in use; "
        "choose another, or leave --port out to get a free one\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--speed", "0"], "Invalid value for --speed: 0.0 is not above 0 and up to 20"),
        (["--speed", "nan"], "Invalid value for --speed: nan is not above 0 and up to 20"),
        (["--speed", "21"], "Invalid value for --speed: 21.0 is not above 0 and up to 20"),
        (
            ["--freeze-after", "-1"],
            "Invalid value for --freeze-after: -1.0 is not a positive number of seconds",
        ),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake is named before anything starts."""
    assert main(["demo", *arguments]) == 2
    assert capsys.readouterr() == ("", f"midstream: {sentence}; `midstream demo --help` explains\n")


def test_help_shows_lines_to_copy(capsys: pytest.CaptureFixture[str]) -> None:
    """Each on a line of its own."""
    assert main(["demo", "--help"]) == 0
    examples = re.findall(r"^  midstream demo .*  \S", capsys.readouterr().out, re.MULTILINE)
    assert len(examples) == 4


@pytest.mark.parametrize(
    ("encoding", "line"), [("utf-8", "  ■■■■··■■  "), ("ascii", "  ====..==  "), ("cp437", "  ====..==  ")]
)
def test_a_timeline_tells_a_freeze_by_its_shape(encoding: str, line: str) -> None:
    """One cell a second here; where the terminal knows no such signs, plain ones stand in."""
    page = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=page, width=12).print(Timeline((2.0, 10.0), [(6.0, 8.0)], 12.0, ended=False))
    page.seek(0)
    assert page.read().rstrip("\n") == line
