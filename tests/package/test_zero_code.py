"""The OpenTelemetry entry point: found by the real loader, harmless in every way it can go wrong."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from benchmarks.wire import WireServer

import midstream
from midstream.runtime.monitor import PROCESS
from midstream.testing import DONE, ManualClock, finish, scripted, text
from support.harness import ASK

instrumentation = pytest.importorskip("opentelemetry.instrumentation.dependencies")
LAUNCHER = Path(sysconfig.get_path("scripts")) / "opentelemetry-instrument"

PROGRAM = """
import sys
print("midstream" in sys.modules, "openai" in sys.modules)
from openai import OpenAI
client = OpenAI(api_key="none", base_url=sys.argv[1])
print(len(list(client.chat.completions.create(model="m", messages=[], stream=True))))
"""


@pytest.fixture
def instrumentor() -> Iterator[Any]:
    made = importlib.import_module("midstream.instrumentor").MidstreamInstrumentor()
    yield made
    made.uninstrument()


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer(
        [(0, text("a")), (0.05, text("b")), (0.6, text("c")), (0.6, finish()), (0.6, DONE)]
    ) as wire:
        yield wire


def launched(server: WireServer, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the program, which does not know of us, under `opentelemetry-instrument`."""
    return subprocess.run(
        [str(LAUNCHER), "--traces_exporter", "none", "--logs_exporter", "none", "--metrics_exporter", "console",
         *options, sys.executable, "-c", PROGRAM, server.base_url],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "MIDSTREAM_FREEZE_AFTER_S": "0.3", **env},
    )  # fmt: skip


def read() -> None:
    from openai import OpenAI

    client = OpenAI(api_key="none", http_client=scripted([(0, text("a")), (0, finish())], ManualClock()))
    list(client.chat.completions.create(**ASK, stream=True))


@pytest.mark.skipif(not LAUNCHER.exists(), reason="opentelemetry-instrument is not installed")
def test_program_that_does_not_know_of_us_is_monitored(server: WireServer) -> None:
    """The launcher instruments it, the environment has the settings, and the metrics come out with the freeze."""
    done = launched(server)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True False\n4\n")
    assert '"name": "stream.max_gap"' in done.stdout
    assert '"name": "stream.freezes"' in done.stdout
    assert "stream froze: no output from m at 127.0.0.1:" in done.stderr


@pytest.mark.skipif(not LAUNCHER.exists(), reason="opentelemetry-instrument is not installed")
@pytest.mark.parametrize(
    ("env", "said"),
    [
        (
            {"MIDSTREAM_FREEZE_AFTER_S": "soon"},
            "openai clients are not monitored: MIDSTREAM_FREEZE_AFTER_S must be a positive number of seconds or 'off'",
        ),
        ({"MIDSTREAM_DISABLED": "1"}, ""),
        ({"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "midstream"}, ""),
    ],
    ids=["a bad setting", "disabled", "disabled by name"],
)
def test_program_runs_whatever_is_wrong_with_us(server: WireServer, env: dict[str, str], said: str) -> None:
    """A mistake is one line of log, a switch is obeyed, and the program runs as it would without us."""
    done = launched(server, **env)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1] == "4"
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "stream.max_gap" not in done.stdout


def test_entry_point_is_named_midstream() -> None:
    """Its name is nobody else's, so that it can be switched off alone; the loader finds its requirements met."""
    (found,) = entry_points(group="opentelemetry_instrumentor", name="midstream")

    assert found.load().__name__ == "MidstreamInstrumentor"
    assert found.dist is not None
    assert instrumentation.get_dist_dependency_conflicts(found.dist) is None
    extras = [
        line for line in found.dist.requires or [] if 'extra == "instruments"' in line.replace("'", '"')
    ]
    assert [line.split(";")[0].strip() for line in extras] == ["openai<4,>=1.40"]


def test_instrumentor_comes_and_goes(instrumentor: Any) -> None:
    """It takes the keywords of `instrument()`, may be called twice, and can be undone."""
    ended: list[midstream.StreamRecord] = []

    instrumentor.instrument(on_end=ended.append, attributes={"team": "search"}, tracer_provider=None)
    instrumentor.instrument()
    read()
    instrumentor.uninstrument()
    read()
    PROCESS.flush()

    assert [dict(record.attributes) for record in ended] == [{"team": "search"}]
    assert instrumentor.instrumentation_dependencies() == ("openai >= 1.40, < 4",)


def test_bad_keyword_is_logged_and_not_raised(instrumentor: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An exception would keep the loader from every instrumentation that comes after this one."""
    with caplog.at_level(logging.ERROR, logger="midstream"):
        instrumentor.instrument(freeze_after_s=-1)

    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        "openai clients are not monitored: freeze_after_s must be a positive number of seconds, got -1; "
        "use None to switch freezes off"
    )
