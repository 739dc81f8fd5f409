"""How long `import midstream` takes after `import openai`, and which modules it is made of.

    python -m benchmarks.imports [--rounds N] [--json FILE]

Each round is a new process with the bytecode ready; the CPU time of imports is taken inside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

_TIMED = """
import time
began = time.process_time()
import openai
between = time.process_time()
import midstream
print(between - began, time.process_time() - between)
"""
LISTED = 12
HEAVY = (
    "opentelemetry.sdk",
    "opentelemetry.exporter",
    "prometheus_client",
    "sqlite3",
    "rich",
    "typer",
    "yaml",
)
"""What only some uses of midstream need: none of it may come with `import midstream`."""


@dataclass(frozen=True)
class Imports:
    """Milliseconds: of the SDK, of midstream on top of it, and of midstream's parts by their first two names."""

    openai_ms: float
    midstream_ms: float
    parts_ms: dict[str, float]
    heavy: list[str]


def measure(rounds: int) -> Imports:
    """Import in new processes; medians."""
    _python("-c", "import openai, midstream")  # writes the bytecode
    times = [tuple(map(float, _python("-c", _TIMED).stdout.split())) for _ in range(rounds)]
    parts: dict[str, list[float]] = defaultdict(list)
    names: set[str] = set()
    for _ in range(max(3, rounds // 3)):
        round_: dict[str, float] = defaultdict(float)
        for name, own_us in _own_times(_python("-X", "importtime", "-c", "import openai, midstream").stderr):
            names.add(name)
            round_[_part(name)] += own_us / 1000
        for part, own_ms in round_.items():
            parts[part].append(own_ms)
    return Imports(
        statistics.median(openai for openai, _ in times) * 1000,
        statistics.median(ours for _, ours in times) * 1000,
        {part: statistics.median(own) for part, own in parts.items()},
        sorted(name for name in names if name.startswith(HEAVY)),
    )


def _own_times(report: str) -> list[tuple[str, int]]:
    """What was imported after the SDK, with its own microseconds."""
    lines = [
        line.removeprefix("import time:").split("|") for line in report.splitlines() if line.count("|") == 2
    ]
    after = [name.strip() for _, _, name in lines].index("openai") + 1
    return [(name.strip(), int(own)) for own, _, name in lines[after:]]


def _part(name: str) -> str:
    if name.startswith("midstream"):
        return name
    return name.partition(".")[0]


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True, env=env)


def table(measured: Imports) -> str:
    """The total, and the parts that take longest."""
    parts = sorted(measured.parts_ms.items(), key=lambda part: part[1], reverse=True)
    largest = ", ".join(f"{name} {own:.1f}" for name, own in parts[:LISTED])
    return "\n".join(
        [
            "| import | ms |",
            "|---|---|",
            f"| `openai` | {measured.openai_ms:.0f} |",
            f"| `midstream` after it | {measured.midstream_ms:.1f} |",
            "",
            f"Its largest parts, in ms under `-X importtime`: {largest}.",
            f"Of what only some uses need it brings: {', '.join(measured.heavy) or 'nothing'}.",
        ]
    )


def main(argv: list[str]) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    measured = measure(options.rounds)
    print(table(measured))
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(measured), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
