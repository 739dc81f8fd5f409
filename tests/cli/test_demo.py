"""`midstream demo` as a newcomer runs it, only faster: in processes of its own, over real sockets."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from midstream.cli import main
from midstream.cli.demo.live import AnswerTimeline
from midstream.cli.demo.story import ANSWERS, first_act
from midstream.journal import read
from support.waiting import until

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


@contextmanager
def running(*arguments: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """Run the demo in a process of its own, which is gone when the block ends."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    command = [sys.executable, "-m", "midstream", "demo", *arguments]
    with subprocess.Popen(command, text=True, **streams) as process:
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


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that these have started, and so on."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    found = [pid]
    for parent in found:
        found += [child for child, its_parent in pairs if its_parent == parent]
    return found[1:]


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that only nobody has asked for its status does not."""
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip() != "" and not listed.stdout.startswith("Z")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo keeps its streams."""
    return tmp_path_factory.mktemp("demo") / "streams.db"


@pytest.fixture(scope="module")
def done(journal: Path) -> subprocess.CompletedProcess[str]:
    """Run the whole demo once, fast, yet so that a busy machine does not add freezes of its own."""
    with running("--speed", "2", "--journal", str(journal), env={**os.environ, **HOSTILE}) as process:
        out, err = process.communicate(timeout=150)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_it_ends_well_whatever_the_machine_has_set(done: subprocess.CompletedProcess[str]) -> None:
    """No key, no proxy and no setting of the machine has a part in it; into a pipe goes plain text only."""
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_at_its_own_pace_it_takes_about_a_minute() -> None:
    """What the two acts are simulated to last, a tenth added, leaves some seconds for the rest."""
    before = first_act(1.0)
    assert before.lasts_s + before.capped(8).lasts_s < 60


def test_it_says_at_once_what_is_emulated(done: subprocess.CompletedProcess[str]) -> None:
    """How many request how much, of which server, and what is a freeze."""
    assert done.stderr.partition("\n\n")[0] == (
        "A vLLM with a small KV cache, emulated 2 times as fast as a recorded one: 14 s\n"
        "16 users at once need 5,752 tokens of KV cache, and the server has 3,072.\n"
        "Each is an OpenAI client in monitor(), a process of its own, and requests 2 answers.\n"
        "A gap of 1 s is a freeze here; the default of monitor() is 5 s."
    )


def test_a_freeze_is_printed_when_it_begins_and_when_it_ends(done: subprocess.CompletedProcess[str]) -> None:
    """Without a terminal there is a line for each event, in their order."""
    overload, _, _ = done.stderr.partition("The same load")
    frozen = set(re.findall(r"user (\d+): FROZEN, no output for 1\.\d\d s so far", overload))
    assert len(frozen) >= 3
    for user in frozen:
        events = [line.split("  ")[-1] for line in overload.splitlines() if f"user {user}: " in line]
        froze = next(number for number, event in enumerate(events) if ": FROZEN, " in event)
        assert any(": goes on after a gap of " in event for event in events[froze + 1 :])
        assert f"user {user}: completed after " in events[-1]


def test_every_stream_that_froze_has_its_row(done: subprocess.CompletedProcess[str]) -> None:
    """Simulated at its own pace 11 of 32 freeze, for 2.2 to 5.8 s; here half as long."""
    rows = re.findall(
        r"^ +(\d+) +(\d+\.\d\d) s +(\d\.\d\d) s at \d+\.\d s +(\d+) +completed +stop +(\d+)/1024  .*■",
        done.stdout,
        re.MULTILINE,
    )
    assert 5 <= len(rows) <= 20
    assert all(int(row[4]) in ANSWERS and int(row[3]) >= 1 for row in rows)
    gaps = [float(row[2]) for row in rows]
    assert min(gaps) >= 1.0
    assert 1.5 < max(gaps) < 6
    assert f"The longest gap of the {32 - len(rows)} other streams: 0." in done.stdout


def test_the_advice_follows_from_what_was_seen(done: subprocess.CompletedProcess[str]) -> None:
    """Lengths from the records, the pool from the server's own page, and a line to copy."""
    advice = next(line for line in done.stdout.splitlines() if line.startswith("The advice: "))
    assert "answers have 310 tokens on average, 95 of 100 at most 325, and prompts 49." in advice
    assert "a KV cache of 3,072 tokens: 8 such streams fit, even if all of them are long." in advice
    assert "\n    vllm serve ... --max-num-active-seqs 8\n" in done.stdout


def test_before_and_after_stand_side_by_side(done: subprocess.CompletedProcess[str]) -> None:
    """Freezes and preemptions are gone, tokens are not, and the cost is named."""
    _, _, table = done.stdout.partition("Before and after")
    cells = {line[:36].strip(): re.split(r" {2,}", line[36:].strip()) for line in table.splitlines()[2:10]}
    frozen = [int(cell.removesuffix(" of 32")) for cell in cells["frozen streams"]]
    assert frozen[0] >= 5
    assert frozen[1] == 0
    preemptions = [int(cell) for cell in cells["preemptions, by the server's count"]]
    assert preemptions[0] >= 10
    assert preemptions[1] == 0
    first = [float(cell.removesuffix(" s")) for cell in cells["time to first token, worst"]]
    assert first[0] < first[1] < 10
    rates = [int(cell) for cell in cells["tokens per second, all streams"]]
    assert 0.8 < rates[1] / rates[0] < 1.2
    assert re.search(r"^Result: no stream froze\. ", table, re.MULTILINE)
    assert done.stdout.splitlines()[-1].startswith("Next: midstream probe URL tries your own server; ")


def test_an_answer_that_stops_is_continued_by_a_second_server(
    done: subprocess.CompletedProcess[str],
) -> None:
    """Simulated at its own pace it stops after 4.6 s for 7.4 s; here half as long, and the timeout is one second."""
    said = next(line for line in done.stdout.splitlines() if line.startswith("A stall timeout: "))
    found = re.fullmatch(
        r"A stall timeout: after (\d+) tokens the server sent nothing for (\d+\.\d) s\. monitor\(OpenAI\(\), "
        r"stall_timeout_s=1\) ended the read with StreamStalled, and the second server continued the answer, which was "
        r"complete after (\d+\.\d) s\. Without the timeout the answer stops for 3\.7 s and is complete after 6\.8 s "
        r"\(simulated\)\.",
        said,
    )
    assert found is not None, said
    assert 0 < int(found[1]) < 400
    assert float(found[2]) >= 1.0
    assert float(found[3]) > float(found[2])
    assert re.search(r"^ +\d+\.\d\d s  the answer is complete$", done.stderr, re.MULTILINE)


def commands_of(done: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    """The commands that a demo with a journal prints at its end, by their names."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.startswith("    midstream ")]
    split = [shlex.split(line)[1:] for line in lines]
    return {" ".join(words[: 2 if words[0] == "advise" else 1]): words for words in split}


def test_each_command_that_it_prints_goes_on_from_its_streams(
    done: subprocess.CompletedProcess[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """They all succeed, and agree with the demo: about the same cap, and better after it.

    On a machine that had too little time for the emulated server, the model does not reproduce what was measured; then
    no cap is advised, and the output says so.
    """
    commands = commands_of(done)
    assert list(commands) == ["report", "advise max-tokens", "advise concurrency", "compare"]
    shown = {}
    for name, words in commands.items():
        status = main(words)
        shown[name] = capsys.readouterr().out
        refused = name == "advise concurrency" and "No cap is advised from this model" in shown[name]
        assert status == (3 if refused else 0), name
    assert shown["report"].startswith("64 streams begun from ")
    assert re.search(r"^Set max_tokens to 32\d: ", shown["advise max-tokens"], re.MULTILINE)
    assert "\nCaps from the lengths alone: 8 (never" in shown["advise concurrency"]
    if "No promise: " not in shown["advise concurrency"]:
        assert re.search(
            r"^  --max-num-active-seqs ([5-9]|1[0-2]) ", shown["advise concurrency"], re.MULTILINE
        )
    assert "\nBetter: the share of streams that froze fell from " in shown["compare"]


def test_another_run_into_the_same_journal_is_not_mixed_with_it(
    done: subprocess.CompletedProcess[str], journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The streams of each run have an attribute of their own, which the printed commands choose by."""
    with running("--speed", "10", "--journal", str(journal)) as process:
        _, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    assert f"midstream: 64 streams of this run are in {journal}. " in err
    second = commands_of(subprocess.CompletedProcess([], 0, "", err))
    assert "run=demo-1" in commands_of(done)["compare"]
    assert "run=demo-2" in second["compare"]
    for words in (commands_of(done)["report"], second["report"]):
        assert main(words) == 0
        assert capsys.readouterr().out.startswith("64 streams begun from ")
    assert len(read(journal).records) == 128


def test_a_journal_that_cannot_be_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody waits a minute to learn it."""
    other = tmp_path / "notes.txt"
    other.write_text("x" * 5000)
    assert main(["demo", "--journal", str(tmp_path / "none" / "streams.db")]) == 1
    assert main(["demo", "--journal", str(other)]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == (
        f"midstream: there is no folder {tmp_path / 'none'} for {tmp_path / 'none' / 'streams.db'}; "
        "make it, or name another file"
    )
    assert second.startswith(f"midstream: {other} is no")
    assert other.read_text() == "x" * 5000


@pytest.mark.parametrize(
    ("end", "status", "word"),
    [
        (
            signal.SIGINT,
            130,
            (
                "midstream: interrupted; the emulated server and its 16 clients are stopped, and nothing of them is "
                "left behind"
            ),
        ),
        (signal.SIGKILL, -signal.SIGKILL, ""),
    ],
)
def test_nothing_outlives_it(end: signal.Signals, status: int, word: str) -> None:
    """Ctrl-C in the middle ends it with 130 and a word; even if it is killed, server and users go."""
    with running(start_new_session=True) as process:
        told(process, r"is a freeze here")
        until(lambda: len(descendants(process.pid)) >= 18, timeout_s=30)
        started = descendants(process.pid)
        if end == signal.SIGINT:
            os.killpg(process.pid, end)  # as a terminal does: the users get it, too
        else:
            process.send_signal(end)
        out, said = process.communicate(timeout=60)
    assert (process.returncode, out, said.strip()) == (status, "", word)
    until(lambda: not any(alive(pid) for pid in started))


def test_a_terminal_shows_every_stream_live_and_is_given_back() -> None:
    """Frozen streams are marked with a word; after Ctrl-C the cursor is back and the table gone."""
    terminal, side = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40", "NO_COLOR": "1"}
    with running("--speed", "2", stdout=side, stderr=side, env=env) as process:
        os.close(side)
        shown = b""
        while not (frozen := [frame for frame in frames(shown) if re.search(r"\d  FROZEN ", frame)]):
            shown += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        shown += read_all(terminal)
        assert process.wait(timeout=60) == 130
    os.close(terminal)
    assert b"midstream: interrupted; the emulated server and its 16 clients are stopped" in shown
    for stream in range(1, 17):
        state = r"(FROZEN|silent|streaming|waiting|ended) +\d+ +(\d\.\d s ago)? +\d\.\d\d s +\d+ "
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


@pytest.mark.parametrize(("speed", "shown"), [("0", "0.0"), ("nan", "nan"), ("11", "11.0")])
def test_wrong_usage_is_one_sentence(speed: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake is named before anything starts."""
    assert main(["demo", "--speed", speed]) == 2
    sentence = f"Invalid value for --speed: {shown} is not above 0 and up to 10"
    assert capsys.readouterr() == ("", f"midstream: {sentence}; `midstream demo --help` explains\n")


def test_help_shows_lines_to_copy(capsys: pytest.CaptureFixture[str]) -> None:
    """Each on a line of its own."""
    assert main(["demo", "--help"]) == 0
    examples = re.findall(r"^  midstream demo .*  \S", capsys.readouterr().out, re.MULTILINE)
    assert len(examples) == 3


@pytest.mark.parametrize(
    ("encoding", "line"), [("utf-8", "  ■■■■··■■  "), ("ascii", "  ====..==  "), ("cp437", "  ====..==  ")]
)
def test_a_timeline_tells_a_freeze_by_its_shape(encoding: str, line: str) -> None:
    """One cell a second here; where the terminal knows no such signs, plain ones stand in."""
    page = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=page, width=12).print(AnswerTimeline([(2.0, 10.0)], [(6.0, 8.0)], 12.0, ended=False))
    page.seek(0)
    assert page.read().rstrip("\n") == line
