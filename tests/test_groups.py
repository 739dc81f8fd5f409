"""Tests that share a fixture run in one worker, which makes it once: the suite takes a third longer otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SUITE = """
import os
import pathlib

import pytest

@pytest.fixture(scope="module")
def shared(request):
    (pathlib.Path(__file__).parent / f"made-by-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(8))
@pytest.mark.xdist_group("shared")
def test_one_of_a_group(shared, number):
    pass
"""


def test_a_group_runs_in_one_worker(tmp_path: Path) -> None:
    """As `make test` calls pytest; a version of pytest or xdist that ignores the groups fails here."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-p",
        "no:cacheprovider",
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    assert "8 passed" in ran.stdout, ran.stdout + ran.stderr
    assert len(list(tmp_path.glob("made-by-*"))) == 1
