"""The journal among real processes: several at once, killed, forked, at their exit, and on disks that refuse."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from midstream.journal import Journal, read, read_records
from support import apart
from support.made_files import made_files
from support.records import a_record
from support.waiting import until

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the way to have it happen is Linux's")
HEAD = """
import os, sys, time
from support import records  # of the tests; importing it makes internal failures raise
from midstream._support import internal_errors
internal_errors.RAISE = False
from midstream.journal import Journal
def a_record(chunks):
    return records.a_record(started_at=time.time(), chunks=chunks)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "streams.db"


@contextmanager
def started(body: str, *args: object) -> Iterator[subprocess.Popen[str]]:
    """A piece of Python at work in a process of its own, killed at the end if it is still there."""
    piece = f"import sys; sys.path[:0] = {sys.path!r}\n{HEAD}\n{textwrap.dedent(body)}"
    # Newer Pythons warn of every fork of a process with threads, whose threads ours are not the first of.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", piece, *map(str, args)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run(body: str, *args: object) -> tuple[str, str]:
    """Run a piece of Python to its end, and give what it printed and what it complained of."""
    with started(body, *args) as process:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return out, err


def wait_for_records(path: Path, most: int) -> None:
    until(lambda: path.exists() and len(chunks_in(path)) > most)


def chunks_in(path: Path) -> list[int]:
    return sorted(record.chunks for record in read_records(path))


def test_four_processes_write_one_journal_and_nothing_is_lost_or_doubled(path: Path) -> None:
    """They start together, so that all of them find no journal and make one."""
    body = """
        journal = Journal(sys.argv[1])
        sys.stdin.readline()
        for n in range(500):
            journal.write(a_record(1000 * int(sys.argv[2]) + n))
            if n % 100 == 99:
                time.sleep(0.2)  # so that the four write meanwhile, and in several commits
    """
    with (
        started(body, path, 1) as one,
        started(body, path, 2) as two,
        started(body, path, 3) as three,
        started(body, path, 4) as four,
    ):
        together = [one, two, three, four]
        for process in together:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.communicate(timeout=60)[1] for process in together] == [""] * 4
        assert [process.returncode for process in together] == [0] * 4

    assert chunks_in(path) == sorted(1000 * k + n for k in range(1, 5) for n in range(500))
    assert read(path).dropped == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_that_find_no_journal_at_the_same_moment_make_one(path: Path) -> None:
    """Nobody takes a journal that is half made for the database of somebody else."""
    body = """
        for attempt in range(25):
            path = f"{sys.argv[1]}.{attempt}"
            go = time.monotonic() + 0.03
            children = []
            for n in range(6):
                children.append(os.fork())
                if children[-1] == 0:
                    journal = Journal(path, threaded=False)
                    journal.write(a_record(n))
                    while time.monotonic() < go:
                        pass
                    os._exit(0 if journal.close(5.0) else 1)
            assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    """
    assert run(body, path) == ("", "")

    for attempt in range(25):
        assert chunks_in(Path(f"{path}.{attempt}")) == list(range(6))


@LINUX
@pytest.mark.parametrize("come_to", ["nothing", "the empty file", "the first page", "the write-ahead log"])
def test_a_journal_is_made_without_a_rollback_journal_however_far_another_process_has_come(
    path: Path, come_to: str
) -> None:
    """A third process would refuse the journal for that file."""
    if come_to != "nothing":
        path.touch(0o600)
    if come_to in ("the first page", "the write-ahead log"):
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA journal_mode = MEMORY")
            other.execute("PRAGMA user_version = 0")
            assert path.stat().st_size > 0
            if come_to == "the write-ahead log":
                other.execute("PRAGMA journal_mode = WAL")

    with made_files(path.parent) as names:
        journal = Journal(path, threaded=False)
        journal.write(a_record(started_at=time.time(), chunks=1))
        assert journal.close(5.0)

    assert {f"{path.name}-wal", f"{path.name}-shm"} <= names
    assert f"{path.name}-journal" not in names
    assert chunks_in(path) == [1]


def test_killed_process_loses_at_most_its_last_second_and_harms_nothing(path: Path) -> None:
    """`kill -9`, in the middle of writing, several times over."""
    body = """
        journal = Journal(sys.argv[1])
        n = 0
        while True:
            journal.write(a_record(n))
            print(n, time.monotonic(), flush=True)
            n += 1
            time.sleep(0.002)  # some 500 streams a second
    """
    for _ in range(3):
        before = len(chunks_in(path)) if path.exists() else 0
        with started(body, path) as process:
            wait_for_records(path, before + 100)
            killed_at = time.monotonic()
            process.send_signal(signal.SIGKILL)
            out, _ = process.communicate(timeout=60)
        given = [float(line.split()[1]) for line in out.splitlines() if line.count(" ") == 1]
        kept = len(chunks_in(path)) - before

        assert kept >= sum(at < killed_at - 1.0 for at in given)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_exit_writes_what_is_left(path: Path) -> None:
    """The interpreter ends right after the last stream; one file is left, and no log beside it."""
    run("Journal(sys.argv[1]).write(a_record(1))", path)
    run("journal = Journal(sys.argv[1])\njournal.write(a_record(2))\nsys.exit(0)", path)

    assert chunks_in(path) == [1, 2]
    assert [file.name for file in path.parent.iterdir()] == ["streams.db"]


def test_stream_that_is_open_at_exit_is_in_the_journal(path: Path) -> None:
    """Its record is made at exit, after everything else of the program."""
    body = """
        import atexit, os, sys
        from midstream import monitor
        def words():
            yield "a"
            yield "b"
        stream = iter(monitor(words(), journal=sys.argv[1]))
        next(stream)
    """
    assert apart.run(textwrap.dedent(body), str(path)) == ""

    assert [record.outcome.value for record in read_records(path)] == ["left_early"]


def test_exit_is_held_up_for_a_bounded_time_by_a_locked_journal(path: Path) -> None:
    """Two seconds, and the loss is said."""
    run("Journal(sys.argv[1]).write(a_record(1))", path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        _, err = run("Journal(sys.argv[1]).write(a_record(2))", path)
        took = time.monotonic() - begun
        other.execute("ROLLBACK")

    assert took < 8.0
    assert "1 records could not be written" in err
    assert chunks_in(path) == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_writes_its_own_records_and_none_of_its_parents(path: Path) -> None:
    """The fork comes while the parent's queue is full of records and its thread writes them."""
    body = """
        journal = Journal(sys.argv[1])
        for n in range(300):
            journal.write(a_record(n))
            if n in (1, 100, 200):
                if n > 1:
                    time.sleep(0.6)  # a commit is under way, or has just been
                child = os.fork()
                if child == 0:
                    for k in range(50):
                        journal.write(a_record(1000 * n + k))
                    sys.exit(0)
        while True:
            try:
                assert os.waitpid(-1, 0)[1] == 0
            except ChildProcessError:
                break
    """
    assert run(body, path) == ("", "")

    children = [1000 * n + k for n in (1, 100, 200) for k in range(50)]
    assert chunks_in(path) == sorted([*range(300), *children])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_is_not_held_up_by_a_locked_journal(path: Path) -> None:
    """It waits for the attempt that is under way and for no other; both sides write once the lock is gone."""
    body = """
        journal = Journal(sys.argv[1])
        journal.write(a_record(2))
        time.sleep(0.8)  # attempts are made
        begun = time.monotonic()
        child = os.fork()
        os.write(1, b"True\\n" if time.monotonic() - begun < 1.0 else b"False\\n")  # two processes have one pipe
        if child == 0:
            journal.write(a_record(3))
            assert journal.flush(20.0)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert journal.flush(20.0)
    """
    run("Journal(sys.argv[1]).write(a_record(1))", path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with started(body, path) as process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == ["True\n", "True\n"]
            other.execute("ROLLBACK")
            assert process.communicate(timeout=60) == ("", "")
            assert process.returncode == 0

    assert chunks_in(path) == [1, 2, 3]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_of_multiprocessing_writes_what_is_left_at_its_end(path: Path, method: str) -> None:
    """Such a worker ends without what a program's exit does; half a second of records would be lost each time."""
    body = f"""
        import multiprocessing
        def work(n):
            Journal(sys.argv[1]).write(a_record(n))
        if __name__ == "__main__":
            Journal(sys.argv[1]).write(a_record(0))
            context = multiprocessing.get_context({method!r})
            workers = [context.Process(target=work, args=(n,)) for n in (1, 2, 3)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
                assert worker.exitcode == 0
    """
    script = path.parent / "program.py"
    script.write_text(f"import sys; sys.path[:0] = {sys.path!r}\n{HEAD}\n{textwrap.dedent(body)}")
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", script, path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")

    assert chunks_in(path) == [0, 1, 2, 3]


@LINUX
def test_full_disk_costs_nothing_is_said_once_and_recovers(path: Path) -> None:
    """A limit on the size of files refuses each write as a full disk does; then it is lifted."""
    body = """
        import logging, resource
        logging.basicConfig(level=logging.WARNING, format="%(message)s")
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        journal = Journal(sys.argv[1])
        slowest = 0.0
        for n in range(4000):
            record = a_record(n)
            begun = time.perf_counter()
            journal.write(record)
            slowest = max(slowest, time.perf_counter() - begun)
            if n % 500 == 499:
                journal.flush()
        assert not journal.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        assert journal.flush(10.0)
        print(journal.dropped, slowest < 0.25)
    """
    out, err = run(body, path)

    assert out == "0 True\n"
    assert len(err.splitlines()) == 1
    assert f"the journal {path} cannot be written: " in err
    assert chunks_in(path) == list(range(4000))


@LINUX
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_full_file_system_costs_nothing_is_said_once_and_recovers(tmp_path: Path) -> None:
    """A real one, of 300 KiB; somebody makes room later."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    path = tmp_path / "streams.db"
    body = """
        import logging
        logging.basicConfig(level=logging.WARNING, format="%(message)s")
        ballast = sys.argv[1] + ".ballast"
        with open(ballast, "wb") as file:
            file.write(b"x" * 150_000)
        journal = Journal(sys.argv[1])
        for n in range(1500):
            journal.write(a_record(n))
            if n % 300 == 299:
                journal.flush()
        assert not journal.flush()
        os.remove(ballast)
        os.system(f"mount -o remount,size=9m {os.path.dirname(sys.argv[1])}")
        assert journal.flush(10.0)
        print(journal.dropped)
    """
    try:
        out, err = run(body, path)

        assert out == "0\n"
        assert err == (
            f"the journal {path} cannot be written: database or disk is full; "
            "streams are unaffected, and it is tried again\n"
        )
        assert chunks_in(path) == list(range(1500))
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
def test_directory_and_file_that_may_not_be_written_are_said_once(path: Path) -> None:
    """The program runs as somebody else than the one who made the directory."""
    public = Path(tempfile.mkdtemp())
    public.chmod(0o755)
    body = """
        import logging, sqlite3
        logging.basicConfig(level=logging.WARNING, format="%(message)s")
        os.setgroups([]), os.setgid(65534), os.setuid(65534)
        journal = Journal(sys.argv[1])
        journal.write(a_record(1))
        assert not journal.flush()
        journal.write(a_record(2))
        assert not journal.flush()
        os._exit(0)
    """
    try:
        where = public / "streams.db"
        _, err = run(body, where)
        assert err == (
            f"the journal {where} cannot be written: Permission denied; "
            "streams are unaffected, and it is tried again\n"
        )
        run("Journal(sys.argv[1]).write(a_record(0))", where)
        where.chmod(0o444)
        _, err = run(body, where)
        assert err.startswith(f"the journal {where} cannot be written: ")
        assert len(err.splitlines()) == 1
        assert chunks_in(where) == [0]
    finally:
        for file in public.iterdir():
            file.unlink()
        public.rmdir()


def test_import_does_not_bring_sqlite() -> None:
    """Whoever keeps no journal does not pay for one."""
    body = (
        "import midstream\nprint([name for name in sys.modules if 'sqlite' in name or '_journal_w' in name])"
    )
    assert apart.run(body) == "[]\n"
