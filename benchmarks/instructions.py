"""Instructions that the monitor adds per chunk and per stream, counted by callgrind, with simulated cache misses.

    python -m benchmarks.instructions [--chunks N] [--streams N]

Seconds are noisy and instructions are not: the same code on the same interpreter counts the same. One process under
valgrind reads short and long streams, bare and monitored, and is told by its parent when to count.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import overhead

SHORT = 5
ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "m",
    "server.address": "api.openai.com",
    "server.port": "443",
}
MEASUREMENTS = 10
"""Samples that the record of a complete stream adds to OTel's instruments."""
EVENTS = ("Ir", "I1mr", "D1mr", "D1mw", "ILmr", "DLmr", "DLmw")


@dataclass(frozen=True)
class Counted:
    """What some code did: instructions executed, and lines missing in the simulated first- and last-level caches."""

    instructions: float
    l1_misses: float
    ll_misses: float

    def per(self, number: int, less: Counted) -> Counted:
        """The difference to other code, for each of a number of repetitions."""
        return Counted(
            (self.instructions - less.instructions) / number,
            (self.l1_misses - less.l1_misses) / number,
            (self.ll_misses - less.ll_misses) / number,
        )


NOTHING = Counted(0, 0, 0)


def missing() -> str | None:
    """Name what this measurement needs and has not got; None if it can run."""
    for tool in ("valgrind", "callgrind_control"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (Debian and Ubuntu: apt install valgrind)"
    return None


# The measured process


def serve(chunks: int) -> None:
    """Read one stream for each line on standard input, such as `sync monitored short`, and answer with a line."""
    opens = {
        (kind, how, length): overhead.opening(
            overhead.client(
                kind, overhead.body(SHORT if length == "short" else chunks), monitored=how == "monitored"
            )
        )
        for kind in ("sync", "async")
        for how in ("bare", "monitored")
        for length in ("short", "long")
    }
    loop = asyncio.new_event_loop()
    record = overhead.recording().get_meter("beside").create_histogram("beside").record
    print("ready", flush=True)
    for line in sys.stdin:
        kind, how, length, times = line.split()
        for _ in range(int(times)):
            if kind == "otel":
                record(0.1, ATTRIBUTES)
            elif kind == "sync":
                overhead.read(opens[kind, how, length])
            else:
                loop.run_until_complete(overhead.aread(opens[kind, how, length]))
        print("done", flush=True)
    loop.close()


class Process:
    """The process under callgrind."""

    def __init__(self, folder: Path, chunks: int) -> None:
        self._out = folder / "out"
        self._dumps = 0
        self._child = subprocess.Popen(
            [
                "valgrind", "--tool=callgrind", "--cache-sim=yes", "--instr-atstart=no",
                f"--callgrind-out-file={self._out}", f"--vgdb-prefix={folder / 'vgdb'}",
                sys.executable, "-m", "benchmarks.instructions", "--serve", "--chunks", str(chunks),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )  # fmt: skip
        self._prefix = f"--vgdb-prefix={folder / 'vgdb'}"
        self._answer("ready")

    def count(self, kind: str, how: str, length: str, times: int) -> Counted:
        """Have streams read, and count."""
        self._control("-z")
        self._run(kind, how, length, times)
        self._control("-d")
        self._dumps += 1
        return _summary(Path(f"{self._out}.{self._dumps}"))

    def warm(self, kind: str, how: str, length: str, times: int) -> None:
        """Have streams read that do not count."""
        self._run(kind, how, length, times)

    def start(self) -> None:
        """Begin to instrument: slower by a factor of fifty or so from now on."""
        self._control("-i", "on")

    def close(self) -> None:
        self._child.kill()
        self._child.wait()

    def _run(self, *words: object) -> None:
        assert self._child.stdin is not None
        print(*words, file=self._child.stdin, flush=True)
        self._answer("done")

    def _answer(self, expected: str) -> None:
        assert self._child.stdout is not None
        said = self._child.stdout.readline().strip()
        if said != expected:
            raise SystemExit(f"the process under valgrind ended early (it said {said!r})")

    def _control(self, *arguments: str) -> None:
        subprocess.run(
            ["callgrind_control", self._prefix, *arguments, str(self._child.pid)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def _summary(file: Path) -> Counted:
    text = file.read_text()
    names = _words(text, "events")
    totals = dict(zip(names, map(int, _words(text, "totals") or _words(text, "summary")), strict=False))
    known = {event: totals.get(event, 0) for event in EVENTS}
    return Counted(
        known["Ir"],
        known["I1mr"] + known["D1mr"] + known["D1mw"],
        known["ILmr"] + known["DLmr"] + known["DLmw"],
    )


def _words(text: str, key: str) -> list[str]:
    found = re.search(rf"^{key}: (.+)$", text, re.MULTILINE)
    return found.group(1).split() if found else []


# The table


def measure(chunks: int, streams: int) -> tuple[dict[str, tuple[Counted, Counted]], Counted]:
    """What the bare SDK does, and what the monitor adds, per chunk and per stream; and what OTel's SDK does of that."""
    result = {}
    with TemporaryDirectory() as folder:
        process = Process(Path(folder), chunks)
        try:
            kinds = ("sync", "async")
            for kind in kinds:
                for how in ("bare", "monitored"):
                    for length in ("short", "long"):
                        process.warm(kind, how, length, 3)
            process.start()
            for kind in kinds:
                got = {}
                for how in ("bare", "monitored"):
                    process.warm(kind, how, "short", 1)
                    got[how, "short"] = process.count(kind, how, "short", streams)
                    got[how, "long"] = process.count(kind, how, "long", 1)
                more = chunks - SHORT
                per_stream = {how: got[how, "short"].per(streams, NOTHING) for how in ("bare", "monitored")}
                per_chunk = {
                    how: got[how, "long"].per(more, per_stream[how]) for how in ("bare", "monitored")
                }
                result[f"{kind}, a chunk"] = (
                    per_chunk["bare"],
                    per_chunk["monitored"].per(1, per_chunk["bare"]),
                )
                result[f"{kind}, a stream of {SHORT} chunks"] = (
                    per_stream["bare"],
                    per_stream["monitored"].per(1, per_stream["bare"]),
                )
            process.warm("otel", "otel", "otel", MEASUREMENTS)
            otel = process.count("otel", "otel", "otel", streams * MEASUREMENTS).per(streams, NOTHING)
        finally:
            process.close()
    return result, otel


def main(argv: list[str]) -> int:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chunks", type=int, default=300)
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.serve:
        serve(options.chunks)
        return 0
    lacking = missing()
    if lacking is not None:
        print(f"Not counted: {lacking}.")
        return 0
    print("| | SDK, instructions | monitor adds | share | SDK, L1 misses | monitor adds |")
    print("|---|---|---|---|---|---|")
    measured, otel = measure(options.chunks, options.streams)
    for what, (bare, added) in measured.items():
        share = added.instructions / bare.instructions
        print(
            f"| {what} | {bare.instructions:,.0f} | {added.instructions:,.0f} | {share:.1%} "
            f"| {bare.l1_misses:,.0f} | {added.l1_misses:,.0f} |"
        )
    print(
        f"| of a stream's, {MEASUREMENTS} measurements by OTel's SDK | | {otel.instructions:,.0f} | | "
        f"| {otel.l1_misses:,.0f} |"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
