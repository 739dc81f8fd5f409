"""The files by which the workers of a service share their metrics: private, few, and nothing else is touched."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.core import Metric

from midstream.telemetry.exporters.aggregation import from_json, merged, to_json
from midstream.telemetry.exporters.process_tree import ProcessId, own_id, process_id, service_root
from midstream.telemetry.exporters.prometheus import PrometheusEndpoint
from midstream.telemetry.exporters.worker_files import WorkerFiles
from real.programs import fetch

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers share on POSIX systems")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MIDSTREAM_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path / "runtime"


@pytest.fixture
def ended() -> ProcessId:
    """A process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = process_id(process.pid)
        assert found is not None
        states = [found.is_alive]
        process.communicate(b"\n")
    assert [*states, found.is_alive] == [True, False]
    return found


def family(kind: str, name: str, **samples: float) -> Metric:
    made = Metric(name, "help", kind)
    for label, value in samples.items():
        made.add_sample(name, {"model": label}, value)
    return made


def values(families: list[Metric]) -> dict[tuple[str, str], float]:
    return {(each.name, sample.labels["model"]): sample.value for each in families for sample in each.samples}


# Adding up


def test_counters_and_gauges_are_added_and_of_open_gaps_the_largest_counts() -> None:
    one = [
        family("counter", "calls", a=1, b=2),
        family("gauge", "stream_active", a=1),
        family("gauge", "stream_open_gap_seconds", a=7.0),
        family("histogram", "gaps", a=1),
    ]
    other = [
        family("counter", "calls", b=3, c=4),
        family("gauge", "stream_active", a=2),
        family("gauge", "stream_open_gap_seconds", a=3.0),
        family("histogram", "gaps", a=2),
    ]

    assert values(merged([one, other])) == {
        ("calls", "a"): 1,
        ("calls", "b"): 5,
        ("calls", "c"): 4,
        ("stream_active", "a"): 3,
        ("stream_open_gap_seconds", "a"): 7.0,
        ("gaps", "a"): 3,
    }


def test_what_is_written_is_read_back_and_of_the_ended_only_what_goes_on_counting() -> None:
    families = [family("counter", "calls", a=1), family("gauge", "stream_active", a=2)]

    assert values(from_json(json.loads(json.dumps(to_json(families))))) == values(families)
    assert values(from_json(to_json(families, totals_only=True))) == {("calls", "a"): 1}


@pytest.mark.parametrize(
    "content",
    [None, 3, {}, [3], [["calls", "help", "counter"]], [["calls", "help", "no kind", []]],
     [["calls", "help", "counter", [["calls", {}, "many"]]]], [["calls", "help", "counter", [["calls", 3, 1]]]]],
)  # fmt: skip
def test_what_is_no_family_is_left_out(content: object) -> None:
    good = to_json([family("counter", "good", a=1)])
    if isinstance(content, list):
        assert values(from_json([*content, *good])) == {("good", "a"): 1}
    else:
        assert from_json(content) == []


# Files


def test_nothing_is_written_until_a_worker_does(runtime: Path) -> None:
    files = WorkerFiles(own_id(), "127.0.0.1 9464")

    assert not files.exist()
    assert not runtime.exists()
    assert files.write([])
    assert files.exist()
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    assert stat.S_IMODE(files.directory.stat().st_mode) == 0o700
    (file,) = files.directory.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_worker_that_has_ended_is_told_from_one_that_runs(runtime: Path, ended: ProcessId) -> None:
    files = WorkerFiles(own_id(), "127.0.0.1 9464")
    files.write(["own"])
    parent = process_id(os.getppid())
    assert parent is not None
    (files.directory / f"{parent.pid}.{parent.started}.json").write_text('["parent"]')
    (files.directory / f"{ended.pid}.{ended.started}.json").write_text('["ended"]')
    (files.directory / "notes.txt").write_text("no worker")

    running, over, totals = files.read()

    assert running == [["parent"]]
    assert over == [(f"{ended.pid}.{ended.started}.json", ["ended"])]
    assert totals == {"names": [], "families": []}


def test_totals_are_counted_once_wherever_a_crash_comes(runtime: Path, ended: ProcessId) -> None:
    """Between the totals and the removal of what went into them, the file is there twice."""
    files = WorkerFiles(own_id(), "127.0.0.1 9464")
    files.write([])
    name = f"{ended.pid}.{ended.started}.json"
    (files.directory / name).write_text('["ended"]')
    files.keep_totals([name], ["totals"])
    assert not (files.directory / name).exists()

    (files.directory / name).write_text('["ended"]')  # as if it had not been removed

    assert files.read() == ([], [], {"names": [name], "families": ["totals"]})


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "\xff"], ids=["empty", "cut", "deep", "no text"])
def test_a_damaged_file_costs_itself_alone(runtime: Path, ended: ProcessId, content: str) -> None:
    files = WorkerFiles(own_id(), "127.0.0.1 9464")
    files.write([])
    for name in (f"{ended.pid}.{ended.started}.json", "ended.json"):
        (files.directory / name).write_text(content, encoding="latin-1")

    assert files.read() == ([], [], {"names": [], "families": []})


@pytest.mark.parametrize("which", ["base", "directory"])
@pytest.mark.parametrize("what", ["a link", "open to others", "a file"])
def test_a_directory_that_is_not_private_is_not_used(
    tmp_path: Path, runtime: Path, which: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is written through it, nothing in it is read, and the log says so once."""
    files = WorkerFiles(own_id(), "127.0.0.1 9464")
    place = runtime if which == "base" else files.directory
    place.parent.mkdir(mode=0o700, exist_ok=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if what == "a link":
        place.symlink_to(elsewhere)
    elif what == "open to others":
        place.mkdir(mode=0o700)
        place.chmod(0o755)
    else:
        place.write_text("")
    caplog.set_level(logging.WARNING)

    assert not files.write(["own"])
    assert not files.write(["own"])
    assert list(elsewhere.iterdir()) == []
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("the workers of this service cannot share their metrics in ")
    assert line.endswith("set MIDSTREAM_RUNTIME_DIR to a directory of this user")


def test_a_link_among_the_files_is_neither_read_nor_written_through(
    tmp_path: Path, runtime: Path, ended: ProcessId
) -> None:
    files = WorkerFiles(own_id(), "127.0.0.1 9464")
    files.write([])
    target = tmp_path / "target"
    target.write_text('["secret"]')
    (files.directory / f"{ended.pid}.{ended.started}.json").symlink_to(target)
    own = own_id()
    (files.directory / f"{own.pid}.{own.started}.new").symlink_to(target)

    assert files.read()[1] == []
    assert files.write(["own"])
    assert target.read_text() == '["secret"]'


def test_what_ended_services_left_is_removed(runtime: Path, ended: ProcessId) -> None:
    old = WorkerFiles(ended, "127.0.0.1 9464")
    old.write([])
    own = own_id()
    (old.directory / f"{own.pid}.{own.started}.json").rename(
        old.directory / f"{ended.pid}.{ended.started}.json"
    )
    kept = runtime / "something else"
    kept.mkdir()
    new = WorkerFiles(own_id(), "127.0.0.1 9464")

    new.write([])

    assert not old.directory.exists()
    assert kept.exists()


# Processes


def test_a_program_that_was_started_is_its_own_root_and_a_fork_has_that_of_its_parent() -> None:
    program = """
import multiprocessing, os, sys
from midstream.telemetry.exporters.prometheus import PrometheusEndpoint
from midstream.telemetry.exporters.process_tree import own_id, service_root
def show(): print(service_root().pid, flush=True)
if __name__ == "__main__":
    print(own_id().pid, flush=True)
    show()
    if os.fork() == 0:
        show()
        if os.fork() == 0:
            show()
            os._exit(0)
        os.wait()
        os._exit(0)
    os.wait()
    process = multiprocessing.get_context("fork").Process(target=show)
    process.start()
    process.join()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    own, *roots = done.stdout.split()

    assert roots == [own] * 4
    assert service_root() == service_root()


def test_totals_are_kept_by_one_worker_at_a_time(runtime: Path, ended: ProcessId) -> None:
    """While another has the lock, what has ended is on the page as before, and stays in its own file."""
    endpoint = PrometheusEndpoint("127.0.0.1", 0)
    try:
        files = WorkerFiles(own_id(), f"127.0.0.1 {endpoint.url.split(':')[2].split('/')[0]} ")
        files.make()
        left = files.directory / f"{ended.pid}.{ended.started}.json"
        left.write_text(json.dumps(to_json([family("counter", "calls", a=4)])))
        endpoint.start()
        holder = [sys.executable, "-c", _HOLD_LOCK, str(files.directory / "lock")]
        with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert 'calls{model="a"} 4.0' in fetch(endpoint.url).decode()
            assert left.exists()
            process.communicate(b"\n")

        assert 'calls{model="a"} 4.0' in fetch(endpoint.url).decode()
        assert not left.exists()
        assert 'calls{model="a"} 4.0' in fetch(endpoint.url).decode()
    finally:
        endpoint.close()


_HOLD_LOCK = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    input()
"""
