"""Instrumentations of HTTP libraries beside us, in either order: one record each, nothing of theirs is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from frameworks.http_neighbour import PEERS
from support.paths import ROOT, TESTS

HTTP = {"httpx", "httpx async", "httpx left", "aiohttp", "aiohttp left"}
REQUESTS = {"requests", "requests left"}
SDK = {"openai", "openai async"}
SPANS = {
    "otel": HTTP | REQUESTS,
    "openinference": SDK,
    "logfire": HTTP | REQUESTS | SDK,
    "langfuse": SDK,
    "sentry": HTTP | SDK,
}
"""Where each of them has spans."""
OURS = {"stream.max_gap", "gen_ai.response.id"}
"""What we add to the caller's span where it is not there."""
CALLERS = {"code.filepath", "code.function", "code.lineno"}
"""Where Logfire finds the caller: the first frame outside of `site-packages`, which here is one of ours."""


@cache
def seen(peer: str, order: str) -> Any:
    """What a process with this neighbour has seen."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).parent / "http_neighbour.py"), peer, order],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (TESTS, ROOT)))},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def compared(spans: Any) -> Any:
    """The spans without what is ours, and without the place of the caller."""
    return [
        [
            {k: v for k, v in part.items() if k not in OURS | CALLERS} if isinstance(part, dict) else part
            for part in span
        ]
        for span in spans
    ]


@pytest.mark.parametrize("peer", PEERS)
def test_there_is_something_to_lose(peer: str) -> None:
    """Without us each of them has spans where it should, so that what follows can fail."""
    assert {name for name, there in seen(peer, "alone").items() if there["spans"]} == SPANS[peer]


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("peer", PEERS)
def test_they_and_the_callers_see_what_they_see_without_us(peer: str, order: str) -> None:
    """Spans with attributes, events and states, and the lines and chunks that were read."""
    alone = seen(peer, "alone")

    for name, there in seen(peer, order).items():
        assert (name, there["got"]) == (name, alone[name]["got"])
        assert (name, compared(there["spans"])) == (name, compared(alone[name]["spans"]))


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("peer", PEERS)
def test_there_is_one_record_of_each_stream(peer: str, order: str) -> None:
    """Whichever library opens it: with the freeze that happened, or left early."""
    assert len(seen(peer, order)) == 9
    for name, there in seen(peer, order).items():
        ((outcome, freezes, gap_s, model),) = there["records"]
        whole = not name.endswith("left")
        assert (name, outcome, model) == (name, "completed" if whole else "left_early", "m")
        assert (freezes, gap_s) == ((1, pytest.approx(0.4, abs=0.15)) if whole else (0, None))
