"""Other instrumentations of the openai SDK beside us, in either order: one record each, nothing of theirs is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from frameworks.neighbour import PEERS
from support.frameworks_through import ROWS
from support.paths import ROOT, TESTS

HERE = Path(__file__).parent


@cache
def seen(peer: str, order: str) -> Any:
    """What a process with this neighbour has seen."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "neighbour.py"), peer, order],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (TESTS, ROOT)))},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("peer", PEERS)
def test_they_see_what_they_see_without_us(peer: str, order: str) -> None:
    """Their spans with attributes, events and states, and their metrics, are the same, and so is what callers get."""
    alone, together = seen(peer, "alone"), seen(peer, order)

    for name, there in together["exits"].items():
        assert (name, there["result"]) == (name, alone["exits"][name]["result"])
        assert (name, there["spans"]) == (name, alone["exits"][name]["spans"])
    assert together["metrics"] == alone["metrics"]


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("peer", PEERS)
def test_we_see_what_we_see_without_them(peer: str, order: str) -> None:
    """However a stream is asked for and left, there is one record, with the freeze that happened."""
    expected = {
        "whole": ("completed", 0.7, 1),
        "left": ("left_early", None, 0),
        "raw": ("completed", 0.7, 1),
        "legacy": ("completed", 0.7, 1),
        "streaming": ("completed", 0.7, 1),
        "cancelled": ("cancelled", 0.45, 1),
    }
    for name, there in seen(peer, order)["exits"].items():
        ((outcome, gap_s, freezes),) = there["records"]
        assert (name, (outcome, freezes)) == (name, (expected[name][0], expected[name][2]))
        assert gap_s == (expected[name][1] and pytest.approx(expected[name][1], abs=0.15))
        theirs = [
            f"{span['status']} {span_s:.2f} s"
            for span, span_s in zip(there["spans"], there["span_s"], strict=True)
        ]
        told = ", ".join(theirs) or "no span"
        ROWS.append(
            f"| {peer:<14} {order:<7} | {name:<9} | {told:<12} | {outcome:<10} gap {gap_s or 0:.2f} s |"
        )


@pytest.mark.parametrize(
    ("steps", "ours"),
    [
        ("theirs,ours,-theirs", [0, 1, 1]),
        ("ours,theirs,-theirs", [1, 1, 1]),
        ("theirs,ours,-ours,-theirs", [0, 1, 0, 0]),
        ("ours,theirs,-ours,ours,-theirs", [1, 1, 0, 1, 1]),
    ],
)
@pytest.mark.parametrize("peer", PEERS)
def test_whoever_leaves_takes_nobody_along(peer: str, steps: str, ours: list[int]) -> None:
    """Each comes and goes in any order, and the other one counts on, once for each stream."""
    counts = seen(peer, steps)

    assert [records for _, _, records in counts] == ours
    there = False
    for step, spans, _ in counts:
        there = {"theirs": True, "-theirs": False}.get(step, there)
        if there or peer != "traceloop":  # which cannot leave: its `uninstrument` undoes nothing
            assert (step, spans) == (step, int(there))
