"""The examples run, against a server that freezes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.wire import WireServer

from midstream.testing import DONE, finish, role, text, usage
from support.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ANSWER: list[tuple[float, str]] = [
    (0.0, role()),
    (0.0, text("Once ")),
    (0.05, text("upon ")),
    (0.65, text("a ")),
    (0.7, text("time.")),
    (0.7, finish() + usage(9, 4) + DONE),
]
"""It is silent for 0.6 s, three times the threshold that is set here."""

SAID = {
    "async_chat.py": ["completed: longest gap", "3 answers"],
    "hooks.py": ["this stream froze", "it goes on after 0.", "completed after"],
    "prometheus.py": ["stream_freezes_total{", 'team="search"', 'outcome="completed"'],
    "quickstart.py": ["completed: silent for 0.", "1 freezes"],
}


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Every example, at work in a process of its own."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("MIDSTREAM_", "OTEL_"))
    }
    with WireServer(ANSWER) as server:
        environment = {
            **clean,
            "MIDSTREAM_FREEZE_AFTER_S": "0.2",
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": server.base_url,
            "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
        }
        started = {
            example.name: subprocess.Popen(
                [sys.executable, "-W", "error", str(example)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for example in EXAMPLES
        }
        yield started
        for process in started.values():
            process.kill()
            process.communicate()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs(example: Path, running: dict[str, subprocess.Popen[str]]) -> None:
    """It ends well, warnings being errors, and says what it is there to say."""
    output, complaints = running[example.name].communicate(timeout=60)
    assert running[example.name].returncode == 0, complaints
    assert [said for said in SAID[example.name] if said not in output] == []


def test_every_example_is_known() -> None:
    """A new one says here what it prints."""
    assert [example.name for example in EXAMPLES] == sorted(SAID)
