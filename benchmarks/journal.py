"""What the journal costs, what it takes, and what a `kill -9` loses.

    python -m benchmarks.journal [--rounds N] [--kills N] [--seconds S]

The cost is that of a stream's end in the caller's own thread, with and without a journal in turns. The writer is fed
as fast as it takes, by one process and by four. For the loss a process that ends a stream every 2 ms is killed at a
random moment; what it had given and what is in the file are compared.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from midstream import StreamRecord, monitor
from midstream.journal import Journal, flush, read, read_records

STREAMS = 200
CHUNKS = 5

FEED = """
import sys, time
from benchmarks.journal import feed
feed(sys.argv[1], float(sys.argv[2]))
"""
END_STREAMS = """
import sys
from benchmarks.journal import end_streams
end_streams(sys.argv[1])
"""


def a_record() -> StreamRecord:
    """Take the record of a real stream, filled in as a server that reports usage would have it."""
    ended: list[StreamRecord] = []
    list(monitor(iter(("one ", "two ")), on_end=ended.append, journal=None))
    return replace(
        ended[0],
        request_model="Qwen/Qwen3-8B",
        response_model="Qwen/Qwen3-8B",
        server_address="vllm.example.com",
        server_port=8000,
        attributes={"team": "search"},
        finish_reasons=("stop",),
        output_tokens=640,
        input_tokens=812,
        trace_id="0af7651916cd43dd8448eb211c80319c",
        span_id="b7ad6b7169203331",
    )


# What it costs


def cost(rounds: int) -> None:
    """Print what a stream costs its caller, with and without a journal."""
    with tempfile.TemporaryDirectory() as directory:
        without, journaled = monitor(journal=None), monitor(journal=Path(directory) / "streams.db")

        def stream() -> Iterator[str]:
            for _ in range(CHUNKS):
                yield "word "

        def per_stream(follow: Callable[[Iterator[str]], Iterator[str]]) -> float:
            begun = time.thread_time_ns()
            for _ in range(STREAMS):
                for _ in follow(stream()):
                    pass
            return (time.thread_time_ns() - begun) / STREAMS / 1e3

        per_stream(without), per_stream(journaled)
        gc.disable()
        pairs = []
        for _ in range(rounds):
            first, second = random.sample([without, journaled], 2)
            found = {id(first): per_stream(first), id(second): per_stream(second)}
            pairs.append((found[id(without)], found[id(journaled)]))
            flush()
            gc.collect()
        gc.enable()
    bare = statistics.median(pair[0] for pair in pairs)
    more = statistics.median(pair[1] - pair[0] for pair in pairs)
    print(
        f"a stream of {CHUNKS} chunks, in the caller's thread: {bare:.1f} us monitored, {more:+.2f} us with a journal "
        f"(x{1 + more / bare:.3f}), median of {rounds} rounds of {STREAMS}"
    )
    print(f"one write() of a record: {_write_us(rounds):.2f} us")


def _write_us(rounds: int) -> float:
    record = a_record()
    with tempfile.TemporaryDirectory() as directory:
        journal = Journal(Path(directory) / "streams.db", threaded=False)
        found = []
        for _ in range(rounds):
            begun = time.thread_time_ns()
            for _ in range(1000):
                journal.write(record)
            found.append((time.thread_time_ns() - begun) / 1e6)
            journal.flush()
        journal.close()
    return statistics.median(found)


# What it takes


def feed(path: str, seconds: float) -> None:
    """Give a journal as many records as it takes in so many seconds, and print how many."""
    journal, record = Journal(path, max_mb=None), a_record()
    until, given = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for _ in range(1000):
            journal.write(record)
        given += 1000
        if given % 4000 == 0 and not journal.flush(10.0):
            raise SystemExit("the journal fell behind by more than 10 s")
    assert journal.flush(30.0)
    assert journal.dropped == 0
    print(given)


def throughput(seconds: float) -> None:
    """Print how many rows a second go in, from one process and from four, and out again."""
    for processes in (1, 4):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "streams.db"
            begun = time.monotonic()
            command = [sys.executable, "-c", FEED, str(path), str(seconds)]
            feeders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
            given = sum(int(feeder.communicate(timeout=300)[0]) for feeder in feeders)
            took = time.monotonic() - begun
            size = path.stat().st_size
            begun = time.monotonic()
            rows = len(read_records(path))
            read_took = time.monotonic() - begun
            assert rows == given, f"{given} given, {rows} there"
            word = "process" if processes == 1 else "processes"
            print(
                f"{processes} {word}: {given / took:,.0f} rows a second, start of the interpreter included; "
                f"{rows:,} rows, none lost; "
                f"{size / rows:.0f} bytes a row; read at {rows / read_took:,.0f} rows a second"
            )


# What is lost


def end_streams(path: str) -> None:
    """End a stream every 2 ms for ever, and say when each was given to the journal."""
    journal, record = Journal(path), a_record()
    out = os.fdopen(1, "wb", buffering=0)
    number = 0
    while True:
        number += 1
        journal.write(replace(record, chunks=number))
        out.write(b"%d %.6f\n" % (number, time.monotonic()))
        time.sleep(0.002)


def loss(kills: int) -> None:
    """Print how much a process that is killed had given to its journal and not got into it."""
    seconds, records, damaged = [], [], 0
    with tempfile.TemporaryDirectory() as directory:
        for kill in range(kills):
            path = Path(directory) / f"{kill}.db"
            with subprocess.Popen(
                [sys.executable, "-c", END_STREAMS, str(path)], stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(random.uniform(1.0, 2.5))
                killed_at = time.monotonic()
                process.send_signal(signal.SIGKILL)
                given = _given(process.stdout.read().splitlines())
            kept = {record.chunks for record in read(path).records}
            lost = [at for number, at in given.items() if number not in kept]
            seconds.append(killed_at - min(lost) if lost else 0.0)
            records.append(len(lost))
            with closing(sqlite3.connect(path)) as connection:
                damaged += connection.execute("PRAGMA integrity_check").fetchone() != ("ok",)
    print(
        f"{kills} kills: the oldest record lost was {_spread(seconds, ' s')} old; {_spread(records, '')} records lost "
        f"of 500 a second; {damaged} journals damaged"
    )


def _given(lines: Sequence[str]) -> dict[int, float]:
    whole = [line.split() for line in lines if line.count(" ") == 1 and line[-7:-6] == "."]
    return {int(number): float(at) for number, at in whole}


def _spread(values: Sequence[float], unit: str) -> str:
    ordered = sorted(values)
    digits = 2 if unit else 0
    tail = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    middle, p95, most = (f"{n:.{digits}f}{unit}" for n in (statistics.median(ordered), tail, ordered[-1]))
    return f"{middle} (p95 {p95}, most {most})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args(arguments)
    cost(options.rounds)
    throughput(options.seconds)
    loss(options.kills)


if __name__ == "__main__":
    main()
